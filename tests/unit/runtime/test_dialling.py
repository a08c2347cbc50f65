"""Ways to a server: its addresses, and proxies."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import time
from contextlib import asynccontextmanager, suppress

import pytest

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import ObjectKey
from kueuelib.embedded import credentials as tls
from kueuelib.errors import ConfigError, NotConnected, TransportError
from kueuelib.runtime import dialling
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import wait_for_server
from kueuelib.runtime.dialling import reached
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.failures import with_fix
from kueuelib.runtime.transport import Transport

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def credentials():
    return tls.credentials(time.time(), (HOST, "api.test"), "u", "g")


def trusting(credentials) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=credentials.ca.decode())


@asynccontextmanager
async def listening(serve, context: ssl.SSLContext | None = None):
    """A server; gives its port."""

    tasks = []

    async def served(reader, writer):
        tasks.append(asyncio.current_task())
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await serve(reader, writer)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(served, HOST, 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)


async def answering(reader, writer):
    while True:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)


class Proxy:
    """Connects to one server, whatever name it is asked for, and notes what it was asked."""

    def __init__(self, port: int, refuses: bytes = b"") -> None:
        self.port, self.refuses = port, refuses
        self.asked: list[str] = []

    async def __call__(self, reader, writer):
        self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if self.refuses:
            writer.write(self.refuses)
            await reader.read()
            return
        there, further = await asyncio.open_connection(HOST, self.port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            await asyncio.gather(self.copy(reader, further), self.copy(there, writer))
        finally:
            further.transport.abort()

    @staticmethod
    async def copy(source, sink):
        while data := await source.read(2**16):
            sink.write(data)
        sink.close()


@pytest.mark.parametrize("secret", [False, True])
async def test_a_proxy_is_asked_for_a_tunnel(credentials, monkeypatch, tmp_path, secret):
    """TLS goes through it to the server, even if the proxy has TLS itself."""
    contexts = {"proxy": credentials.server_context() if secret else None}
    authority = tmp_path / "ca.pem"
    authority.write_bytes(credentials.ca)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    own = trusting(credentials)
    async with listening(answering, credentials.server_context()) as port:
        proxy = Proxy(port)
        async with listening(proxy, contexts["proxy"]) as proxied:
            scheme = "https" if secret else "http"
            endpoint = Endpoint(
                "https://api.test:6443", tls=own, proxy=f"{scheme}://me:p%40ss@{HOST}:{proxied}"
            )
            async with Transport(endpoint) as transport:
                for _ in range(2):
                    assert (await transport.request("GET", "/x")).body == b"{}"
    assert len(proxy.asked) == 1
    assert proxy.asked[0].startswith("CONNECT api.test:6443 HTTP/1.1\r\nHost: api.test:6443\r\n")
    assert "\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n" in proxy.asked[0]


async def test_a_proxy_that_refuses_is_quoted(credentials):
    proxy = Proxy(1, refuses=b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
    async with listening(proxy) as port:
        endpoint = Endpoint(
            "https://api.test", tls=trusting(credentials), proxy=f"http://{HOST}:{port}"
        )
        async with Transport(endpoint) as transport:
            with pytest.raises(TransportError, match="407 Proxy Authentication Required"):
                await transport.request("GET", "/x")


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", ""])
async def test_a_proxy_that_is_away_is_named(credentials, monkeypatch, variable):
    with socket.socket() as closed:
        closed.bind((HOST, 0))
        place = f"{HOST}:{closed.getsockname()[1]}"
        for name in ("HTTP_PROXY", variable or "OTHER"):
            monkeypatch.setenv(name, f"http://me:secret@{place}")
        proxy = f"http://me:secret@{place}"
        endpoint = Endpoint("https://api.test", tls=trusting(credentials), proxy=proxy)
        named = (
            f"the proxy http://{place} of {variable or 'the configuration'} (Connection refused)"
        )
        async with Client(Transport(endpoint)) as client:
            with pytest.raises(NotConnected) as away:
                await client.get(PODS, ObjectKey("ns", "a"))
            assert with_fix(away.value) == (
                f"https://api.test: no connection through {named}; "
                "check this proxy, or name the server in the variable NO_PROXY"
            )
            for starting, said in ((False, f"no connection through {named}"), (True, named)):
                with pytest.raises(ConfigError) as wrong:
                    await wait_for_server(client, 0.0, starting=starting)
                assert said in wrong.value.problem
                assert wrong.value.fix.startswith("check this proxy")


async def test_another_address_is_tried_when_one_is_dead(monkeypatch):
    async with listening(answering) as port:
        with socket.socket() as closed:
            closed.bind((HOST, 0))
            dead = closed.getsockname()

            async def found(*_, **__):
                return [
                    (socket.AF_INET, socket.SOCK_STREAM, 6, "", address)
                    for address in (dead, (HOST, port))
                ]

            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
            async with asyncio.timeout(20):
                sock = await reached("api.test", port)
            assert sock.getpeername() == (HOST, port)
            sock.close()


async def test_an_address_that_does_not_answer_holds_nothing_up(monkeypatch):
    monkeypatch.setattr(dialling, "NEXT_ADDRESS", 0.05)
    loop, waiting = asyncio.get_running_loop(), []
    connect = loop.sock_connect

    async def slow(sock, address):
        if address[1] == 1:
            waiting.append(sock)
            await asyncio.sleep(3600)
        await connect(sock, address)

    async with listening(answering) as port:

        async def found(*_, **__):
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (HOST, one)) for one in (1, port)]

        monkeypatch.setattr(loop, "getaddrinfo", found)
        monkeypatch.setattr(loop, "sock_connect", slow)
        async with asyncio.timeout(20):
            (await reached("api.test", port)).close()
        await asyncio.sleep(0.05)
        assert [each.fileno() for each in waiting] == [-1]


async def test_of_two_addresses_that_answer_at_once_one_is_closed(monkeypatch):
    monkeypatch.setattr(dialling, "NEXT_ADDRESS", 0.01)
    loop, made, both = asyncio.get_running_loop(), [], asyncio.Event()

    async def connect(sock, _):
        made.append(sock)
        if len(made) == 2:
            both.set()
        await both.wait()

    async def found(*_, **__):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (HOST, one)) for one in (1, 2)]

    monkeypatch.setattr(loop, "getaddrinfo", found)
    monkeypatch.setattr(loop, "sock_connect", connect)
    async with asyncio.timeout(20):
        sock = await reached("api.test", 1)
    assert [each.fileno() >= 0 for each in made] == [each is sock for each in made]
    sock.close()


async def test_families_are_tried_by_turns():
    six, four = (socket.AF_INET6, 6), (socket.AF_INET, 4)
    assert dialling.by_turns([six, six, four, four]) == [six, four, six, four]


async def test_a_server_that_does_not_answer_in_time_is_not_connected(monkeypatch):
    monkeypatch.setattr(dialling, "CONNECT_TIMEOUT", 0.05)

    async def silent(_, __):
        await asyncio.sleep(3600)

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", silent)
    async with Transport(Endpoint(f"http://{HOST}:1")) as transport:
        with pytest.raises(NotConnected, match="not in time"):
            await transport.request("GET", "/x")


async def test_a_call_that_is_cancelled_while_it_connects_leaves_no_error_behind(credentials):
    """asyncio logs the error of a future that nobody awaited, when it is collected."""
    left = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: left.append(context["message"]))
    async with listening(answering, credentials.server_context()) as port:
        endpoint = Endpoint(f"https://{HOST}:{port}", tls=trusting(credentials))
        for steps in range(40):
            async with Transport(endpoint) as transport:
                call = asyncio.ensure_future(transport.request("GET", "/x"))
                for _ in range(steps):
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
            await asyncio.sleep(0.01)
    gc.collect()
    assert left == []
