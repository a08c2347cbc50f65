"""HTTP/1.1 on a connection: one exchange after the other, and where each answer ends.

Most answers are short and whole; they are read in one step. Others are read while they come.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from kueuelib.runtime.network_errors import BrokenAnswer, Disconnected, fail

# ---- where an answer of HTTP/1.1 ends, and what its body is, while it comes ----------------------

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


class ResponseHead(NamedTuple):
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


def head_of(got: bytes) -> ResponseHead | None:
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
    return ResponseHead(int(first[2]), Headers(lines), int(first[1]), end + 4)


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


def framing_of(head: ResponseHead, *, has_body: bool) -> Framing:
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


def stays(head: ResponseHead, framing: Framing) -> bool:
    """Whether the connection may be used again after an answer."""
    wanted = head.headers.tokens("Connection")
    if isinstance(framing, Unsized) or "close" in wanted:
        return False
    return head.minor == 1 or "keep-alive" in wanted


def decoder_of(head: ResponseHead) -> Any:
    """What decodes the body, as `zlib.decompressobj` does; None: it is as it comes."""
    codings = [each for each in head.headers.tokens("Content-Encoding") if each != "identity"]
    if len(codings) != 1 or codings[0] not in _KNOWN:
        return None
    return zlib.decompressobj(wbits=zlib.MAX_WBITS + 16)


# --------------------------------------------------------------------------------------------------

MOST: Final = 2**18
"""Bytes of the largest answer that is read in one step, and of what is read ahead of others."""
_FRAMING: Final = re.compile(
    rb"\r\n(content-length|transfer-encoding|content-encoding|connection|trailer|upgrade|[ \t])"
    rb"(?::[ \t]*([^\r\n]*))?",
    re.IGNORECASE,
)
"""The headers that say where an answer ends, and what else its body is; folded ones, too."""
_FIRST: Final = re.compile(rb"HTTP/1\.1 ([2-5]\d\d)[^\r\n]*\r\n")
_EMPTY: Final = (b"204", b"304")
_HEX: Final = re.compile(rb"[0-9a-fA-F]{1,8}")


class FullResponse(NamedTuple):
    """An answer whose body has arrived.

    Attributes:
        status: the HTTP status.
        headers: all headers.
        body: the body, decoded from chunks.
    """

    status: int
    headers: Headers
    body: bytes


class ResponseStart(NamedTuple):
    """An answer whose body comes.

    Attributes:
        status: the HTTP status.
        headers: all headers.
        body: what comes.
    """

    status: int
    headers: Headers
    body: ResponseBody


class ResponseBody:
    """The body of an answer, while it comes.

    Args:
        exchange: where it comes.
        head: of the answer.
        framing: finds the end.
    """

    __slots__ = (
        "_decoder",
        "_error",
        "_exchange",
        "_framing",
        "_parts",
        "_size",
        "_stays",
        "_waiter",
        "ended",
    )

    def __init__(self, exchange: HttpConnection, head: ResponseHead, framing: Framing) -> None:
        self.ended = False
        self._exchange = exchange
        self._framing = framing
        self._decoder = decoder_of(head)
        self._stays = stays(head, framing)
        self._parts: list[bytes] = []
        self._size = 0
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def feed(self, data: bytes) -> None:
        """Take what came."""
        try:
            part, rest = self._framing.feed(data)
            if part:
                self._take(part if self._decoder is None else self._decoder.decompress(part))
            if rest is not None and self._decoder is not None:
                self._take(self._decoder.flush())
        except (BrokenAnswer, zlib.error) as error:
            self.fail(BrokenAnswer(str(error)))
            return
        if rest is not None:
            self.ended = True
            self._exchange.done(usable=self._stays and not rest)
        if self._parts or self.ended:
            self._wake()
        if self._size > MOST and not self.ended:
            self._exchange.hold()

    def lose(self, error: BaseException | None) -> None:
        """The connection has ended."""
        if self.ended or self._error is not None:
            return
        if error is None and self._framing.ends():
            self.ended = True
            self._wake()
        else:
            self.fail(BrokenAnswer("the answer breaks off" if error is None else str(error)))

    def fail(self, error: Exception) -> None:
        """It will not come."""
        self._error = error
        self._exchange.done(usable=False)
        self._wake()

    async def readany(self) -> bytes:
        """What has come, at least a byte; nothing at the end.

        Raises:
            BrokenAnswer: it breaks off.
        """
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self.ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        parts, self._parts = self._parts, []
        if self._size > MOST:
            self._exchange.go_on()
        self._size = 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def read(self) -> bytes:
        """All of it.

        Raises:
            BrokenAnswer: it breaks off.
        """
        parts = []
        while part := await self.readany():
            parts.append(part)
        return b"".join(parts)

    def _take(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._size += len(part)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class HttpConnection(asyncio.Protocol):
    """A connection on which one request is answered after the other.

    Args:
        lost: called when the connection is lost.

    Attributes:
        usable: whether another request may be sent.
        transport: of the connection; None when it is lost.
    """

    def __init__(self, lost: Callable[[HttpConnection], None]) -> None:
        self._lost = lost
        self.usable = True
        self.transport: asyncio.Transport | None = None
        self._asked: asyncio.Future[FullResponse | ResponseStart] | None = None
        self._common = self._has_body = True
        self._got = b""
        self._body: ResponseBody | None = None
        self._flow: asyncio.Future[None] | None = None

    def answer(
        self, *, streams: bool, has_body: bool
    ) -> asyncio.Future[FullResponse | ResponseStart]:
        """The next answer.

        Args:
            streams: whether its body is wanted while it comes.
            has_body: whether it may have one.
        """
        self._got = b""
        self._common = has_body and not streams
        self._has_body = has_body
        self._asked = asyncio.get_running_loop().create_future()
        if self.transport is None:
            fail(self._asked, Disconnected())
        return self._asked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins."""
        self.transport = transport  # type: ignore[assignment]  # uvloop has its own classes

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer."""
        if self._body is not None:
            self._body.feed(data)
            return
        asked = self._asked
        if asked is None or asked.done():
            self.drop()  # it answers no request
            return
        self._got += data
        if self._common:
            try:
                answer = whole(self._got)
            except ValueError:
                self._common = False
            else:
                if answer is not None:
                    self._asked, self._got = None, b""
                    asked.set_result(answer)
                return
        try:
            self._begin(asked)
        except BrokenAnswer as error:
            fail(asked, error)
            self.drop()

    def eof_received(self) -> None:
        """The server sends no more."""

    def connection_lost(self, exc: BaseException | None) -> None:
        """End the wait for an answer."""
        self.usable, self.transport = False, None
        self._lost(self)
        asked, self._asked = self._asked, None
        if asked is not None and not asked.done() and self._got:
            try:
                self._begin(asked)
            except BrokenAnswer as error:
                fail(asked, error)
        if self._body is not None:
            self._body.lose(exc)
        elif asked is not None and not asked.done():
            fail(asked, Disconnected(exc))
        self._release()

    def pause_writing(self) -> None:
        """The server does not take what is sent."""
        self._flow = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """The server reads again."""
        self._release()

    async def drained(self) -> None:
        """Wait until the server takes what is sent.

        Raises:
            ConnectionResetError: it does not.
        """
        if self._flow is not None:
            await self._flow
        if self.transport is None:
            raise ConnectionResetError("the connection is closed")

    def done(self, *, usable: bool) -> None:
        """The present answer has ended."""
        self._body = None
        self.usable = self.usable and usable
        if not self.usable and self.transport is not None:
            self.transport.abort()

    def hold(self) -> None:
        """Read no more for now."""
        if self.transport is not None:
            self.transport.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        if self.transport is not None:
            self.transport.resume_reading()

    def drop(self) -> None:
        """Close at once; do not wait for the goodbye of TLS.

        That could take longer than the event loop lives, which leaks the socket.
        """
        self.usable = False
        if self.transport is not None:
            self.transport.abort()

    def _begin(self, asked: asyncio.Future[FullResponse | ResponseStart]) -> None:
        """Let the body come, if the head is here.

        Raises:
            BrokenAnswer: it is none.
        """
        while (head := head_of(self._got)) is not None:
            rest, self._got = self._got[head.size :], b""
            if head.status == 101:
                raise BrokenAnswer("the server changes the protocol")
            if head.status < 200:  # another one follows
                self._got = rest
                continue
            framing = framing_of(head, has_body=self._has_body)
            self._asked = None
            self._body = body = ResponseBody(self, head, framing)
            asked.set_result(ResponseStart(head.status, head.headers, body))
            body.feed(rest)
            return

    def _release(self) -> None:
        flow, self._flow = self._flow, None
        if flow is not None and not flow.done():
            flow.set_result(None)


def whole(got: bytes) -> FullResponse | None:
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
    return FullResponse(int(first[1]), Headers(got[first.end() : end]), body)


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
