"""One open watch: lines to events, with a watchdog for silence (spec/framework 9.3)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Self

import aiohttp
import orjson

from kueuelib.errors import TransportError
from kueuelib.runtime.lines import LineSplitter, LineTooLong

BOOKMARK_IDLE = 70.0
"""Seconds of silence that end a stream on which bookmarks come, about once a minute."""
IDLE_GRACE = 15.0
"""Seconds past the server's own timeout that end a stream without bookmarks."""
STOP_GRACE = 30.0
"""Seconds past the server's own timeout that end any stream."""


class WatchStream:
    """The events of one watch, in order, as raw `{"type": ..., "object": ...}` dicts.

    Iterate over it with `async for`; it ends when the server ends the stream. `ERROR` events are
    handed out like all others. Close it with `aclose`, or use it as an async context manager.

    Args:
        response: the open answer.
        server_timeout: seconds after which the server ends the stream by itself.
        what: the kind, for messages.
        max_line: bytes of the longest event that is accepted.
        release: gives the connection back.
    """

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        *,
        server_timeout: float,
        what: str,
        max_line: int,
        release: Callable[[], Awaitable[Any]],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._response = response
        self._what = what
        self._release: Callable[[], Awaitable[Any]] | None = release
        self._splitter = LineSplitter(max_line)
        self._lines: deque[bytes] = deque()
        self._idle = server_timeout + IDLE_GRACE
        self._stop_at = loop.time() + server_timeout + STOP_GRACE
        self._time = loop.time
        self.bytes_read = 0
        self.last_read_at = loop.time()

    def __aiter__(self) -> WatchStream:
        return self

    async def __anext__(self) -> dict[str, Any]:
        """The next event.

        Raises:
            StopAsyncIteration: the server ended the stream.
            TransportError: the stream broke, fell silent, or carried what is no event.
        """
        while not self._lines:
            if not await self._read():
                raise StopAsyncIteration
        line = self._lines.popleft()
        try:
            event = orjson.loads(line)
            kind = event["type"]
            event["object"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise self._broken(f"what came is no event: {line[:80]!r}") from error
        if kind == "BOOKMARK":
            self._idle = min(self._idle, BOOKMARK_IDLE)
        return event  # type: ignore[no-any-return]

    @property
    def pending(self) -> bool:
        """Whether another event can be had without waiting."""
        return bool(self._lines)

    async def aclose(self) -> None:
        """End the watch; calling again does nothing."""
        release, self._release = self._release, None
        self._lines.clear()
        if release is not None:
            await release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _read(self) -> bool:
        """Wait for one chunk; tells whether the stream goes on."""
        if self._release is None:
            return False
        patience = min(self._idle, self._stop_at - self._time())
        try:
            async with asyncio.timeout(max(patience, 0.0)):
                chunk = await self._response.content.readany()
        except TimeoutError as error:
            raise self._broken(f"nothing came for {patience:.0f} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(str(error) or type(error).__name__) from error
        if not chunk:
            return False
        self.bytes_read += len(chunk)
        self.last_read_at = self._time()
        try:
            self._lines.extend(self._splitter.feed(chunk))
        except LineTooLong as error:
            raise self._broken(str(error)) from error
        return True

    def _broken(self, problem: str) -> TransportError:
        return TransportError(f"watch of {self._what}", problem)
