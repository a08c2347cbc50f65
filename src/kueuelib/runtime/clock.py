"""Time as the shells see it: injected, so that tests and the simulator can bring their own.

Pure code never asks a clock; its callers pass `now`.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any, Protocol, Self

# ---- deadlines of many short waits, with one timer of the event loop -----------------------------
# `asyncio.timeout` sets and cancels a timer for each wait; here most waits touch no timer at all.


class Deadlines:
    """The open deadlines of one part of a program, which runs on one event loop at a time."""

    def __init__(self) -> None:
        self.open: dict[Limit, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, limit: Limit, seconds: float) -> None:
        """Open a deadline. To close it, remove it from `open`: the timer serves further ones."""
        loop = asyncio.get_running_loop()
        at = self.open[limit] = loop.time() + seconds
        # A timer that is due stays: its callback comes before anything else of a later time.
        if self._timer is None or self._loop is not loop or at < self._timer_at:
            self._set(loop, at)

    def _set(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at, self._loop = loop.call_at(at, self._sweep, loop), at, loop

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        reached = max(self._timer_at, loop.time())
        self._timer = None
        for limit in [limit for limit, at in self.open.items() if at <= reached]:
            del self.open[limit]
            limit.expire()
        if self.open:
            self._set(loop, min(self.open.values()))


class Limit:
    """A context that cancels what its task awaits when a deadline passes.

    Like `asyncio.timeout`, it turns that cancellation into a `TimeoutError`.

    Args:
        deadlines: keeps the deadline.
        seconds: from `with` to the deadline; None: there is none.

    Attributes:
        expired: whether the deadline passed before the block ended.
    """

    __slots__ = ("_cancelling", "_deadlines", "_seconds", "_task", "expired")

    def __init__(self, deadlines: Deadlines, seconds: float | None) -> None:
        self.expired = False
        self._deadlines = deadlines
        self._seconds = seconds
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0

    def expire(self) -> None:
        """Cancel what is awaited."""
        assert self._task is not None
        self.expired = True
        self._task.cancel()

    def __enter__(self) -> Self:
        if self._seconds is not None:
            self._task = task = asyncio.current_task()
            assert task is not None, "a deadline is for a task"
            self._cancelling = task.cancelling()
            self._deadlines.add(self, self._seconds)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._deadlines.open.pop(self, None)
        # As in `asyncio.timeout`: another cancellation stays one.
        if (
            self.expired
            and self._task is not None
            and self._task.uncancel() <= self._cancelling
            and kind is asyncio.CancelledError
        ):
            raise TimeoutError from error


# --------------------------------------------------------------------------------------------------


class Clock(Protocol):
    """Gives the time, and waits."""

    def now(self) -> float:
        """Seconds since the epoch; for what is written to the API server."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start, never going back; for delays and deadlines."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; cancellation ends it at once."""
        ...


class SystemClock:
    """The clock of this machine."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Wait with the event loop's own timer."""
        await asyncio.sleep(seconds)


SYSTEM_CLOCK: Clock = SystemClock()
"""What every shell uses unless it is given another one."""
