"""Limits of our web servers: the connections, the silence and the requests of their clients."""

from __future__ import annotations

import asyncio
import logging
import math
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import anyio
from aiohttp import HttpVersion11, web

from kueuelib.errors import ApiError, TooLarge, TooManyRequests
from kueuelib.runtime.entry import give_back
from kueuelib.runtime.logs import FULL, LogRateLimiter
from kueuelib.runtime.tls_layer import BUFFER, TlsLayer

# ---- how long a server waits for a client that does not read -------------------------------------

PATIENCE_SECONDS = 30.0
"""Seconds after which a connection is closed whose client takes nothing of what is sent."""


class WriteTimeout:
    """Closes a connection when what is sent is not taken.

    Args:
        transport: of the connection.
    """

    __slots__ = ("_timer", "_transport", "_unsent")

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = 0

    def begin(self) -> None:
        """Wait for the client."""
        self._unsent = self._transport.get_write_buffer_size()
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._look)

    def end(self) -> None:
        """The client has read, or the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if self._transport.get_write_buffer_size() >= self._unsent:
            self._transport.abort()
        else:
            self.begin()


# ---- the open connections of a server: their number, and which of them make room -----------------

MADE_ROOM: Final = 16
"""When there are too many connections, one in this many is closed."""
CROWD: Final = 256
"""The number of connections whose memory is worth giving back."""
LOG: Final = logging.getLogger("kueuelib.connections")


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
            LOG.warning(FULL)
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


# --------------------------------------------------------------------------------------------------

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
BACKLOG: Final = 1024
_NEVER: Final = 50 * 86_400
"""Seconds after which aiohttp would close an idle connection, which is done here."""
_HEAD: Final = 5
"""Bytes of the head of a TLS record."""
_PLAIN: Final = frozenset(
    (b"GET /", b"HEAD ", b"POST ", b"PUT /", b"PATCH", b"DELET", b"OPTIO", b"CONNE", b"TRACE")
)
_TOLD: Final = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
_REPEATING: Final = (LOG, logging.getLogger("asyncio"))
"""Loggers whose lines may come in any number."""


class Connection(web.RequestHandler):
    """HTTP on one connection.

    Args:
        server: answers.
        room: the open connections.
        outermost: whether it is not behind TLS.
        loop: the event loop.
        options: of aiohttp.

    Attributes:
        asks: whether the head of a request has to come.
        now: the clock of the loop.
    """

    __slots__ = (
        "_at_work",
        "_deadline",
        "_flow",
        "_outermost",
        "_room",
        "_since",
        "_timer",
        "asks",
        "now",
    )

    def __init__(
        self,
        server: web.Server,
        room: Slots,
        *,
        outermost: bool,
        loop: asyncio.AbstractEventLoop,
        **options: Any,
    ) -> None:
        limits = {"keepalive_timeout": _NEVER, "lingering_time": SILENT_SECONDS * LINGERING}
        super().__init__(server, loop=loop, **{"access_log": None, **limits, **options})
        self._room = room
        self._outermost = outermost
        self.now = loop.time
        self._since = loop.time()
        self._at_work = 0  # requests that are not answered
        self.asks = True
        self._flow: asyncio.Event | None = None  # set when the client reads again
        self._deadline = math.inf
        self._timer: asyncio.TimerHandle | None = None

    @property
    def rests_since(self) -> float | None:
        """Since when it is idle, in seconds of the loop; None while it is working."""
        return None if self._at_work else self._since

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
        self._deadline = self.now() + SILENT_SECONDS
        self._look()
        if self._outermost and not self._room.enter(self):
            self.cut_off()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forgets the connection."""
        if self._timer is not None:
            self._timer.cancel()
        self._room.leave(self)
        self._release()
        super().connection_lost(exc)

    @property
    def flows(self) -> bool:
        """Whether the client takes what is sent."""
        return self._flow is None

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        super().pause_writing()
        self._flow = asyncio.Event()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._release()

    async def drained(self) -> None:
        """Wait until the client takes what is sent.

        Raises:
            ConnectionResetError: it is gone.
        """
        while self._flow is not None:
            await self._flow.wait()
        if self.transport is None:
            raise ConnectionResetError("the connection is closed")

    def _release(self) -> None:
        flow, self._flow = self._flow, None
        if flow is not None:
            flow.set()

    def data_received(self, data: bytes) -> None:
        """Begins to wait for the rest when this is the beginning of a request."""
        super().data_received(data)
        if not self.asks and not self._at_work:
            self.asked()

    def asked(self) -> None:
        """The head of a request has begun to come."""
        self.asks = True
        self._since = self.now()
        self._deadline = self._since + SILENT_SECONDS

    def begins(self) -> None:
        """A request is about to be answered."""
        self._at_work += 1
        self.asks = False
        self._deadline = math.inf

    def rests(self) -> None:
        """A request was answered."""
        self.asks = False
        self._since = self.now()
        self._deadline = self._since + IDLE_SECONDS

    def log_access(
        self, request: web.BaseRequest, response: web.StreamResponse, time: float | None
    ) -> None:
        """Aiohttp calls this after every answer."""
        del request, response, time
        self._at_work -= 1
        self.rests()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers malformed requests, without a report, and requests that failed."""
        if status != 400:
            return super().handle_error(request, status, exc, message)
        response = self.malformed()
        response.force_close()
        return response

    def malformed(self) -> web.StreamResponse:
        """The answer to a malformed request."""
        return web.Response(status=400, text="the request is malformed")

    def cut_off(self) -> None:
        """Closes it at once, without an answer."""
        if self.transport is not None:
            self.transport.abort()

    def wait_for_reader(self) -> None:
        """Keeps it from now on although its client does not read, as one that shows a log."""
        transport = self.transport
        sock = None if transport is None else transport.get_extra_info("socket")
        if sock is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)
        if isinstance(transport, _Tls):
            transport.wait_for_reader()

    def _look(self) -> None:
        """One timer for many requests: a deadline is not moved, but looked at."""
        now = self.now()
        if now >= self._deadline:
            self.cut_off()
            return
        at = min(self._deadline, now + SILENT_SECONDS)
        self._timer = asyncio.get_running_loop().call_at(at, self._look)


class _Tls(TlsLayer):
    """TLS of one connection."""

    __slots__ = ("_born", "_endless", "_patience", "_room", "_silent")

    def __init__(
        self,
        make: Callable[[], Connection],
        context: ssl.SSLContext,
        room: Slots,
        buffer: bytearray,
    ) -> None:
        super().__init__(
            make,
            context,
            buffer,
            server_side=True,
            handshake_seconds=SILENT_SECONDS,
            farewell_seconds=FAREWELL_SECONDS,
        )
        self._born = asyncio.get_running_loop().time()
        self._patience: WriteTimeout | None = None
        self._endless = False
        self._room = room
        self._silent = True

    @property
    def rests_since(self) -> float | None:
        """Since when it is idle, in seconds of the loop; None while it is working."""
        inner = self.above
        return inner.rests_since if isinstance(inner, Connection) else self._born

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins the handshake, if there is room."""
        super().connection_made(transport)
        if not self._room.enter(self):
            self.cut_off()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        if self._patience is not None:
            self._patience.end()
        self._room.leave(self)
        super().connection_lost(exc)

    def buffer_updated(self, nbytes: int) -> None:
        """Takes received bytes; a client that begins with plain HTTP gets an answer about TLS."""
        begins, self._silent = self._silent, False
        if begins and bytes(self.received[:_HEAD]) in _PLAIN:
            self.refuse(_TOLD)
        else:
            super().buffer_updated(nbytes)

    def pause_writing(self) -> None:
        """Begins to wait for a client that does not read."""
        super().pause_writing()
        if self._endless:
            return
        if self._patience is None:
            self._patience = WriteTimeout(self)
        self._patience.begin()

    def wait_for_reader(self) -> None:
        """Keeps it from now on although its client does not read."""
        self._endless = True
        if self._patience is not None:
            self._patience.end()

    def resume_writing(self) -> None:
        """Ends to wait, as the client has read."""
        if self._patience is not None:
            self._patience.end()
        super().resume_writing()

    def cut_off(self) -> None:
        """Closes it at once, without an answer."""
        self.abort()


class Site:
    """Accepts connections, from a socket or at an address.

    Args:
        server: answers requests.
        where: a socket that listens, or host and port; no host: all addresses.
        tls: for https.
        connection: what speaks HTTP.
    """

    def __init__(
        self,
        server: web.Server,
        where: socket.socket | tuple[str | None, int],
        tls: ssl.SSLContext | None,
        connection: Callable[..., Connection] = Connection,
    ) -> None:
        self._web = server
        self._where = where
        self._tls = tls
        self._connection = connection
        self._listener: asyncio.Server | None = None
        self._room = Slots(_most())
        self._sparse = LogRateLimiter()

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._listener is not None, "the site has started"
        return int(self._listener.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Begins to listen."""
        for each in _REPEATING:
            each.addFilter(self._sparse)
        self._web.request_factory = _noted_by_connections(self._web.request_factory)
        loop, tls = asyncio.get_running_loop(), self._tls
        ours = tls is not None and isinstance(loop, asyncio.SelectorEventLoop)
        buffer = bytearray(BUFFER)

        def connection() -> Connection:
            return self._connection(self._web, self._room, outermost=not ours, loop=loop)

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
            self._listener = await loop.create_server(outer, host, port, **options)
        else:
            self._listener = await loop.create_server(outer, sock=self._where, **options)

    def stop(self) -> None:
        """Takes no more connections."""
        for each in _REPEATING:
            each.removeFilter(self._sparse)
        if self._listener is not None:
            self._listener.close()


def _noted_by_connections(make: Callable[..., Any]) -> Callable[..., Any]:
    """A factory of requests that counts them on their connections."""

    def made(message: Any, payload: Any, protocol: Connection, *rest: Any) -> Any:
        protocol.begins()
        return make(message, payload, protocol, *rest)

    return made


def _most() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else min(MOST, max(1, files // 2))


# ---- the bodies of requests to our servers: limited in bytes and time ----------------------------


async def body_of(request: web.BaseRequest) -> bytes:
    """The whole body of a request.

    Raises:
        ApiError: it does not come in time.
    """
    try:
        with anyio.fail_after(SILENT_SECONDS * (1 - LINGERING)):
            _invite(request)
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
        with anyio.fail_after(SILENT_SECONDS * (1 - LINGERING)):
            _invite(request)
            while part := await request.content.readany():
                note(part)
                parts.append(part)
    except (TimeoutError, ConnectionError) as error:
        raise _missing() from error
    return b"".join(parts)


def _invite(request: web.BaseRequest) -> None:
    """Says that the body may come, to a client that waits for that.

    Raises:
        ApiError: it waits for something else.
    """
    expected = request.headers.get("Expect", "").lower()
    if expected not in ("", "100-continue"):
        raise ApiError(f"the expectation {expected!r} is not supported", code=417, reason="")
    transport = request.transport
    waits = expected and request.version >= HttpVersion11 and request.can_read_body
    if waits and transport is not None:
        transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def _missing() -> ApiError:
    return ApiError("the body of the request did not arrive", code=408, reason="")
