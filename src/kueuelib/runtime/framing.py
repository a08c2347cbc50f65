"""Where an answer of HTTP/1.1 ends, and what its body is, while it comes."""

from __future__ import annotations

import re
import zlib
from typing import Any, Final, NamedTuple, Protocol

from kueuelib.runtime.network_errors import BrokenAnswer

MOST_HEAD: Final = 2**16
"""Bytes of the longest head of an answer, and of the longest line between chunks."""
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: [^\r\n]*)?\r\n")
_FOLDED: Final = re.compile(rb"\r\n[ \t]+")
_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?\r?")
_BODILESS: Final = (204, 304)
_KNOWN: Final = ("gzip", "x-gzip")


class Headers:
    """Headers, searched when one is asked for.

    Args:
        lines: as they came, without the first line.
    """

    __slots__ = ("_lines",)

    def __init__(self, lines: bytes) -> None:
        self._lines = lines

    def all(self, name: str) -> list[str]:
        """The values of all headers of this name."""
        wanted = name.lower().encode()
        if wanted not in self._lines.lower():
            return []
        lines = (line.partition(b":") for line in self._lines.split(b"\r\n"))
        return [
            value.strip().decode("utf-8", "surrogateescape")
            for own_name, _, value in lines
            if own_name.lower() == wanted
        ]

    def items(self) -> list[tuple[str, str]]:
        """All headers in their order, as they came."""
        lines = (line.partition(b":") for line in self._lines.split(b"\r\n"))
        return [
            (name.decode("ascii", "replace"), value.strip().decode("utf-8", "surrogateescape"))
            for name, colon, value in lines
            if colon
        ]

    def first(self, name: str) -> str | None:
        """The value of the first header of this name, or None."""
        values = self.all(name)
        return values[0] if values else None

    def tokens(self, name: str) -> list[str]:
        """The elements of all headers of this name, in lower case."""
        values = ",".join(self.all(name)).lower().split(",")
        return [each.strip() for each in values if each.strip()]


class Head(NamedTuple):
    """The beginning of an answer.

    Attributes:
        status: the HTTP status.
        headers: all headers.
        minor: the minor version of HTTP.
        size: how many bytes it has.
    """

    status: int
    headers: Headers
    minor: int
    size: int


def head_of(got: bytes) -> Head | None:
    """The head with which bytes begin; None if there have to be more.

    Raises:
        BrokenAnswer: it is not a head.
    """
    end, first = got.find(b"\r\n\r\n"), _STATUS.match(got)
    if first is None and (b"\n" in got or not b"HTTP/1.".startswith(got[:7])):
        line = got.partition(b"\n")[0]
        raise BrokenAnswer(f"the answer is not HTTP: {line[:80]!r}")
    if first is None or end < 0:
        if len(got) > MOST_HEAD:
            raise BrokenAnswer("the head of the answer is too long")
        return None
    lines = _FOLDED.sub(b" ", got[first.end() : end + 2])
    return Head(int(first[2]), Headers(lines), int(first[1]), end + 4)


class Framing(Protocol):
    """Finds the end of a body."""

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        """What of the body is in the data, and what follows the body; None: there is more.

        Raises:
            BrokenAnswer: it is not a body of this form.
        """
        ...

    def ends(self) -> bool:
        """Whether the body may end where the connection ends."""
        ...


class Sized:
    """A body whose length is known.

    Args:
        length: in bytes.
    """

    def __init__(self, length: int) -> None:
        self._left = length

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        """What of the body is in the data, and what follows the body; None: there is more."""
        if len(data) < self._left:
            self._left -= len(data)
            return data, None
        left, self._left = self._left, 0
        return data[:left], data[left:]

    def ends(self) -> bool:
        """Whether the body may end where the connection ends."""
        return self._left == 0


class Unsized:
    """A body that lasts until the connection ends."""

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        """All of it."""
        return data, None

    def ends(self) -> bool:
        """It does."""
        return True


class Chunked:
    """A body in chunks that say their lengths."""

    def __init__(self) -> None:
        self._rest = b""
        self._left = -1  # of the present chunk; -1: its line has to come, -2: the trailer

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        """What of the body is in the data, and what follows the body; None: there is more.

        Raises:
            BrokenAnswer: they are not chunks.
        """
        data, self._rest = self._rest + data, b""
        parts: list[bytes] = []
        start = 0
        while True:
            if self._left > 0:
                part = data[start : start + self._left]
                parts.append(part)
                start += len(part)
                self._left -= len(part)
                if self._left:
                    return b"".join(parts), None
            line_end = data.find(b"\n", start)
            if line_end < 0:
                self._rest = data[start:]
                if len(self._rest) > MOST_HEAD:
                    raise BrokenAnswer("a line between chunks is too long")
                return b"".join(parts), None
            line = data[start:line_end]
            start = line_end + 1
            if self._left == 0:
                if line.strip():
                    raise BrokenAnswer("a chunk is longer than it says")
                self._left = -1
            elif self._left == -2:
                if not line.strip():
                    return b"".join(parts), data[start:]
            else:
                size = _SIZE.fullmatch(line)
                if size is None:
                    raise BrokenAnswer(f"the answer has no chunks: {line[:80]!r}")
                self._left = int(size[1], 16) or -2

    def ends(self) -> bool:
        """Whether the body may end where the connection ends."""
        return False


def framing_of(head: Head, *, has_body: bool) -> Framing:
    """How to find the end of the body.

    Raises:
        BrokenAnswer: the head does not say it, or in two ways.
    """
    if not has_body or head.status in _BODILESS:
        return Sized(0)
    codings = head.headers.tokens("Transfer-Encoding")
    if codings:
        if codings != ["chunked"]:
            raise BrokenAnswer(f"the transfer encoding {', '.join(codings)} is not known")
        return Chunked()
    lengths = set(head.headers.tokens("Content-Length"))
    if not lengths:
        return Unsized()
    length = lengths.pop()
    if lengths or not (length.isascii() and length.isdigit()) or len(length) > 15:
        raise BrokenAnswer("the length of the answer is not a number")
    return Sized(int(length))


def stays(head: Head, framing: Framing) -> bool:
    """Whether the connection may be used again after an answer."""
    wanted = head.headers.tokens("Connection")
    if isinstance(framing, Unsized) or "close" in wanted:
        return False
    return head.minor == 1 or "keep-alive" in wanted


def decoder_of(head: Head) -> Any:
    """What decodes the body, as `zlib.decompressobj` does; None: it is as it comes."""
    codings = [each for each in head.headers.tokens("Content-Encoding") if each != "identity"]
    if len(codings) != 1 or codings[0] not in _KNOWN:
        return None
    return zlib.decompressobj(wbits=zlib.MAX_WBITS + 16)
