"""Requests to one endpoint, over connections that pass from call to call."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from functools import lru_cache
from typing import Any, Final
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import anyio
import attrs
import orjson

from kueuelib.api.models import encode_model, is_model
from kueuelib.errors import ApiError, FieldError, InvalidObject, TransportError, api_error
from kueuelib.runtime.dialling import Dialler, credentials_of
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.http_connection import (
    FullResponse,
    Headers,
    HttpConnection,
    ResponseBody,
    ResponseStart,
)
from kueuelib.runtime.network_errors import Disconnected, NetworkError

# ---- what goes over the wire: URLs, bodies, answers and failures, between values and bytes -------

THREAD_DECODE = 256 * 1024
"""Bodies of more bytes are decoded in a worker thread."""
Params = Sequence[tuple[str, str]]
_SAFE: Final = "/:@!$&()*+,;=~"
_PLAIN: Final = re.compile(rf"[\w.\-{_SAFE}]*", re.ASCII)
"""Paths in which nothing is to be quoted: nearly all."""


@attrs.frozen
class Response:
    """An answer; unless it is part of an `ApiError`, a successful one.

    Attributes:
        status: the HTTP status.
        headers: all headers.
        body: the raw body.
    """

    status: int
    headers: Headers
    body: bytes


def target_of(path: str, params: Params) -> str:
    """Path and query of a request, quoted once."""
    quoted = path if _PLAIN.fullmatch(path) else quote(path, safe=_SAFE)
    return f"{quoted}?{_query(tuple(params))}" if params else quoted


@lru_cache(maxsize=256)
def _query(params: Params) -> str:
    return urlencode(params)


def failure(answer: Response) -> ApiError:
    """The error for an answer that is not a success.

    Its body is a `Status`, or anything a proxy may have sent.
    """
    body, retry_after = answer.body, answer.headers.first("Retry-After")
    try:
        decoded = orjson.loads(body) if body else None
    except orjson.JSONDecodeError:
        decoded = None
    seconds = float(retry_after) if retry_after and retry_after.strip().isdigit() else None
    text = "" if isinstance(decoded, dict) else body[:200].decode("utf-8", "replace").strip()
    error = api_error(
        answer.status,
        decoded if isinstance(decoded, dict) else None,
        text=f"the server answered {answer.status}: {text}{_limit(answer)}" if text else "",
        retry_after=seconds,
    )
    error.answer = answer
    return error


def _limit(answer: Response) -> str:
    """By which UIDs an API server's priority and fairness has judged a request that it rejects.

    A request that it admits has the same headers, and may be refused with a `Status` for another
    reason. A rejection is a line of text.
    """
    flow = answer.headers.first("X-Kubernetes-PF-FlowSchema-UID")
    level = answer.headers.first("X-Kubernetes-PF-PriorityLevel-UID")
    if answer.status != 429 or not flow:
        return ""
    return f" (priority and fairness: FlowSchema {flow}, PriorityLevelConfiguration {level})"


def encode_json(body: object) -> bytes:
    """A body of JSON, in which objects of any form may stand.

    Raises:
        TypeError: something in it is none, and has no form in JSON.
        InvalidObject: the same, in an object; or it has a time without a zone.
    """
    try:
        return orjson.dumps(body, default=_raw_part, option=orjson.OPT_PASSTHROUGH_DATETIME)
    except orjson.JSONEncodeError as error:
        if not isinstance(body, Mapping) or not (zoneless := list(_zoneless(body))):
            raise
        name = str((body.get("metadata") or {}).get("name", ""))
        raise InvalidObject(str(body.get("kind", "object")), name, zoneless) from error


def _zoneless(value: object, path: str = "") -> Iterator[FieldError]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _zoneless(each, f"{path}.{name}" if path else str(name))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for number, each in enumerate(value):
            yield from _zoneless(each, f"{path}[{number}]")
    elif isinstance(value, datetime) and value.tzinfo is None:
        problem = f"{value} has no time zone; make it with datetime.now(UTC), or add tzinfo=UTC"
        yield FieldError(path, "FieldValueInvalid", problem)


def _raw_part(value: object) -> Any:
    if isinstance(value, (date, time)) and not (isinstance(value, datetime) and not value.tzinfo):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if is_model(value):
        return encode_model(value)
    raise TypeError(type(value).__name__)


async def decode_json(body: bytes, what: str) -> Any:
    """Decode a body, in a thread when it is large.

    Raises:
        TransportError: it is not JSON.
    """
    try:
        if len(body) > THREAD_DECODE:
            return await asyncio.to_thread(orjson.loads, body)
        return orjson.loads(body)
    except json.JSONDecodeError as error:
        raise TransportError(what, f"the answer is not JSON ({error})") from error


def in_words(error: BaseException) -> str:
    """An error of the network as a readable text."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__


# --------------------------------------------------------------------------------------------------

CALL_CONNECTIONS = 32
"""Connections for calls; watches have as many as they need."""
KEPT_SECONDS = 30.0
"""How long a connection may rest and still be used."""
LARGE_BODY = 2**20
"""Bodies of more bytes are sent in pieces, so that the event loop is not held up."""
_PIECE: Final = 2**16
_REPEATABLE: Final = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")
"""Methods that are sent again if the server closed the connection instead of answering."""
_CODINGS: Final = ("Accept-Encoding", "gzip")
_OURS: Final = ("accept", "content-length", "content-type", "transfer-encoding", "connection")
"""Headers that each request says for itself."""


class OpenResponse:
    """An answer whose body is still to come; it holds its connection until `release`.

    Attributes:
        host: the server.
        url: what was asked.
        status: the HTTP status.
        headers: all headers.
        content: the body, or what comes of it.
    """

    __slots__ = ("_connection", "_keep", "_leave", "content", "headers", "host", "status", "url")

    def __init__(
        self,
        host: str,
        url: str,
        connection: HttpConnection,
        keep: Callable[[HttpConnection], None],
        leave: Callable[[], None],
        status: int,
        headers: Headers,
        content: ResponseBody | bytes,
    ) -> None:
        self.host, self.url = host, url
        self.status, self.headers = status, headers
        self.content = content
        self._connection: HttpConnection | None = connection
        self._keep = keep
        self._leave: Callable[[], None] | None = leave

    async def read(self) -> bytes:
        """The whole body; the connection may be used again.

        Raises:
            TransportError: it does not arrive.
        """
        try:
            content = self.content
            body = content if isinstance(content, bytes) else await content.read()
        except (NetworkError, TimeoutError, OSError) as error:
            raise TransportError(self.url, in_words(error)) from error
        if self._connection is not None:
            self._keep(self._connection)
            self._connection = None
        return body

    def release(self) -> None:
        """Close the connection unless the body was read; calling again does nothing."""
        leave, self._leave = self._leave, None
        if leave is not None:
            if self._connection is not None:
                self._connection.drop()
            leave()


class Session:
    """Sends requests to one endpoint; a retired one closes when its last answer is released.

    A watch takes the connection of a call that is over, such as the list before it.

    Args:
        endpoint: says where it is, and how to connect.
        user_agent: the `User-Agent` header.

    Attributes:
        closed: whether it was closed.
    """

    def __init__(self, endpoint: Endpoint, user_agent: str) -> None:
        self.closed = False
        self._user_agent = user_agent
        self._dialler = Dialler(endpoint)
        self._now = asyncio.get_running_loop().time
        self._open: dict[HttpConnection, None] = {}
        self._spare: list[tuple[HttpConnection, float]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._room = asyncio.Semaphore(CALL_CONNECTIONS)
        self._users = 0
        self._retired = False
        self._prepare(endpoint)

    def retire(self) -> None:
        """Close once the present requests have ended; no further ones will come."""
        self._retired = True
        self._drop_spare()
        self._close_if_idle()

    def close(self) -> None:
        """Close every connection now."""
        self.closed = True
        self._spare.clear()
        if self._timer is not None:
            self._timer.cancel()
        for each in list(self._open):
            each.drop()

    def _close_if_idle(self) -> None:
        if self._retired and self._users == 0:
            self.close()

    def _leave(self) -> None:
        self._users -= 1
        self._close_if_idle()

    def _leave_room(self) -> None:
        self._room.release()
        self._leave()

    def _drop_spare(self) -> None:
        """Close the connections that rest."""
        while self._spare:
            self._spare.pop()[0].drop()

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
    ) -> OpenResponse:
        """Send a request; the answer has arrived up to its headers.

        Args:
            endpoint: where to, with the credentials of the moment.
            method: the HTTP method.
            target: path and query under the endpoint's URL, quoted.
            body: what to send.
            content_type: its type.
            accept: types that the answer may have.
            streams: whether the answer is to be read while it comes, as that of a watch; it takes
                no place of a call.

        Raises:
            NetworkError: there is no connection, or no answer.
        """
        self._users += 1
        leave = self._leave
        try:
            if not streams:
                await self._room.acquire()
                leave = self._leave_room
            request = self._request(endpoint, method, target, body, content_type, accept)
            url = f"{endpoint.url}{target}"
            try:
                return await self._exchange(url, method, request, leave, streams=streams)
            except Disconnected:
                if method not in _REPEATABLE:
                    raise
                self._drop_spare()  # they may have ended in the same way
                return await self._exchange(url, method, request, leave, streams=streams)
        except BaseException:
            leave()
            raise

    def _request(
        self,
        endpoint: Endpoint,
        method: str,
        target: str,
        body: bytes | None,
        content_type: str,
        accept: str,
    ) -> bytes:
        """What is written to a connection."""
        if endpoint is not self._endpoint:
            self._prepare(endpoint)
        head = f"{method} {self._base}{target} HTTP/1.1\r\n{self._headers}Accept: {accept}\r\n"
        if body is not None:
            head += f"Content-Type: {content_type}\r\n"
        if body is not None or method not in ("GET", "HEAD"):
            head += f"Content-Length: {len(body or b'')}\r\n"
        return f"{head}\r\n".encode() + (body or b"")

    async def _exchange(
        self, url: str, method: str, request: bytes, leave: Callable[[], None], *, streams: bool
    ) -> OpenResponse:
        connection = self._spare_one() or await self._dialler.connect(self._made)
        try:
            answer = connection.answer(streams=streams, has_body=method != "HEAD")
            transport = connection.transport
            if transport is not None and len(request) > LARGE_BODY:
                await _write_large(connection, request, answer)
            elif transport is not None:  # without one, the answer is an error
                transport.write(request)
            return OpenResponse(self._host, url, connection, self._keep, leave, *await answer)
        except BaseException:
            connection.drop()
            raise

    def _made(self) -> HttpConnection:
        made = HttpConnection(self._lost)
        self._open[made] = None
        return made

    def _lost(self, connection: HttpConnection) -> None:
        self._open.pop(connection, None)

    def _spare_one(self) -> HttpConnection | None:
        """A connection that rests, has not rested for too long, and got nothing meanwhile."""
        while self._spare:
            connection, since = self._spare.pop()
            if connection.usable and self._now() - since < KEPT_SECONDS:
                return connection
            connection.drop()
        return None

    def _keep(self, connection: HttpConnection) -> None:
        """Let another request use a connection whose answer was read."""
        if not connection.usable or self.closed or len(self._spare) >= CALL_CONNECTIONS:
            connection.drop()
            return
        self._spare.append((connection, self._now()))
        if self._timer is None:
            self._tidy()

    def _tidy(self) -> None:
        """Close what has rested for too long, and look again while anything rests."""
        now = self._now()
        for connection, since in self._spare:
            if now - since >= KEPT_SECONDS:
                connection.drop()
        self._spare = [each for each in self._spare if each[0].usable]
        self._timer = None
        if self._spare:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(KEPT_SECONDS, self._tidy)

    def _prepare(self, endpoint: Endpoint) -> None:
        """Write down what all requests begin with.

        Raises:
            ValueError: a header has more than one line.
        """
        url = urlsplit(endpoint.url)
        proxy = None if endpoint.proxy is None else urlsplit(endpoint.proxy)
        own = credentials_of(url)
        headers = {"host": ("Host", _authority(url)), "accept-encoding": _CODINGS}
        given = [("User-Agent", self._user_agent), *endpoint.headers]
        if endpoint.authorization or own:
            given.append(("Authorization", endpoint.authorization or own))
        self._host, self._base = headers["host"][1], url.path.rstrip("/")
        if proxy is not None and url.scheme == "http":
            self._base = endpoint.url
            if credentials := credentials_of(proxy):
                given.append(("Proxy-Authorization", credentials))
        lines = [f"{name}: {value}" for name, value in given if name.lower() not in _OURS]
        replaced = {name.lower() for name, _ in given}
        lines[:0] = [f"{n}: {value}" for key, (n, value) in headers.items() if key not in replaced]
        if any(set(line) & set("\r\n\0") for line in lines):
            raise ValueError(f"a header for {endpoint.url} has more than one line")
        self._endpoint = endpoint
        self._headers = "".join(f"{line}\r\n" for line in lines)


async def _write_large(
    connection: HttpConnection, request: bytes, answer: asyncio.Future[FullResponse | ResponseStart]
) -> None:
    """Write a request until its answer comes, which may be earlier than its end."""
    view = memoryview(request)
    with anyio.CancelScope() as scope, suppress(OSError):  # the answer says what happened
        answer.add_done_callback(lambda _: scope.cancel())
        for start in range(0, len(request), _PIECE):
            await connection.drained()
            if connection.transport is not None:
                connection.transport.write(view[start : start + _PIECE])
    if scope.cancelled_caught:
        connection.usable = False


def _authority(url: SplitResult) -> str:
    """The host of a URL with its port, unless that is the usual one."""
    host = url.hostname or ""
    if not host.isascii():
        host = host.encode("idna").decode()
    shown = f"[{host}]" if ":" in host else host
    usual = {"http": 80, "https": 443}.get(url.scheme)
    return shown if url.port in (None, usual) else f"{shown}:{url.port}"
