"""Answers common reviews without the objects that aiohttp makes for each request.

It makes a parser's message, a request, a response, a task and several streams; they take more time
than most reviews.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Final

from aiohttp import web

from kueuelib.runtime import server_limits
from kueuelib.runtime.server_limits import Connection, Slots

MOST_HEAD: Final = 8190
MOST: Final = 2**16
"""Bytes of the largest head and body that are read here; as much as aiohttp reads ahead. It refuses
heads with more than 128 lines, too.
"""
RECENT: Final = 64
"""The number of heads that are remembered; those of one client differ only in the length."""
_HEAD: Final = re.compile(
    rb"POST (/[\w./~-]*)(?:\?[!-~]*)? HTTP/1\.1\r\n((?:[A-Za-z0-9-]+:[\t -~]*\r\n){1,60})\r\n"
)
_FRAMING: Final = re.compile(
    rb"^(host|content-[a-z]+|transfer-encoding|connection|expect|upgrade|trailer|user-agent|etag"
    rb"|max-forwards|server):([^\r]*)",
    re.IGNORECASE | re.MULTILINE,
)
"""The headers that say where a request ends, what its body is, and what its sender waits for; also
those that aiohttp refuses if they come twice.
"""
_JSON: Final = {b"content-type": b"application/json"}
_FOREVER: Final = -1

AtOnce = Callable[[str, bytes], bytes | None]
"""From path and body of a review to the body of the answer 200; None: aiohttp has to read it."""


class FastPath(Connection):
    """A connection that answers common reviews itself, and leaves other requests to aiohttp.

    Those are in one piece, or their rest follows within a moment, and their answers wait for
    nothing. So nothing of them is under way when the event loop does something else.

    Args:
        server: reads all others.
        room: the open connections.
        answer: to a review.
        options: of the connection.
    """

    __slots__ = ("_answer", "_ends", "_got", "_holds_until", "_moment", "_owed", "_theirs")

    def __init__(
        self,
        server: web.Server,
        room: Slots,
        answer: AtOnce,
        **options: Any,
    ) -> None:
        super().__init__(server, room, **options)
        self._answer = answer
        self._theirs = False  # whether aiohttp has a request that it did not answer
        self._ends = False  # whether aiohttp is about to close
        self._got = b""
        self._holds_until = 0.0
        self._moment: asyncio.TimerHandle | None = None
        self._owed = 0  # bytes that still are aiohttp's; less than zero: all

    @property
    def rests_since(self) -> float | None:
        """Since when it is idle, in seconds of the loop; None while it is working."""
        return None if b"\r\n\r\n" in self._got else super().rests_since

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forgets what has come."""
        self._got = b""
        if self._moment is not None:
            self._moment.cancel()
        super().connection_lost(exc)

    def close(self) -> None:
        """Leaves what comes to aiohttp, which closes."""
        self._ends = True
        super().close()

    def log_access(
        self, request: web.BaseRequest, response: web.StreamResponse, time: float | None
    ) -> None:
        """Takes the connection back from aiohttp, which has answered."""
        super().log_access(request, response, time)
        self._theirs = False
        self._ends = self._ends or not response.keep_alive

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        if self._owed or not data:  # aiohttp itself sends no data, to continue
            self._owed -= len(data)
            super().data_received(data)
            return
        got = self._got + data
        if self._theirs or self._ends or not self.flows or self.transport is None:
            self._leave(got, _FOREVER)
            return
        head = _HEAD.match(got, 0, MOST_HEAD)
        if head is None:
            self._wait(got, may_be_more=len(got) < MOST_HEAD and b"\r\n\r\n" not in got)
            return
        size = _size(head[2])
        missing = head.end() + size - len(got)
        if missing > 0 and 0 < size <= MOST:
            self._wait(got, may_be_more=True)
            return
        answer = None
        if missing == 0 and size <= MOST:
            answer = self._answer(head[1].decode(), got[head.end() :])
        if answer is None:
            self._leave(got, missing if size else _FOREVER)
            return
        self._got = b""
        self.rests()
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
            b"Date: %b\r\n\r\n%b" % (len(answer), _date(int(time.time())), answer)
        )

    def _wait(self, got: bytes, *, may_be_more: bool) -> None:
        """Wait for the rest, for a moment from the first piece: aiohttp has the deadlines."""
        if not may_be_more:
            self._leave(got, _FOREVER)
            return
        if not self._got:
            moment = server_limits.SILENT_SECONDS * server_limits.LINGERING
            self._holds_until = self.now() + moment
        self._got = got
        if self._moment is None:  # one timer for many requests
            self._hold()
        if not self.asks:
            self.asked()

    def _give_up(self) -> None:
        self._moment = None
        if not self._got:
            return
        if self.now() < self._holds_until:
            self._hold()
        else:
            self._leave(self._got, _FOREVER)

    def _hold(self) -> None:
        self._moment = asyncio.get_running_loop().call_at(self._holds_until, self._give_up)

    def _leave(self, got: bytes, owed: int) -> None:
        """Let aiohttp read what has come, and so many bytes more."""
        self._got = b""
        self._owed = owed
        self._theirs = True
        super().data_received(got)


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    """The value of a header about a second since the epoch."""
    return formatdate(second, usegmt=True).encode()


@lru_cache(maxsize=RECENT)
def _size(headers: bytes) -> int:
    """The length of a body of JSON; 0 if anything else is said about it, or asked for."""
    pairs = _FRAMING.findall(headers)
    framing = {name.lower(): value.strip(b"\t ") for name, value in pairs}
    once = len(framing) == len(pairs) and framing.pop(b"host", b"")
    size = framing.pop(b"content-length", b"")
    framing.pop(b"user-agent", b"")
    return int(size) if once and framing == _JSON and size.isdigit() and len(size) < 9 else 0
