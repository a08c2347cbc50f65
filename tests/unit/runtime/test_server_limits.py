"""Connections that are silent or slow are closed, and there are only so many."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web

import kueuelib
from kueuelib.embedded import credentials as tls
from kueuelib.runtime import server_limits
from kueuelib.runtime.http import MetricsServer, ProbeServer, serving
from kueuelib.runtime.server_limits import Slots, body_of
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.webhook import server as webhook_server
from kueuelib.runtime.webhook.server import WebhookServer

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def credentials():
    return tls.credentials(time.time(), (HOST,), "u", "g")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_limits, "SILENT_SECONDS", 0.5)


@pytest.fixture(params=["plain", "tls"])
async def site(request, credentials, monkeypatch):
    """Opens a connection to a server that says what was sent; without handshake, only a socket."""
    rooms: list[Slots] = []
    monkeypatch.setattr(server_limits, "Slots", lambda most: rooms.append(Slots(most)) or rooms[0])

    async def handle(asked: web.BaseRequest) -> web.Response:
        return web.Response(body=await body_of(asked) or b"x" * int(asked.headers.get("Size", 1)))

    secret = request.param == "tls"
    context = credentials.server_context() if secret else None
    writers = []
    async with serving(web.Server(handle, access_log=None), HOST, 0, tls=context) as port:

        async def connect(*, handshake: bool = True):
            client = None
            if secret and handshake:
                client = ssl.create_default_context(cadata=credentials.ca.decode())
            reader, writer = await asyncio.open_connection(HOST, port, ssl=client, limit=2**12)
            writers.append(writer)
            return reader, writer

        connect.room = rooms[0]
        yield connect
        for each in writers:
            with suppress(AttributeError):  # of Python 3.11, if it was closed twice
                each.transport.abort()


async def rest(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(20):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def all_gone(room: Slots) -> None:
    async with asyncio.timeout(60):
        while room._open:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nHost: a\r\n"])
@pytest.mark.parametrize("handshake", [True, False])
async def test_who_asks_nothing_is_cut_off(site, sent, handshake):
    reader, writer = await site(handshake=handshake)
    writer.write(sent)
    found = await rest(reader)
    assert not found.startswith(b"HTTP/1.1")  # TLS may say that this was none


async def test_a_head_that_comes_byte_by_byte_is_cut_off_after_its_time(site):
    reader, writer = await site()
    writer.write(GET)
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(1)
    writer.write(GET[:-2] + b"X: ")
    begun = time.monotonic()
    while not writer.is_closing() and time.monotonic() < begun + 20:
        writer.write(b"x")
        await asyncio.sleep(0.05)
    assert writer.is_closing()


async def test_who_has_asked_may_rest(site):
    reader, writer = await site()
    for _ in range(2):
        writer.write(GET)
        async with asyncio.timeout(20):
            assert b"200" in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(1) == b"x"
        await asyncio.sleep(0.8)


async def test_a_body_has_its_time(site):
    reader, writer = await site()
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n1")
    assert b"500" in (await rest(reader))[:20]


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux has it")
async def test_who_does_not_take_the_answer_is_cut_off(site):
    reader, writer = await site()
    writer.write(GET[:-2] + b"Size: 100000000\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    await all_gone(site.room)


async def test_what_rested_longest_makes_room(site, monkeypatch, caplog):
    monkeypatch.setattr(server_limits, "SILENT_SECONDS", 600.0)
    room = site.room
    room._most = 3
    first, second, third = [await site() for _ in range(3)]
    first[1].write(GET)
    await first[0].readuntil(b"\r\n\r\n")
    assert len(room._open) == 3
    fourth = await site()
    assert await rest(second[0]) == b""
    for reader, writer in (first, third, fourth):
        writer.write(GET)
        async with asyncio.timeout(20):
            assert b"200" in await reader.readuntil(b"\r\n\r\n")
    assert [each for each in caplog.messages if "too many" in each]
    for each in (first, third, fourth):
        each[1].transport.abort()
    await all_gone(room)


async def test_nobody_who_is_at_work_makes_room(site, monkeypatch):
    monkeypatch.setattr(server_limits, "SILENT_SECONDS", 600.0)
    room = site.room
    room._most = 1
    reader, writer = await site()
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1")
    await asyncio.sleep(0.1)
    refused, _ = await site(handshake=False)
    assert await rest(refused) == b""
    writer.write(b"2")
    async with asyncio.timeout(20):
        assert (await reader.readuntil(b"12")).startswith(b"HTTP/1.1 200")


async def test_bodies_that_are_held_are_limited_together(credentials, monkeypatch):
    monkeypatch.setattr(server_limits, "SILENT_SECONDS", 60.0)
    monkeypatch.setattr(webhook_server, "HELD", 3000)
    server, ready = WebhookServer(HOST, 0, None), asyncio.Event()
    server.validate("/v", lambda new, old, request: None)
    task = asyncio.create_task(server.run(ready.set))
    await asyncio.wait_for(ready.wait(), 60)
    lines = b"POST /v HTTP/1.1", b"Host: a", b"Content-Type: application/json"
    head = b"\r\n".join((*lines, b"Content-Length: 2000", b"", b""))

    async def ask(body: bytes):
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(head + body)
        return reader, writer

    half = await ask(b"x" * 1999)
    await asyncio.sleep(0.1)
    refused = await ask(b"x" * 1999)
    assert (await refused[0].readline()).startswith(b"HTTP/1.1 429")
    refused[1].transport.abort()
    half[1].write(b"x")
    assert (await half[0].readline()).startswith(b"HTTP/1.1 400")
    again = await ask(b"x" * 2000)
    assert (await again[0].readline()).startswith(b"HTTP/1.1 400")
    for _, writer in (half, again):
        writer.transport.abort()
    task.cancel()
    await asyncio.wait((task,))


@pytest.fixture
async def started(credentials):
    """Starts one of the servers of a manager; its port."""
    context, tasks = credentials.server_context, []

    async def start(name: str) -> int:
        server = {
            "probes": lambda: ProbeServer(HOST, 0),
            "metrics": lambda: MetricsServer(HOST, 0, Telemetry(), tls=context()),
            "webhooks": lambda: WebhookServer(HOST, 0, context()),
            "webhooks without tls": lambda: WebhookServer(HOST, 0, None),
        }[name]()
        if isinstance(server, WebhookServer):
            server.validate("/v", lambda new, old, request: None)
        ready = asyncio.Event()
        tasks.append(asyncio.create_task(server.run(ready.set)))
        await asyncio.wait_for(ready.wait(), 60)
        return server.port

    yield start
    for task in tasks:
        task.cancel()
        await asyncio.wait((task,))


@pytest.mark.parametrize("name", ["probes", "metrics", "webhooks"])
async def test_the_rule_holds_for_the_servers_of_a_manager(name, started):
    reader, writer = await asyncio.open_connection(HOST, await started(name))
    assert await rest(reader) == b""
    writer.transport.abort()


@pytest.mark.parametrize("name", ["metrics", "webhooks"])
async def test_who_forgets_tls_is_told(name, started):
    reader, writer = await asyncio.open_connection(HOST, await started(name))
    writer.write(GET)
    assert b"Client sent an HTTP request to an HTTPS server." in await rest(reader)
    writer.transport.abort()


async def test_who_waits_with_a_review_is_told_to_go_on(started):
    reader, writer = await asyncio.open_connection(HOST, await started("webhooks without tls"))
    lines = b"POST /v HTTP/1.1", b"Host: a", b"Content-Type: application/json"
    writer.write(b"\r\n".join((*lines, b"Content-Length: 2", b"Expect: 100-continue", b"", b"")))
    async with asyncio.timeout(20):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}")
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")
    writer.transport.abort()


def test_the_rule_holds_on_uvloop():
    uvloop = pytest.importorskip("uvloop")

    async def half_a_head() -> bytes:
        server, ready = WebhookServer(HOST, 0, None), asyncio.Event()
        task = asyncio.create_task(server.run(ready.set))
        await asyncio.wait_for(ready.wait(), 60)
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(b"POST /v")
        found = await rest(reader)
        writer.transport.abort()
        task.cancel()
        await asyncio.wait((task,))
        return found

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(half_a_head()) == b""


def test_no_server_goes_round_the_rule():
    source = Path(kueuelib.__file__).parent
    looks = "runtime/addresses.py"  # it only looks whether ports are free
    found = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if any(word in path.read_text() for word in ("TCPSite(", "SockSite(", ".create_server("))
    ]
    assert sorted(found) == [looks, "runtime/server_limits.py"]
