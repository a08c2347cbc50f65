"""Limits for the connections of web servers: their number, and how long one may be silent."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

from aiohttp import HttpVersion11, web

from kueuelib.errors import ApiError, TooLarge, TooManyRequests
from kueuelib.runtime.memory import give_back
from kueuelib.runtime.patience import PatientTls
from kueuelib.runtime.quiet import FULL, Sparse

SILENT_SECONDS = 32.0
"""Seconds for a TLS handshake, the head of a request, and a body, as in kube-apiserver."""
LINGERING: Final = 1 / 16
"""The part of that time in which a client may still send what is no longer read."""
IDLE_SECONDS = 120.0
"""Seconds that a connection may be idle between requests; Go clients close it after 90."""
FAREWELL_SECONDS = 5.0
"""Seconds that a client may take to confirm the end of TLS."""
MOST: Final = 4096
"""The maximum number of open connections of a server, or half the process's file limit if that
is less.
"""
MADE_ROOM: Final = 16
"""When there are too many connections, one in this many is closed."""
CROWD: Final = 256
"""The number of connections whose memory is worth giving back."""
BACKLOG: Final = 1024
BUFFER: Final = 32 * 1024
_HEAD: Final = 5
"""Bytes of the head of a TLS record."""
_PLAIN: Final = frozenset(
    (b"GET /", b"HEAD ", b"POST ", b"PUT /", b"PATCH", b"DELET", b"OPTIO", b"CONNE", b"TRACE")
)
_TOLD: Final = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
_LOG: Final = logging.getLogger("kueuelib.connections")
_REPEATING: Final = (_LOG, logging.getLogger("asyncio"))
"""Loggers whose lines may come in any number."""


class _Outer(Protocol):
    """The outermost protocol on a socket."""

    @property
    def rests_since(self) -> float | None:
        """Since when it is idle, in seconds of the loop; None while it is working."""
        ...

    def cut_off(self) -> None:
        """Closes it at once, without an answer."""
        ...


class Slots:
    """The open connections of one server.

    Args:
        most: the maximum number at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[_Outer, None] = {}
        self._crowd = 0

    def enter(self, one: _Outer) -> bool:
        """Counts one more connection; idle ones may be closed for it, the longest idle first.

        Returns:
            False if there is no room, because all are working.
        """
        if len(self._open) >= self._most:
            since = {each: each.rests_since for each in self._open}
            resting = [
                (at, i, each) for i, (each, at) in enumerate(since.items()) if at is not None
            ]
            for _, _, each in sorted(resting)[: max(1, self._most // MADE_ROOM)]:
                del self._open[each]
                each.cut_off()
            _LOG.warning(FULL)
        if len(self._open) >= self._most:
            return False
        self._open[one] = None
        self._crowd = max(self._crowd, len(self._open))
        return True

    def leave(self, one: _Outer) -> None:
        """Counts a connection off; after a crowd, its memory is given back."""
        self._open.pop(one, None)
        if self._crowd >= CROWD and len(self._open) <= self._crowd // 4:
            self._crowd = len(self._open)
            asyncio.get_running_loop().call_later(1.0, give_back)


class Connection(web.RequestHandler):
    """HTTP on one connection."""

    __slots__ = ("_born", "_expected", "_outermost", "_patient_until", "_room", "_silence")

    def __init__(
        self, server: web.Server, room: Slots, *, outermost: bool, loop: asyncio.AbstractEventLoop
    ) -> None:
        kept = server._kwargs  # noqa: SLF001 - aiohttp has no other way to connections of our own
        limits = {"keepalive_timeout": IDLE_SECONDS, "lingering_time": SILENT_SECONDS * LINGERING}
        super().__init__(server, loop=loop, **{**kept, **limits})
        self._room = room
        self._outermost = outermost
        self._born = loop.time()
        self._expected = -1
        self._patient_until = 0.0
        self._silence: asyncio.TimerHandle | None = None

    @property
    def rests_since(self) -> float | None:
        """Since when it is idle, in seconds of the loop; None while it is working."""
        if self._request_in_progress or self._messages:
            return None
        return max(self._born, self._next_keepalive_close_time - IDLE_SECONDS)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins to wait for a request."""
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            # What is sent has to be taken.
            limit = int(SILENT_SECONDS * 1000)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit)
        assert self.transport is not None  # on uvloop it is not an asyncio.WriteTransport
        self.transport.set_write_buffer_limits(high=2 * BUFFER)
        self._expect()
        if self._outermost and not self._room.enter(self):
            self.cut_off()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forgets the connection."""
        if self._silence is not None:
            self._silence.cancel()
        self._room.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Begins to wait for the rest when this is the beginning of a request."""
        super().data_received(data)
        waiter = self._waiter
        if waiter is not None and not waiter.done() and self._expected != self._request_count:
            self._expect()

    def cut_off(self) -> None:
        """Closes it at once, without an answer."""
        if self.transport is not None:
            self.transport.abort()

    def _expect(self) -> None:
        self._expected = self._request_count
        self._patient_until = self._loop.time() + SILENT_SECONDS
        if self._silence is None:  # one timer for many requests
            self._silence = self._loop.call_at(self._patient_until, self._look)

    def _look(self) -> None:
        self._silence = None
        if self._loop.time() < self._patient_until:
            self._silence = self._loop.call_at(self._patient_until, self._look)
        elif self._request_count == self._expected:
            self.cut_off()


class _Arrival(asyncio.Protocol):
    """Waits for the end of the handshake; only then HTTP begins.

    Args:
        make: makes the HTTP protocol.
    """

    def __init__(self, make: Callable[[], Connection]) -> None:
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hands over to the protocol behind TLS."""
        connection = self._make()
        transport.set_protocol(connection)
        connection.connection_made(transport)


class _Tls(PatientTls):
    """TLS of one connection; by default each would keep a buffer of 256 KiB."""

    max_size = BUFFER

    def __init__(
        self,
        make: Callable[[], Connection],
        context: ssl.SSLContext,
        room: Slots,
        buffer: bytearray,
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            loop,
            _Arrival(make),
            context,
            waiter=None,  # type: ignore[arg-type]  # typeshed wants one
            server_side=True,
            ssl_handshake_timeout=SILENT_SECONDS,  # type: ignore[arg-type]
            ssl_shutdown_timeout=FAREWELL_SECONDS,
        )
        # A loop reads into the buffer and hands it over in one step, so one is enough for all.
        self._ssl_buffer, self._ssl_buffer_view = buffer, memoryview(buffer)
        self._born = loop.time()
        self._room = room
        self._silent = True

    @property
    def rests_since(self) -> float | None:
        """Since when it is idle, in seconds of the loop; None while it is working."""
        inner = self._app_protocol
        return inner.rests_since if isinstance(inner, Connection) else self._born

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins the handshake, if there is room."""
        super().connection_made(transport)
        if not self._room.enter(self):
            self.cut_off()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forgets the connection."""
        self._room.leave(self)
        super().connection_lost(exc)

    def buffer_updated(self, nbytes: int) -> None:
        """Takes received bytes; a client that begins with plain HTTP gets an answer about TLS."""
        begins, self._silent = self._silent, False
        plain = begins and bytes(self._ssl_buffer_view[:_HEAD]) in _PLAIN
        if plain and isinstance(self._transport, asyncio.WriteTransport):
            self._transport.write(_TOLD)
            self._transport.close()
        else:
            super().buffer_updated(nbytes)

    def cut_off(self) -> None:
        """Closes it at once, without an answer."""
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.abort()


class Site(web.BaseSite):
    """Accepts connections, from a socket or at an address.

    Args:
        runner: of the server.
        where: a socket that listens, or host and port; no host: all addresses.
        tls: for https.
        connection: what speaks HTTP.
    """

    def __init__(
        self,
        runner: web.BaseRunner,
        where: socket.socket | tuple[str | None, int],
        tls: ssl.SSLContext | None,
        connection: Callable[..., Connection] = Connection,
    ) -> None:
        super().__init__(runner, ssl_context=tls, backlog=BACKLOG)
        self._where = where
        self._connection = connection
        self._room = Slots(_most())
        self._sparse = Sparse()

    @property
    def name(self) -> str:
        """The address."""
        return str(self._where)

    async def start(self) -> None:
        """Begins to listen."""
        await super().start()
        for each in _REPEATING:
            each.addFilter(self._sparse)
        loop, server, tls = asyncio.get_running_loop(), self._runner.server, self._ssl_context
        assert server is not None
        ours = tls is not None and isinstance(loop, asyncio.SelectorEventLoop)
        buffer = bytearray(BUFFER)

        def connection() -> Connection:
            return self._connection(server, self._room, outermost=not ours, loop=loop)

        def outer() -> asyncio.BaseProtocol:
            if tls is None or not ours:
                return connection()
            return _Tls(connection, tls, self._room, buffer)

        # Loops other than asyncio's have their own TLS.
        options: dict[str, Any] = {"backlog": BACKLOG}
        if tls is not None and not ours:
            options |= {"ssl": tls, "ssl_handshake_timeout": SILENT_SECONDS}
        if isinstance(self._where, tuple):
            host, port = self._where
            self._server = await loop.create_server(outer, host, port, **options)
        else:
            self._server = await loop.create_server(outer, sock=self._where, **options)

    async def stop(self) -> None:
        """Takes no more connections."""
        for each in _REPEATING:
            each.removeFilter(self._sparse)
        await super().stop()


def _most() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else min(MOST, max(1, files // 2))


async def body_of(request: web.BaseRequest) -> bytes:
    """The whole body of a request.

    Raises:
        ApiError: it does not come in time.
    """
    try:
        async with asyncio.timeout(SILENT_SECONDS * (1 - LINGERING)):
            await _invite(request)
            return await request.read()
    except TimeoutError as error:
        raise _missing() from error


class Bodies:
    """The bodies that a server holds, limited in bytes.

    Args:
        most: bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0

    @asynccontextmanager
    async def read(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        """The whole body of a request, which counts until the context is left.

        Raises:
            ApiError: it does not come in time, is too large, or there are too many others.
        """
        size = 0

        def note(part: bytes) -> None:
            nonlocal size
            size += len(part)
            self._held += len(part)
            if size > request.client_max_size:
                raise TooLarge(f"the body has more than {request.client_max_size} bytes")
            if self._held > self._most:
                raise TooManyRequests("too many large bodies at once, please try again later")

        try:
            yield await _noted(request, note)
        finally:
            self._held -= size


async def _noted(request: web.BaseRequest, note: Callable[[bytes], None]) -> bytes:
    parts: list[bytes] = []
    try:
        async with asyncio.timeout(SILENT_SECONDS * (1 - LINGERING)):
            await _invite(request)
            while part := await request.content.readany():
                note(part)
                parts.append(part)
    except (TimeoutError, ConnectionError) as error:
        raise _missing() from error
    return b"".join(parts)


async def _invite(request: web.BaseRequest) -> None:
    """Says that the body may come, to a client that waits for that.

    Raises:
        ApiError: it waits for something else.
    """
    expected = request.headers.get("Expect", "").lower()
    if expected not in ("", "100-continue"):
        raise ApiError(f"the expectation {expected!r} is not supported", code=417, reason="")
    if expected and request.version >= HttpVersion11 and request.can_read_body:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


def _missing() -> ApiError:
    return ApiError("the body of the request did not arrive", code=408, reason="")
