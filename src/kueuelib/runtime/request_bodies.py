"""The bodies of requests to our servers: limited in bytes and time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from aiohttp import HttpVersion11, web

from kueuelib.errors import ApiError, TooLarge, TooManyRequests
from kueuelib.runtime import connections


async def body_of(request: web.BaseRequest) -> bytes:
    """The whole body of a request.

    Raises:
        ApiError: it does not come in time.
    """
    try:
        with anyio.fail_after(connections.SILENT_SECONDS * (1 - connections.LINGERING)):
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
        with anyio.fail_after(connections.SILENT_SECONDS * (1 - connections.LINGERING)):
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
