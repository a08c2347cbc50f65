"""Connections to a server: its addresses, sockets, proxies and TLS."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

import anyio

from kueuelib.runtime.endpoint import Endpoint, named_proxy
from kueuelib.runtime.network_errors import NoConnection, NoProxy, NoTls, NotTrusted, fail
from kueuelib.runtime.tls_layer import BUFFER, TlsLayer

CONNECT_TIMEOUT = 10.0
"""Seconds for name resolution, TCP and TLS."""
NEXT_ADDRESS: Final = 0.25
"""Seconds after which the next address of a server is tried beside the one before."""
FAREWELL_SECONDS: Final = 1.0
_MOST_HEAD: Final = 2**16
_ACCEPTED: Final = re.compile(rb"HTTP/1\.[01] 2\d\d[ \r]")
P = TypeVar("P", bound=asyncio.Protocol)
Address = tuple[Any, ...]


class Dialler:
    """Connects to one endpoint.

    Args:
        endpoint: says where it is, and how to connect.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._server = urlsplit(endpoint.url)
        self._name = endpoint.server_hostname or self._server.hostname or ""
        self._tls = None
        if self._server.scheme == "https":
            self._tls = endpoint.tls or ssl.create_default_context()
        self._proxy = None if endpoint.proxy is None else urlsplit(endpoint.proxy)
        self._through = ""
        if endpoint.proxy is not None:
            self._through = named_proxy(endpoint.proxy, self._server.scheme)
        self._buffer = bytearray(BUFFER)

    async def connect(self, make: Callable[[], P]) -> P:
        """A connection that is ready for a request.

        Args:
            make: makes the protocol.

        Raises:
            NoConnection: there is none, or not in time.
        """
        try:
            with anyio.fail_after(CONNECT_TIMEOUT):
                if self._proxy is not None:
                    return await self._connect_by_proxy(self._proxy, make)
                sock = await reached(*host_and_port(self._server))
                return await self._secured(sock, self._tls, self._name, make)
        except ssl.SSLCertVerificationError as error:
            raise NotTrusted(error) from error
        except ssl.SSLError as error:
            raise NoTls(error) from error
        except OSError as error:
            if self._through:
                raise NoProxy(error, self._through) from error
            raise NoConnection(error) from error

    async def _connect_by_proxy(self, proxy: SplitResult, make: Callable[[], P]) -> P:
        sock = await reached(*host_and_port(proxy))
        context = ssl.create_default_context() if proxy.scheme == "https" else None
        if self._tls is None:
            return await self._secured(sock, context, proxy.hostname or "", make)
        tunnel = await self._secured(sock, context, proxy.hostname or "", _Tunnel)
        try:
            await tunnel.open(self._server, credentials_of(proxy))
            ready, protocol = asyncio.get_running_loop().create_future(), make()
            layer = self._layer(lambda: protocol, self._tls, self._name, ready)
            transport = tunnel.transport
            transport.set_protocol(layer)
            layer.connection_made(transport)
            await ready
        except BaseException:
            tunnel.transport.abort()
            raise
        return protocol

    async def _secured(
        self,
        sock: socket.socket,
        context: ssl.SSLContext | None,
        name: str,
        make: Callable[[], P],
    ) -> P:
        """A protocol on a connected socket, behind TLS if there is a context."""
        loop = asyncio.get_running_loop()
        try:
            if context is None:
                return (await loop.create_connection(make, sock=sock))[1]
            if not isinstance(loop, asyncio.SelectorEventLoop):  # it has its own TLS
                made = loop.create_connection(make, sock=sock, ssl=context, server_hostname=name)
                return (await made)[1]
            ready, protocol = loop.create_future(), make()
            transport, _ = await loop.create_connection(
                lambda: self._layer(lambda: protocol, context, name, ready), sock=sock
            )
        except BaseException:
            sock.close()
            raise
        try:
            await ready
        except BaseException:
            transport.abort()
            raise
        return protocol

    def _layer(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        name: str,
        ready: asyncio.Future[None],
    ) -> TlsLayer:
        return TlsLayer(
            make,
            context,
            self._buffer,
            server_hostname=name,
            handshake_seconds=CONNECT_TIMEOUT,
            farewell_seconds=FAREWELL_SECONDS,
            ready=ready,
        )


class _Tunnel(asyncio.Protocol):
    """Asks a proxy for a connection to a server."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._got = b""
        self._answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def open(self, server: SplitResult, credentials: str) -> None:
        """Let the proxy connect.

        Raises:
            OSError: it does not.
        """
        host, port = host_and_port(server)
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
        if credentials:
            lines.append(f"Proxy-Authorization: {credentials}")
        self.transport.write("\r\n".join((*lines, "", "")).encode())
        answer = await self._answered
        if not _ACCEPTED.match(answer):
            first = answer.partition(b"\r\n")[0].decode("utf-8", "replace")
            raise OSError(f"the proxy answered {first[:200]!r}")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins."""
        self.transport = transport  # type: ignore[assignment]  # uvloop has its own classes

    def data_received(self, data: bytes) -> None:
        """Takes a part of the answer."""
        self._got += data
        whole = b"\r\n\r\n" in self._got or len(self._got) > _MOST_HEAD
        if whole and not self._answered.done():
            self._answered.set_result(self._got)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the wait for an answer."""
        if not self._answered.done():
            fail(self._answered, exc or ConnectionResetError("the proxy disconnected"))


async def reached(host: str, port: int) -> socket.socket:
    """A socket that is connected to a host.

    Raises:
        OSError: none of its addresses can be reached.
    """
    loop = asyncio.get_running_loop()
    addresses: Sequence[Address]
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        addresses = [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
    except ValueError:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if len(addresses) == 1:
        return await _reach(addresses[0])
    return await _first_reached(by_turns(addresses))


async def _first_reached(addresses: Sequence[Address]) -> socket.socket:
    """The first that answers; each is tried when the one before has failed, or takes its time."""
    failure = OSError("it has no address")
    reached: list[socket.socket] = []

    async def attempt(address: Address, over: anyio.Event) -> None:
        nonlocal failure
        try:
            reached.append(await _reach(address))
            group.cancel_scope.cancel()
        except OSError as error:
            failure = error
        finally:
            over.set()

    try:
        async with anyio.create_task_group() as group:
            for address in addresses:
                over = anyio.Event()
                group.start_soon(attempt, address, over)
                with anyio.move_on_after(NEXT_ADDRESS):
                    await over.wait()
        if not reached:
            raise failure
        return reached.pop(0)
    finally:
        for sock in reached:  # too late, or cancelled
            sock.close()


def by_turns(addresses: Sequence[Address]) -> list[Address]:
    """The addresses, families by turns."""
    families = list(dict.fromkeys(each[0] for each in addresses))
    ranked = [[each for each in addresses if each[0] == family] for family in families]
    longest = max(map(len, ranked))
    return [each[i] for i in range(longest) for each in ranked if i < len(each)]


async def _reach(address: Address) -> socket.socket:
    sock = new_socket(address)
    try:
        await asyncio.get_running_loop().sock_connect(sock, address[4])
    except BaseException:
        sock.close()
        raise
    return sock


def new_socket(address: Address) -> socket.socket:
    """A socket that detects the loss of the other machine within a minute."""
    sock = socket.socket(family=address[0], type=address[1], proto=address[2])
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_NODELAY", 1),
        ("TCP_KEEPIDLE", 30),
        ("TCP_KEEPINTVL", 10),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 60_000),
    ):
        if hasattr(socket, option):
            with suppress(OSError):  # an odd kernel
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return sock


def host_and_port(url: SplitResult) -> tuple[str, int]:
    """Where a URL leads."""
    return url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


def credentials_of(url: SplitResult) -> str:
    """The credentials in a URL, as the value of a header; empty if there are none."""
    if not url.username:
        return ""
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return f"Basic {b64encode(pair.encode()).decode()}"
