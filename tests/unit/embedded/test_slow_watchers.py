"""Watchers that do not read."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

from kueuelib.api.kinds import CONFIG_MAPS
from kueuelib.embedded.http.answers import PIECE, pieces
from kueuelib.embedded.server import ApiServer
from kueuelib.runtime import server_limits

LARGE = 200_000
MAPS = "/api/v1/namespaces/default/configmaps"


def large(name):
    return {"metadata": {"name": name, "namespace": "default"}, "data": {"x": "y" * LARGE}}


def test_small_lines_share_a_piece_and_large_ones_are_cut():
    small, big = (b"<", b"s" * 100, b">"), (b"[", b"b" * (3 * PIECE + 1), b"]")
    parts = [*small, *small, *big, *small]
    found = list(pieces(parts))
    assert b"".join(found) == b"".join(parts)
    assert max(map(len, found)) == PIECE
    assert found[0] == b"".join(small) * 2 + b"["
    assert list(pieces([])) == []


async def connected(server, size):
    """A connection whose client has room for `size` bytes in the kernel and reads on demand."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", server.port))
    context = ssl.create_default_context(cadata=server.ca.decode())
    reader, writer = await asyncio.open_connection(
        sock=raw, ssl=context, server_hostname="127.0.0.1", limit=1024
    )
    writer.write(
        f"GET {MAPS}?watch=true HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {server.token}\r\n\r\n".encode()
    )
    assert b"200" in await reader.readline()
    return reader, writer


async def test_who_does_not_read_is_hung_up_on_and_others_are_told_everything(monkeypatch):
    monkeypatch.setattr(server_limits, "PATIENCE_SECONDS", 0.2)
    count = 40
    async with ApiServer() as server, asyncio.timeout(60):
        _, slow = await connected(server, 4096)
        reader, quick = await connected(server, 2**20)
        told: list[bytes] = []

        async def read():
            text = b""
            while f'"name":"m{count - 1}"'.encode() not in text:
                text += await reader.read(2**18)
            told.append(text)

        reading = asyncio.create_task(read())
        for i in range(count):
            await server.service.create(CONFIG_MAPS, large(f"m{i}"))
            await asyncio.sleep(0)
        await reading
        while not slow.transport.is_closing():
            slow.write(b"\r\n")  # the answer to this tells that nobody is there any more
            await asyncio.sleep(0.02)
        assert not quick.transport.is_closing()
        quick.transport.abort()
        with contextlib.suppress(ConnectionError):
            await slow.wait_closed()
    assert told[0].count(b'"type":"ADDED"') == count
