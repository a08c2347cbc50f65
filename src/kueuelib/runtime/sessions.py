"""Requests to one endpoint, over connections that aiohttp keeps.

aiohttp's own client adds a URL, a request, a task and a response with cookies, redirects and
traces to every call. That takes more time than all that is left here.
"""

from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDictProxy
from yarl import URL

from kueuelib.errors import TransportError
from kueuelib.runtime.bodies import in_words
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.exchange import Exchange, Headers

CALL_CONNECTIONS = 32
"""Connections for calls; watches have as many as they need."""
CONNECT_TIMEOUT = 10.0
"""Seconds for name resolution, TCP and TLS."""
SPARE = 8
"""Connections that pass from call to call without aiohttp, which takes more time for that."""
KEPT_SECONDS = 30.0
"""How long a connection may rest and still be used."""
LARGE_BODY = 2**20
"""Bodies of more bytes are sent in pieces, so that the event loop is not held up."""
_PIECE: Final = 2**16
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)
_REPEATABLE: Final = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")
"""Methods that are sent again if the server closed the connection instead of answering."""


class Answer:
    """An answer whose body is still to come; it holds its connection until `release`.

    Attributes:
        host: the server.
        url: what was asked.
        status: the HTTP status.
        headers: all headers.
        content: the body, or the stream from which it comes.
    """

    __slots__ = ("_connection", "_keep", "_leave", "content", "headers", "host", "status", "url")

    def __init__(
        self,
        host: str,
        url: str,
        connection: aiohttp.connector.Connection,
        keep: Callable[[aiohttp.connector.Connection], None],
        status: int,
        headers: Headers,
        content: Any,
    ) -> None:
        self.host, self.url = host, url
        self.status, self.headers = status, headers
        self.content: aiohttp.StreamReader | bytes = content
        self._connection: aiohttp.connector.Connection | None = connection
        self._keep = keep
        self._leave: Callable[[], Awaitable[None]] | None = None

    def held_by(self, leave: Callable[[], Awaitable[None]]) -> Answer:
        """Let `release` call a function, once."""
        self._leave = leave
        return self

    async def read(self) -> bytes:
        """The whole body; the connection may be used again.

        Raises:
            TransportError: it does not arrive.
        """
        try:
            content = self.content
            body = content if isinstance(content, bytes) else await content.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransportError(self.url, in_words(error)) from error
        if self._connection is not None:
            self._keep(self._connection)
            self._connection = None
        return body

    async def release(self) -> None:
        """Close the connection unless the body was read; calling again does nothing."""
        leave, self._leave = self._leave, None
        if leave is not None:
            if self._connection is not None:
                _drop(self._connection)
            await leave()


class Session:
    """Sends requests to one endpoint.

    Args:
        endpoint: says where it is, and how to connect.
        user_agent: the `User-Agent` header.
    """

    def __init__(self, endpoint: Endpoint, user_agent: str) -> None:
        self._user_agent = user_agent
        self._connector = aiohttp.TCPConnector(
            limit=0,
            ssl=endpoint.tls or True,
            socket_factory=_socket,
            keepalive_timeout=KEPT_SECONDS,
        )
        self._loop = asyncio.get_running_loop()
        self._spare: list[tuple[aiohttp.connector.Connection, float]] = []
        made = partial(Exchange, self._loop)
        # aiohttp has no other way to protocols of our own.
        self._connector._factory = cast("partial[ResponseHandler]", made)  # noqa: SLF001
        self._prepare(endpoint)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._connector.closed

    async def close(self) -> None:
        """Close every connection now."""
        self.drop_spare()
        await self._connector.close()

    def drop_spare(self) -> None:
        """Close the connections that rest."""
        while self._spare:
            _drop(self._spare.pop()[0])

    async def send(
        self,
        endpoint: Endpoint,
        method: str,
        target: str,
        body: bytes | None,
        content_type: str,
        accept: str,
        *,
        streams: bool = False,
    ) -> Answer:
        """Send a request; the answer has arrived up to its headers.

        Args:
            endpoint: where to, with the credentials of the moment.
            method: the HTTP method.
            target: path and query under the endpoint's URL, quoted.
            body: what to send.
            content_type: its type.
            accept: types that the answer may have.
            streams: whether the answer is to be read while it comes.

        Raises:
            ClientError: there is no connection, or no answer.
            OSError: the same.
        """
        if endpoint is not self._endpoint:
            self._prepare(endpoint)
        head = f"{method} {self._base}{target} HTTP/1.1\r\n{self._headers}Accept: {accept}\r\n"
        if body is not None:
            head += f"Content-Type: {content_type}\r\n"
        if body is not None or method not in ("GET", "HEAD"):
            head += f"Content-Length: {len(body or b'')}\r\n"
        request = f"{head}\r\n".encode() + (body or b"")
        url = f"{endpoint.url}{target}"
        try:
            return await self._exchange(url, method, request, streams=streams)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            if method not in _REPEATABLE:
                raise
            self.drop_spare()  # they may have ended in the same way
            return await self._exchange(url, method, request, streams=streams)
        except HttpProcessingError as error:
            headers = CIMultiDictProxy(self._request.headers)
            info = aiohttp.RequestInfo(URL(url, encoded=True), method, headers)
            raise aiohttp.ClientResponseError(
                info, (), status=error.code, message=error.message, headers=error.headers
            ) from error

    async def _exchange(self, url: str, method: str, request: bytes, *, streams: bool) -> Answer:
        connection = self._spare_one() or await self._connect()
        protocol, transport = cast("Exchange", connection.protocol), connection.transport
        writing = None
        try:
            common = None
            if streams or method == "HEAD" or transport is None:
                protocol.leave(has_body=method != "HEAD")
            else:
                common = protocol.answer()
            if transport is not None and len(request) > LARGE_BODY:
                writing = asyncio.create_task(_write_pieces(protocol, transport, request))
            elif transport is not None:  # without one, the connection was lost, as `read` will say
                transport.write(request)
            if common is not None and (answer := await common) is not None:
                return Answer(self._host, url, connection, self._keep, *answer)
            while True:
                message, content = await protocol.read()
                if message.code >= 200:
                    headers = Headers(b"\r\n".join(map(b": ".join, message.raw_headers)))
                    begun = message.code, headers, content
                    return Answer(self._host, url, connection, self._keep, *begun)
        except BaseException:
            _drop(connection)
            raise
        finally:
            if writing is not None and not writing.done():
                writing.cancel()
                protocol.force_close()

    async def _connect(self) -> aiohttp.connector.Connection:
        try:
            return await self._connector.connect(self._request, [], _TIMEOUT)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError("no connection in time") from error

    def _spare_one(self) -> aiohttp.connector.Connection | None:
        """A connection that rests, has not rested for too long, and got nothing meanwhile."""
        while self._spare:
            connection, since = self._spare.pop()
            if _is_usable(connection) and self._loop.time() - since < KEPT_SECONDS:
                return connection
            _drop(connection)
        return None

    def _keep(self, connection: aiohttp.connector.Connection) -> None:
        """Let another request use a connection whose answer was read."""
        if len(self._spare) < SPARE and not self._connector.closed and _is_usable(connection):
            self._spare.append((connection, self._loop.time()))
        else:
            connection.release()

    def _prepare(self, endpoint: Endpoint) -> None:
        """Write down what all requests begin with, as aiohttp writes it.

        Raises:
            ValueError: a header has more than one line.
        """
        url = URL(endpoint.url, encoded=True)
        proxy = None if endpoint.proxy is None else URL(endpoint.proxy)
        headers = [("User-Agent", self._user_agent), *endpoint.headers]
        if endpoint.authorization:
            headers.append(("Authorization", endpoint.authorization))
        self._host, self._base = url.with_user(None).raw_authority, url.raw_path.rstrip("/")
        if proxy is not None and url.scheme == "http":
            self._base = endpoint.url
            if proxy.user:
                credentials = b64encode(f"{proxy.user}:{proxy.password or ''}".encode()).decode()
                headers.append(("Proxy-Authorization", f"Basic {credentials}"))
        self._endpoint = endpoint
        self._request = aiohttp.ClientRequest(
            "GET",
            url,
            headers=headers,
            proxy=proxy,
            server_hostname=endpoint.server_hostname,
            loop=self._loop,
        )
        lines = [f"{name}: {value}" for name, value in self._request.headers.items()]
        if any(set(line) & set("\r\n\0") for line in lines):
            raise ValueError(f"a header for {endpoint.url} has more than one line")
        self._headers = "".join(f"{line}\r\n" for line in lines if not line.startswith("Accept:"))


class Sessions:
    """The connections of one endpoint; they are closed when the last user of a retired one is done.

    A watch takes the connection of a call that is over, such as the list before it.
    """

    def __init__(self, endpoint: Endpoint, user_agent: str) -> None:
        self.session = Session(endpoint, user_agent)
        self._room = asyncio.Semaphore(CALL_CONNECTIONS)
        self._users = 0
        self._retired = False

    async def send(self, endpoint: Endpoint, *request: Any, watch: bool) -> Answer:
        """Send a call, or begin a watch; see `Session.send`."""
        self._users += 1
        try:
            if watch:
                answer = await self.session.send(endpoint, *request, streams=True)
                return answer.held_by(self._leave)
            await self._room.acquire()
            try:
                return (await self.session.send(endpoint, *request)).held_by(self._leave_room)
            except BaseException:
                self._room.release()
                raise
        except BaseException:
            await self._leave()
            raise

    async def _leave_room(self) -> None:
        self._room.release()
        await self._leave()

    async def _leave(self) -> None:
        self._users -= 1
        await self._close_if_idle()

    async def retire(self) -> None:
        """Close once the present requests have ended; no further ones will come."""
        self._retired = True
        self.session.drop_spare()
        await self._close_if_idle()

    async def _close_if_idle(self) -> None:
        if self._retired and self._users == 0:
            await self.close()

    async def close(self) -> None:
        """Close every connection now."""
        await self.session.close()


def _is_usable(connection: aiohttp.connector.Connection) -> bool:
    protocol = connection.protocol
    return protocol is not None and protocol.is_connected() and not protocol.should_close


def _drop(connection: aiohttp.connector.Connection) -> None:
    """Close a connection at once; do not wait for the goodbye of TLS.

    That could take longer than the event loop lives, which leaks the socket.
    """
    if connection.transport is not None:
        connection.transport.abort()
    connection.close()


async def _write_pieces(protocol: Any, transport: asyncio.Transport, request: bytes) -> None:
    view = memoryview(request)
    with suppress(OSError):  # the answer, or its absence, says what happened
        for start in range(0, len(request), _PIECE):
            transport.write(view[start : start + _PIECE])
            await protocol._drain_helper()  # noqa: SLF001 - aiohttp has no other way to wait


def _socket(address: Any) -> socket.socket:
    """A socket that detects the loss of the other machine within a minute."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 30),
        ("TCP_KEEPINTVL", 10),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 60_000),
    ):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
