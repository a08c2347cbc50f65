"""One open watch: lines to events, with a watchdog for silence."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Self

import orjson

from kueuelib.errors import TransportError
from kueuelib.runtime.clock import Deadlines, Limit
from kueuelib.runtime.http_connection import ResponseBody
from kueuelib.runtime.network_errors import NetworkError

# ---- splits the body of a watch into lines, with a ceiling of our own ----------------------------
# An object may be larger than usual limits of lines once it is wrapped into an event.

MAX_LINE = 16 * 1024 * 1024
"""Bytes of the longest event that is accepted."""


class LineTooLong(ValueError):
    """A line grew past the ceiling.

    Attributes:
        limit: the ceiling in bytes.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"an event is longer than {limit} bytes")
        self.limit = limit


class LineSplitter:
    """Turns chunks of any size into complete, non-empty lines without their line ends.

    Args:
        limit: the longest line in bytes.
    """

    __slots__ = ("_limit", "_parts", "_size")

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes.

        Raises:
            LineTooLong: the unfinished or a finished line passed the ceiling.
        """
        head, newline, tail = chunk.partition(b"\n")
        if not newline:
            self._keep(chunk)
            return []
        self._keep(head)
        lines = [b"".join(self._parts)]
        self._parts, self._size = [], 0
        if tail:
            *more, rest = tail.split(b"\n")
            lines += more
            self._keep(rest)
            if any(len(line) > self._limit for line in more):
                raise LineTooLong(self._limit)
        return [line for line in lines if line.strip()]

    def rest(self) -> bytes:
        """What came after the last line end."""
        return b"".join(self._parts)

    def _keep(self, part: bytes) -> None:
        if not part:
            return
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._limit:
            raise LineTooLong(self._limit)


# --------------------------------------------------------------------------------------------------

BOOKMARK_IDLE = 70.0
"""Seconds of silence that end a stream on which bookmarks come, about once a minute."""
IDLE_GRACE = 15.0
"""Seconds past the server's own timeout that end a stream without bookmarks."""
STREAM_GRACE = 30.0
"""Seconds past the server's own timeout that end any stream."""


class WatchStream:
    """The events of one watch, in order, as raw `{"type": ..., "object": ...}` dicts.

    Iterate over it with `async for`, or take what is there with `batch`. It ends when the server
    ends the stream, or when it stayed silent for too long (`idle` is True then). `ERROR` events
    are handed out like all others. Close it with `aclose`, or use it as an async context manager.

    Args:
        content: the body of the open answer.
        server_timeout: seconds after which the server ends the stream by itself.
        what: the path of the collection, for messages.
        max_line: bytes of the longest event that is accepted.
        release: gives the connection back.

    Attributes:
        idle: whether we ended it because it was silent.
        last_read_at: when the last bytes came, in the event loop's time.
    """

    def __init__(
        self,
        content: ResponseBody,
        *,
        server_timeout: float,
        what: str,
        max_line: int,
        release: Callable[[], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._content = content
        self._what = what
        self._release: Callable[[], None] | None = release
        self._splitter = LineSplitter(max_line)
        self._lines: deque[bytes] = deque()
        self._error: TransportError | None = None
        self._patience = server_timeout + IDLE_GRACE
        self._stop_at = loop.time() + server_timeout + STREAM_GRACE
        self._time = loop.time
        self._deadlines = Deadlines()
        self.idle = False
        self.last_read_at = loop.time()

    @property
    def silence(self) -> float:
        """Seconds since the last bytes came."""
        return max(self._time() - self.last_read_at, 0.0)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        """The next event."""
        events = await self.batch(1)
        if not events:
            raise StopAsyncIteration
        return events[0]

    async def batch(self, limit: int = 1000) -> list[dict[str, Any]]:
        """Wait for an event; return it with those that are already here. An empty result is the
        end.

        Raises:
            TransportError: the stream broke, or carried what is not an event. All events before
                that are handed out first.
        """
        while not self._lines and self._error is None:
            if not await self._read():
                return []
        events: list[dict[str, Any]] = []
        while self._lines and len(events) < limit:
            try:
                events.append(self._decode(self._lines.popleft()))
            except TransportError as error:
                self._error = error
                self._lines.clear()
        if not events and self._error is not None:
            raise self._error
        return events

    async def aclose(self) -> None:
        """End the watch; calling again does nothing."""
        release, self._release = self._release, None
        self._lines.clear()
        if release is not None:
            release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _decode(self, line: bytes) -> dict[str, Any]:
        try:
            event: dict[str, Any] = orjson.loads(line)
            kind, _ = event["type"], event["object"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise self._broken(f"the line is not an event: {line[:80]!r}") from error
        if kind == "BOOKMARK":
            self._patience = min(self._patience, BOOKMARK_IDLE)
        return event

    async def _read(self) -> bool:
        """Wait for one chunk; returns whether the stream continues."""
        if self._release is None:
            return False
        patience = min(self._patience, self._stop_at - self._time())
        try:
            with Limit(self._deadlines, max(patience, 0.0)) as limit:
                chunk = await self._content.readany()
        except TimeoutError as error:
            if not limit.expired:
                raise self._broken("the connection timed out") from error
            self.idle = True
            return False
        except (NetworkError, OSError) as error:
            raise self._broken(str(error) or type(error).__name__) from error
        if not chunk:
            return False
        self.last_read_at = self._time()
        try:
            self._lines.extend(self._splitter.feed(chunk))
        except LineTooLong as error:
            raise self._broken(str(error)) from error
        return True

    def _broken(self, problem: str) -> TransportError:
        return TransportError(f"watch of {self._what}", problem)
