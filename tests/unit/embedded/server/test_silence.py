"""Connections on which nothing comes are closed."""

from __future__ import annotations

import asyncio
import gc
import ssl

import pytest

from kueuelib.embedded.server import ApiServer
from kueuelib.runtime import server_limits

HEAD = (
    "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n"
)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_limits, "SILENT_SECONDS", 0.3)
    async with ApiServer() as found:
        yield found


async def answer(server: ApiServer, sent: str | None) -> bytes:
    """What comes until the server ends the connection; without `sent` there is no TLS."""
    tls = None if sent is None else ssl.create_default_context(cadata=server.ca.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls)
    writer.write((sent or "").format(server.token).encode())
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("sent", [None, "", "GET /api", "GET /api HTTP/1.1\r\nHost: a\r\n"])
async def test_who_asks_nothing_is_cut_off(server: ApiServer, sent: str | None) -> None:
    assert await answer(server, sent) == b""


async def test_a_body_that_does_not_come_is_told(server: ApiServer) -> None:
    sent = HEAD + "Connection: close\r\nContent-Length: 100\r\n\r\n{{"
    assert (await answer(server, sent)).startswith(b"HTTP/1.1 408 ")


async def test_who_has_asked_may_think(server: ApiServer) -> None:
    tls = ssl.create_default_context(cadata=server.ca.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls)
    for _ in range(2):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(20):
            assert b"200" in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(2) == b"ok"
        await asyncio.sleep(0.5)
    writer.transport.abort()


async def test_an_idle_connection_keeps_a_small_buffer():
    """A thousand of them cost their number times this, for as long as they are open."""
    async with ApiServer() as server:
        context = ssl.create_default_context(cadata=server.ca.decode())
        _, writer = await asyncio.open_connection(server.host, server.port, ssl=context)
        ours = [each for each in gc.get_objects() if isinstance(each, server_limits._Tls)]
        assert [len(each.received) for each in ours] == [32 * 1024]
        writer.transport.abort()
