"""An `ApiClient` of kubernetes_asyncio whose calls go over a connection of ours.

It is imported by `Client.api_client` only: kubernetes_asyncio brings 1,000 modules.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import unquote

import anyio
import orjson
from kubernetes_asyncio import client as generated
from kubernetes_asyncio.client import ApiClient, rest
from multidict import CIMultiDict

from kueuelib.api.meta import Obj
from kueuelib.api.models import decode_model, encode_model, is_model, is_model_class
from kueuelib.errors import ApiError, ConfigError, InvalidObject, TransportError
from kueuelib.runtime.sessions import OpenResponse, encode_json, in_words
from kueuelib.runtime.transport import Requester

_OURS = frozenset({"accept", "content-type", "user-agent"})
"""Headers that a request may have; all others belong to the connection."""
_TAKEN = ("client_side_validation", "verify_ssl", "ssl_ca_cert", "proxy", "tls_server_name")
"""What the configuration has in common with the one that was given to `connect`."""
_WRITES = frozenset({"POST", "PUT", "PATCH"})
_PROXIED = re.compile(r"/api/v1/(namespaces/[^/]+/(pods|services)|nodes)/[^/]+/proxy(/|$)")
"""Paths of calls that the API server passes on, with all their parameters."""


class ConnectedApiClient(ApiClient):
    """An `ApiClient` over a connection of ours; made by `Client.api_client`.

    Its calls obey the limits, deadlines and guards of the client, are repeated and counted like
    those, and close with it. Models that it reads keep fields that their classes do not know.

    Args:
        calls: sends the calls.
        learn: gets each object that a write returned, and the `Status` of each deletion that
            names a UID, for example `Cache.learn`.
        field_manager: the name under which writes are recorded, unless a call gives another.
    """

    def __init__(
        self, calls: Requester, learn: Callable[[Obj], None] | None, field_manager: str
    ) -> None:
        # Not the constructor of the base: it opens connections of its own.
        self.configuration = generated.Configuration(host=calls.transport.address)
        given = calls.transport.configuration
        for name in _TAKEN:
            if given is not None and hasattr(given, name):
                setattr(self.configuration, name, getattr(given, name))
        self.client_side_validation = self.configuration.client_side_validation
        self.default_headers = {"User-Agent": "kueuelib"}
        self.cookie = ""
        self.pool_threads = 1
        self._calls = calls
        self._learn = learn
        self._field_manager = field_manager
        self._streams: set[StreamedResponse] = set()

    async def close(self) -> None:
        """End the streams that are open; the connection belongs to the client."""
        for stream in tuple(self._streams):
            stream.release()

    async def request(
        self,
        method: str,
        url: str,
        query_params: Sequence[tuple[str, Any]] | None = None,
        headers: Mapping[str, str] | None = None,
        post_params: Any | None = None,
        body: Any | None = None,
        _preload_content: bool = True,
        _request_timeout: Any = None,
    ) -> Any:
        """Send one call, as the base does.

        Raises:
            ApiException: the server answered with a failure.
            TransportError: there was no answer.
            ConfigError: it has form fields, or a header that is up to the connection, or its
                timeout is none.
        """
        given = {name.lower(): value for name, value in (headers or {}).items()}
        _check(given, post_params)
        path = unquote(url.removeprefix(self.configuration.host or ""))
        begin, silence, whole = _seconds(_request_timeout)
        params = [(name, _text(value)) for name, value in query_params or ()]
        if method in _WRITES and not _PROXIED.match(path) and "fieldManager" not in dict(params):
            params.append(("fieldManager", self._field_manager))
        request: dict[str, Any] = {
            "params": params,
            "body": body if body is None or isinstance(body, bytes) else encode_json(body),
            "content_type": given.get("content-type", "application/json"),
            "accept": given.get("accept", "application/json"),
            "timeout": begin,
        }
        verb = _VERBS.get(method, method.lower())
        started = anyio.current_time()
        try:
            with anyio.fail_after(whole):  # with all repetitions
                if not _preload_content:
                    answer = await self._calls.stream(method, path, verb=verb, **request)
                    end = started + whole if whole else math.inf
                    return StreamedResponse(answer, silence, end, self._streams)
                response = await self._calls.send(method, path, verb=verb, **request)
        except ApiError as error:
            raise _exception(error) from error
        except TimeoutError as error:
            raise TransportError(self._calls.transport.address + path, in_words(error)) from error
        options = body if method == "DELETE" and isinstance(body, Mapping) else {}
        if method != "GET" and "dryRun" not in {*dict(params), *options}:
            self._teach(response.body)
        head: Any = _Head(response.status, CIMultiDict(response.headers.items()))
        return rest.RESTResponse(head, response.body)

    def param_serialize(self, *_: object, **__: object) -> Any:
        """Refuse an API class of the package `kubernetes`, whose clients work in another way.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "client.api_client()",
            "is an ApiClient of kubernetes_asyncio, but the API class is of another package",
            "import the API class from kubernetes_asyncio.client, or use client.of(MODEL)",
        )

    def deserialize(self, response: rest.RESTResponse, response_type: Any) -> Any:
        """The value of an answer; models remember fields that their classes do not know."""
        cls = response_type
        if isinstance(response_type, str):
            cls = getattr(generated, response_type, None)
        if is_model_class(cls):
            try:
                return decode_model(cls, orjson.loads(response.data))
            except (orjson.JSONDecodeError, InvalidObject):
                pass  # not what the API promises: the base makes of it what it can
        return super().deserialize(response, response_type)

    def sanitize_for_serialization(self, obj: Any) -> Any:
        """The JSON of a body, with what `deserialize` remembered."""
        return encode_model(obj) if is_model(obj) else super().sanitize_for_serialization(obj)

    def _teach(self, body: bytes) -> None:
        obj = orjson.loads(body) if body.startswith(b"{") else {}
        stored = (obj.get("metadata") or {}).get("resourceVersion")
        ended = obj.get("kind") == "Status" and (obj.get("details") or {}).get("uid")
        if self._learn is not None and (stored or ended):
            self._learn(obj)


class StreamedResponse:
    """An answer that is read as it comes, with the part of aiohttp's response that is in use.

    Attributes:
        status: the HTTP status; a failure is an answer as well.
        ok: whether it is none.
        reason: its words.
        headers: all headers.
        content: the body, with `readline`, `readany`, `read`, `iter_any` and `iter_chunked`.
    """

    def __init__(
        self,
        answer: OpenResponse,
        silence: float | None,
        end: float,
        streams: set[StreamedResponse],
    ) -> None:
        self.status, self.reason = answer.status, _reason(answer.status)
        self.ok = self.status < HTTPStatus.BAD_REQUEST
        self.headers = CIMultiDict(answer.headers.items())
        self.content = _Content(answer.content, silence, end)
        self._answer = answer
        self._streams = streams
        streams.add(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()

    async def read(self) -> bytes:
        """The whole body."""
        try:
            return await self.content.read()
        finally:
            self.release()

    async def text(self) -> str:
        """The whole body as text."""
        return (await self.read()).decode("utf-8")

    async def json(self) -> Any:
        """The whole body as JSON."""
        return json.loads(await self.read())

    def release(self) -> None:
        """Close the connection, unless the body was read to its end."""
        self._streams.discard(self)
        self._answer.release()

    close = release


class _Content:
    """A body that is read in chunks or lines."""

    def __init__(self, source: Any, silence: float | None, end: float) -> None:
        self._source = source
        self._silence = math.inf if silence is None else silence
        self._end = end
        self._buffer = bytearray()

    async def readany(self) -> bytes:
        """What is there, or comes next; empty at the end.

        Raises:
            TimeoutError: nothing came for as long as the request allows, or all of it is over.
        """
        if self._buffer:
            ready, self._buffer = bytes(self._buffer), bytearray()
            return ready
        if isinstance(self._source, bytes):
            ready, self._source = self._source, b""
            return ready
        with anyio.fail_after(min(self._silence, self._end - anyio.current_time())):
            return bytes(await self._source.readany())

    async def readline(self) -> bytes:
        """The next line with its end, or what is left; empty at the end."""
        taken = bytearray()
        while chunk := await self.readany():
            line, end, rest_of = chunk.partition(b"\n")
            taken += line + end
            if end:
                self._buffer = bytearray(rest_of)
                break
        return bytes(taken)

    async def read(self, size: int = -1) -> bytes:
        """At most so many bytes; all of them when negative."""
        if size < 0:
            return b"".join([chunk async for chunk in self.iter_any()])
        chunk = await self.readany()
        self._buffer = bytearray(chunk[size:])
        return chunk[:size]

    async def iter_any(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        while chunk := await self.readany():
            yield chunk

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """The body in pieces of at most so many bytes."""
        while chunk := await self.read(size):
            yield chunk

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        while line := await self.readline():
            yield line


class _Head:
    """What the responses and exceptions of kubernetes_asyncio read of an answer."""

    def __init__(self, status: int, headers: CIMultiDict[str], data: bytes = b"") -> None:
        self.status, self.reason = status, _reason(status)
        self.headers, self.data = headers, data

    def getheaders(self) -> CIMultiDict[str]:
        return self.headers


_VERBS = {"POST": "create", "PUT": "update"}


def _check(headers: Mapping[str, str], post_params: Any) -> None:
    if post_params:
        raise ConfigError("the request", "has form fields", "the API server takes JSON only")
    if foreign := sorted(headers.keys() - _OURS):
        raise ConfigError(
            f"the header {foreign[0]}",
            "cannot be set for one call over a connection of kueuelib",
            "connect() with an ApiClient that has it among its default headers",
        )


def _seconds(given: Any) -> tuple[float | None, float | None, float | None]:
    """The limits for the beginning of an answer, for the silence in a stream, and for all of it."""
    if given is None or isinstance(given, int | float):
        return given or None, None, given or None
    if isinstance(given, tuple) and len(given) == 2:
        connect, read = given
        return connect and read and connect + read, read, None
    if hasattr(given, "sock_read"):
        return given.total or given.sock_read, given.sock_read, given.total
    fix = "give seconds, a pair (connect, read), or an aiohttp.ClientTimeout"
    raise ConfigError("_request_timeout", f"is {given!r:.60}", fix)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _exception(error: ApiError) -> Exception:
    if error.answer is not None:
        headers = CIMultiDict(error.answer.headers.items())
        body = error.answer.body.decode("utf-8", "replace").encode()  # the base decodes it
    else:
        headers = CIMultiDict({"Content-Type": "application/json"})
        body = orjson.dumps(error.status())
    head: Any = _Head(error.code, headers, body)
    return generated.ApiException(http_resp=head)
