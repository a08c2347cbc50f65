"""TLS in memory: against asyncio's own layer, from both sides."""

from __future__ import annotations

import asyncio
import ssl
import time

import pytest

from kueuelib.embedded import credentials as tls
from kueuelib.runtime.tls_layer import BUFFER, TlsLayer

HOST = "127.0.0.1"
SECONDS = {"handshake_seconds": 20.0, "farewell_seconds": 20.0}


@pytest.fixture(scope="module")
def credentials():
    return tls.credentials(time.time(), (HOST,), "u", "g")


class Echo(asyncio.Protocol):
    """Sends back what comes, and reads no more while that is not taken."""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)

    def pause_writing(self):
        self.transport.pause_reading()

    def resume_writing(self):
        self.transport.resume_reading()


class Collector(asyncio.Protocol):
    """Keeps what comes."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.ended: list[str] = []
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.got += data

    def eof_received(self):
        self.ended.append("eof")

    def connection_lost(self, exc):
        self.lost.set_result(exc)


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
async def serve(credentials):
    """Starts a server with our layer, or with asyncio's; its port."""
    servers = []

    async def start(make, *, ours: bool) -> int:
        loop, context = asyncio.get_running_loop(), credentials.server_context()
        buffer = bytearray(BUFFER)

        def layer() -> TlsLayer:
            return TlsLayer(make, context, buffer, server_side=True, **SECONDS)

        if ours:
            servers.append(await loop.create_server(layer, HOST, 0))
        else:
            servers.append(await loop.create_server(make, HOST, 0, ssl=context))
        return servers[-1].sockets[0].getsockname()[1]

    yield start
    for each in servers:
        each.close()


async def connected(port: int, context: ssl.SSLContext, *, ours: bool, name: str = HOST):
    """A collector whose connection has TLS."""
    loop = asyncio.get_running_loop()
    if not ours:
        _, found = await loop.create_connection(
            Collector, HOST, port, ssl=context, server_hostname=name
        )
        return found
    ready = loop.create_future()
    found = Collector()
    await loop.create_connection(
        lambda: TlsLayer(
            lambda: found,
            context,
            bytearray(BUFFER),
            server_hostname=name,
            ready=ready,
            **SECONDS,
        ),
        HOST,
        port,
    )
    async with asyncio.timeout(30):
        await ready
    return found


def trusting(credentials) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=credentials.ca.decode())


@pytest.mark.parametrize(("server", "client"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_megabytes_pass_in_both_directions(serve, credentials, server, client, version):
    port = await serve(Echo, ours=server)
    context = trusting(credentials)
    context.minimum_version = context.maximum_version = version
    collector = await connected(port, context, ours=client)
    sent = bytes(range(256)) * 12_000
    for start in range(0, len(sent), 500_000):
        collector.transport.write(sent[start : start + 500_000])
    await until(lambda: len(collector.got) >= len(sent))
    assert bytes(collector.got) == sent
    assert collector.transport.get_extra_info("ssl_object").version() == version.name.replace(
        "v1_", "v1."
    )
    collector.transport.close()
    async with asyncio.timeout(30):
        assert await collector.lost is None


@pytest.mark.parametrize(("server", "client"), [(True, False), (False, True)])
async def test_what_was_written_before_the_end_arrives(serve, credentials, server, client):
    class Short(asyncio.Protocol):
        def connection_made(self, transport):
            transport.writelines([b"x" * 300_000, b"y"])
            transport.close()
            transport.write(b"too late")

    collector = await connected(await serve(Short, ours=server), trusting(credentials), ours=client)
    async with asyncio.timeout(30):
        assert await collector.lost is None
    assert (len(collector.got), collector.got[-1:]) == (300_001, b"y")
    assert collector.ended == ["eof"]


async def test_who_trusts_nobody_hears_why(serve):
    port = await serve(Echo, ours=False)
    with pytest.raises(ssl.SSLCertVerificationError):
        await connected(port, ssl.create_default_context(), ours=True)


async def test_another_name_is_refused(serve, credentials):
    port = await serve(Echo, ours=False)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        await connected(port, trusting(credentials), ours=True, name="other.example")


async def test_a_server_that_ends_in_the_handshake_is_told(credentials):
    class Rude(asyncio.Protocol):
        def connection_made(self, transport):
            transport.close()

    server = await asyncio.get_running_loop().create_server(Rude, HOST, 0)
    with pytest.raises(ConnectionError):
        await connected(server.sockets[0].getsockname()[1], trusting(credentials), ours=True)
    server.close()


async def test_nothing_is_handed_over_while_reading_is_paused(serve, credentials):
    collector = await connected(await serve(Echo, ours=True), trusting(credentials), ours=True)
    collector.transport.pause_reading()
    collector.transport.write(b"a" * 100_000)
    await asyncio.sleep(0.1)
    assert not collector.got
    collector.transport.resume_reading()
    await until(lambda: len(collector.got) == 100_000)
    collector.transport.abort()


async def test_tls_goes_through_tls(serve, credentials):
    """As to a server behind a proxy that has TLS itself."""
    context, server_context = trusting(credentials), credentials.server_context()
    loop = asyncio.get_running_loop()
    inner_buffer = bytearray(BUFFER)

    def inner_server() -> TlsLayer:
        return TlsLayer(Echo, server_context, inner_buffer, server_side=True, **SECONDS)

    outer = await connected(await serve(inner_server, ours=True), context, ours=True)
    ready, inner = loop.create_future(), Collector()
    layer = TlsLayer(
        lambda: inner,
        context,
        bytearray(BUFFER),
        server_hostname=HOST,
        ready=ready,
        **SECONDS,
    )
    outer.transport.set_protocol(layer)
    layer.connection_made(outer.transport)
    async with asyncio.timeout(30):
        await ready
    inner.transport.write(b"deep" * 50_000)
    await until(lambda: len(inner.got) == 200_000)
    inner.transport.abort()


async def test_a_handshake_has_its_time(credentials):
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, HOST, 0)
    ready = asyncio.get_running_loop().create_future()
    await asyncio.get_running_loop().create_connection(
        lambda: TlsLayer(
            Collector,
            trusting(credentials),
            bytearray(BUFFER),
            server_hostname=HOST,
            handshake_seconds=0.1,
            farewell_seconds=1.0,
            ready=ready,
        ),
        HOST,
        server.sockets[0].getsockname()[1],
    )
    with pytest.raises(ConnectionAbortedError, match="no handshake"):
        await asyncio.wait_for(ready, 30)
    server.close()
