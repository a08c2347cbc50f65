"""One exchange after the other on a connection: a request goes, its answer comes.

Most answers are short and whole; they are read in one step. Others are read while they come.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

from kueuelib.runtime.framing import Framing, Head, Headers, decoder_of, framing_of, head_of, stays
from kueuelib.runtime.network_errors import BrokenAnswer, Disconnected, fail

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


class Whole(NamedTuple):
    """An answer whose body has arrived.

    Attributes:
        status: the HTTP status.
        headers: all headers.
        body: the body, decoded from chunks.
    """

    status: int
    headers: Headers
    body: bytes


class Begun(NamedTuple):
    """An answer whose body comes.

    Attributes:
        status: the HTTP status.
        headers: all headers.
        body: what comes.
    """

    status: int
    headers: Headers
    body: Body


class Body:
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

    def __init__(self, exchange: Exchange, head: Head, framing: Framing) -> None:
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


class Exchange(asyncio.Protocol):
    """A connection on which one request is answered after the other.

    Args:
        lost: called when the connection is lost.

    Attributes:
        usable: whether another request may be sent.
        transport: of the connection; None when it is lost.
    """

    def __init__(self, lost: Callable[[Exchange], None]) -> None:
        self._lost = lost
        self.usable = True
        self.transport: asyncio.Transport | None = None
        self._asked: asyncio.Future[Whole | Begun] | None = None
        self._common = self._has_body = True
        self._got = b""
        self._body: Body | None = None
        self._flow: asyncio.Future[None] | None = None

    def answer(self, *, streams: bool, has_body: bool) -> asyncio.Future[Whole | Begun]:
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

    def _begin(self, asked: asyncio.Future[Whole | Begun]) -> None:
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
            self._body = body = Body(self, head, framing)
            asked.set_result(Begun(head.status, head.headers, body))
            body.feed(rest)
            return

    def _release(self) -> None:
        flow, self._flow = self._flow, None
        if flow is not None and not flow.done():
            flow.set_result(None)


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
