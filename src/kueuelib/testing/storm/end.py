"""One end of a connection in memory, as a transport for the protocol there."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kueuelib.testing.storm.owners import Owner

if TYPE_CHECKING:
    from kueuelib.testing.storm.link import Link

LATENCY: Final = 0.0005
"""Seconds that bytes travel in each direction."""
_HIGH: Final = 64 * 1024
Running = tuple[Owner, contextvars.Context]
"""The process of an end, and the context in which its protocol is called."""


class End(asyncio.Transport):
    """One end of a connection, as a transport for the protocol there.

    Args:
        link: the connection.
        running: its process, and the context in which its protocol is called.
        names: the values of `get_extra_info`.
    """

    def __init__(self, link: Link, running: Running, names: dict[str, Any]) -> None:
        super().__init__(names)
        self.owner, self.context = running
        self.gone = False
        self.link = link
        self._protocol: Any = None
        self._closing = False
        self._arriving: deque[Callable[[], None]] = deque()
        self._last = 0.0
        self._reading = True
        self._waiting: deque[Callable[[], None]] = deque()
        self._unread = 0
        self._high = _HIGH
        self._stopped = False

    # ---- what protocols call

    def write(self, data: Any) -> None:
        """Send bytes."""
        if not self._closing and data:
            self.link.sent(self, bytes(data))

    def close(self) -> None:
        """Close in an orderly way."""
        if not self._closing:
            self._closing = True
            self.link.finished(self)
            self._lose(None)

    def abort(self) -> None:
        """Reset the connection."""
        if not self._closing:
            self._closing = True
            self.link.aborted(self)
            self._lose(None)

    def vanish(self) -> None:
        """End because the process died: no callbacks follow."""
        self.gone = self._closing = True
        self.link.wire.loop.bury(self)

    def is_closing(self) -> bool:
        """Whether it is closing or closed."""
        return self._closing

    def pause_reading(self) -> None:
        """Hold arriving bytes back."""
        self._reading = False

    def resume_reading(self) -> None:
        """Deliver held and further bytes."""
        self._reading = True
        self.link.wire.loop.call_soon(self._catch_up, context=self.context)

    def is_reading(self) -> bool:
        """Whether it delivers arriving bytes."""
        return self._reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Bytes that the other end may leave unread before this one must wait."""
        del low
        self._high = _HIGH if high is None else high

    def get_write_buffer_size(self) -> int:
        """Bytes that the other end has not read."""
        return self.link.other(self)._unread  # noqa: SLF001 - of the same class

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Choose the receiver of callbacks."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The receiver of callbacks."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    # ---- what comes

    @property
    def late(self) -> bool:
        """Whether anything is on its way to this end."""
        return bool(self._arriving)

    def arrive(self, what: Callable[[], None], seconds: float = 0.0) -> None:
        """Schedule an arrival here, after all earlier ones."""
        loop = self.link.wire.loop
        due = max(self._last, loop.now + LATENCY + seconds)
        self._last = due
        self._arriving.append(what)
        loop.after(due - loop.now, self._take, context=self.context)

    def arrive_data(self, data: bytes, seconds: float = 0.0) -> None:
        """Schedule the arrival of bytes."""
        self.arrive(lambda: self._data(data), seconds)

    def arrive_end(self, seconds: float = 0.0) -> None:
        """Schedule the arrival of the other end's close."""
        self.arrive(self._end, seconds)

    def arrive_error(self, seconds: float = 0.0) -> None:
        """Schedule the arrival of a reset."""
        self.arrive(self._reset, seconds)

    def open(self, factory: Callable[[], Any]) -> None:
        """Announce the connection to the protocol."""

        def opened() -> None:
            self._protocol = factory()
            self._protocol.connection_made(self)

        self.arrive(opened)

    def _take(self) -> None:
        what = self._arriving.popleft()
        if self._reading and not self._waiting:
            what()
        else:
            self._waiting.append(what)

    def _catch_up(self) -> None:
        while self._reading and self._waiting:
            self._waiting.popleft()()
        if not self._waiting:
            self._unread = 0
            self.link.other(self).carry_on()

    def _data(self, data: bytes) -> None:
        if self._closing:
            return
        self._protocol.data_received(data)

    def _end(self) -> None:
        if not self._closing and not self._protocol.eof_received():
            self.close()

    def _reset(self) -> None:
        if not self._closing:
            self._closing = True
            self._lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _lose(self, error: Exception | None) -> None:
        self.gone = True
        if self._protocol is not None:
            loop = self.link.wire.loop
            loop.call_soon(self._protocol.connection_lost, error, context=self.context)
        self.link.forget()

    # ---- back pressure

    def crowd(self, size: int) -> None:
        """Count bytes that arrive while reading is paused; the sender may have to wait."""
        if not self._reading:
            self._unread += size
            self.link.other(self).hold_on(self._unread)

    def hold_on(self, unread: int) -> None:
        """Pause writing of the protocol here, if the other end has too many unread bytes."""
        if unread > self._high and not self._stopped and not self._closing:
            self._stopped = True
            self.link.wire.loop.call_soon(self._protocol.pause_writing, context=self.context)

    def carry_on(self) -> None:
        """Resume writing of the protocol here."""
        if self._stopped and not self._closing:
            self._stopped = False
            self.link.wire.loop.call_soon(self._protocol.resume_writing, context=self.context)
