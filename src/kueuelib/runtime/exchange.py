"""Reads common answers, without the objects that aiohttp makes for each.

It makes a parser, a queue, a stream and a dict of headers; they take most of the time of a small
answer.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final, NamedTuple

from aiohttp.client_proto import ResponseHandler

MOST: Final = 2**18
"""Bytes of the largest answer that is read here, and of what aiohttp reads ahead of others."""
_FRAMING: Final = re.compile(
    rb"\r\n(content-length|transfer-encoding|content-encoding|connection|trailer|upgrade|[ \t])"
    rb"(?::[ \t]*([^\r\n]*))?",
    re.IGNORECASE,
)
"""The headers that say where an answer ends, and what else its body is; folded ones, too."""
_FIRST: Final = re.compile(rb"HTTP/1\.1 ([2-5]\d\d)[^\r\n]*\r\n")
_EMPTY: Final = (b"204", b"304")
_HEX: Final = re.compile(rb"[0-9a-fA-F]{1,8}")


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

    def first(self, name: str) -> str | None:
        """The value of the first header of this name, or None."""
        values = self.all(name)
        return values[0] if values else None


class Whole(NamedTuple):
    """An answer that has arrived.

    Attributes:
        status: the HTTP status.
        headers: all headers.
        body: the body, decoded from chunks.
    """

    status: int
    headers: Headers
    body: bytes


class Exchange(ResponseHandler):
    """A connection that reads common answers itself, and leaves others to aiohttp."""

    _asked: asyncio.Future[Whole | None] | None = None
    _got = b""

    def answer(self) -> asyncio.Future[Whole | None]:
        """The next answer, if it is a common one; None: `read` returns it."""
        self._got = b""
        self._asked = self._loop.create_future()
        return self._asked

    def leave(self, *, has_body: bool = True) -> None:
        """Let aiohttp read the answer, beginning with what has come."""
        asked, self._asked = self._asked, None
        got, self._got = self._got, b""
        self.set_response_params(read_until_eof=True, read_bufsize=MOST, skip_payload=not has_body)
        if asked is not None and not asked.done():
            asked.set_result(None)
        if got:
            super().data_received(got)

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer."""
        asked = self._asked
        if asked is None or asked.done():
            super().data_received(data)
            return
        self._got += data
        try:
            answer = whole(self._got)
        except ValueError:
            self.leave()
            return
        if answer is not None:
            self._asked, self._got = None, b""
            asked.set_result(answer)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let aiohttp say what that means for what has come."""
        if self._asked is not None:
            self.leave()
        super().connection_lost(exc)


def whole(got: bytes) -> Whole | None:
    """The answer that the bytes are; None if there have to be more.

    Raises:
        ValueError: they are, or will be, anything else than one short answer with a body whose
            length or chunks are given.
    """
    end = got.find(b"\r\n\r\n")
    if end < 0 and len(got) <= MOST:
        return None
    first, framing = _FIRST.match(got), _FRAMING.findall(got, 0, end + 2)
    if len(got) > MOST or first is None or first[1] in _EMPTY or len(framing) != 1:
        raise ValueError("it is not common")
    (name, value), start = framing[0], end + 4
    if name.lower() == b"content-length" and value.isdigit():
        body = got[start:]
        missing = int(value) - len(body)
        if missing < 0 or missing > MOST:
            raise ValueError("its length is not common")
        if missing:
            return None
    elif name.lower() == b"transfer-encoding" and value.lower() == b"chunked":
        chunks = _chunks(got, start)
        if chunks is None:
            return None
        body = b"".join(chunks)
    else:
        raise ValueError("it is not common")
    return Whole(int(first[1]), Headers(got[first.end() : end]), body)


def _chunks(got: bytes, start: int) -> list[bytes] | None:
    """The chunks from a place on; None if there have to be more.

    Raises:
        ValueError: they are not chunks, or anything follows.
    """
    chunks: list[bytes] = []
    while (line := got.find(b"\r\n", start)) >= 0:
        if not _HEX.fullmatch(got, start, line):
            raise ValueError("a chunk is not common")
        begin, end = line + 2, line + 2 + int(got[start:line], 16)
        start = end + 2
        if len(got) < start:
            return None
        if got[end:start] != b"\r\n":
            raise ValueError("a chunk is not common")
        if begin == end:
            if len(got) > start:
                raise ValueError("something follows")
            return chunks
        chunks.append(got[begin:end])
    return None
