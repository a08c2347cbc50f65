"""Splits the body of a watch into lines, with a ceiling of our own.

An object may be larger than usual limits of lines once it is wrapped into an event.
"""

from __future__ import annotations

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
