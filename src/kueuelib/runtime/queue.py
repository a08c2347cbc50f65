"""The work queue as controllers see it: waiting around `QueueCore`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

from kueuelib.machinery.queue import Item, QueueCore
from kueuelib.machinery.rate_limits import RateLimiter
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import QueueTimes, Telemetry

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys to work on, for workers on one event loop.

    Args:
        name: for metrics.
        limiter: how long failed keys wait; exponential from 5 ms to 60 s by default.
        clock: monotonic time for delays.
        telemetry: where depth and durations are reported.
    """

    def __init__(
        self,
        name: str,
        *,
        limiter: RateLimiter[K] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.name = name
        self.core: QueueCore[K] = QueueCore(limiter)
        self._clock = clock
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._times = self._report(telemetry)

    def __len__(self) -> int:
        """How many keys are ready."""
        return len(self.core)

    def add(
        self, *keys: K, after: float = 0.0, priority: int | None = None, rate_limited: bool = False
    ) -> None:
        """Ask for a run of each key; see `QueueCore.add`."""
        now = self._clock.monotonic()
        if self.core.add(*keys, now=now, after=after, priority=priority, rate_limited=rate_limited):
            self._wake(now)

    def add_later(
        self,
        keys: Iterable[K],
        after: float,
        not_before: Callable[[K], float] = lambda _: 0.0,
    ) -> None:
        """Ask for a run of each key that is not due by then, or at most `after` later.

        Asking often costs little.

        Args:
            keys: what to work on.
            after: not before so many seconds.
            not_before: not before an instant either, for each, in monotonic seconds of the clock.
        """
        now, is_due = self._clock.monotonic(), self.core.is_due
        for key in keys:
            at = max(now + after, not_before(key))
            if not is_due(key, at + after):
                self.add(key, after=at - now)

    async def get(self) -> Item[K] | None:
        """The next key; None once the queue is shut down and empty."""
        while True:
            now = self._clock.monotonic()
            item = self.core.pop_ready(now)
            if item is not None:
                if self._times is not None:
                    self._times.waited(item.waited)
                self._wake(now)
                return item
            if self.core.exhausted:
                return None
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self._wake(now)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake(self._clock.monotonic())
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def done(self, key: K, *, settled: bool = False) -> None:
        """The worker ended its run of `key`; see `QueueCore.done`."""
        now = self._clock.monotonic()
        took, again = self.core.done(key, now, settled=settled)
        if self._times is not None:
            self._times.worked(took)
        if again or settled:
            self._wake(now)

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure is its first."""
        self.core.forget(key)

    def shut_down(self, *, drain: bool = False) -> None:
        """Ignore adds; hand out what is ready (`drain`), or nothing."""
        self.core.shut_down(drain=drain)
        self._wake(self._clock.monotonic())

    def _wake(self, now: float) -> None:
        """Wake a worker if there is something to do, else set the timer for the next delayed key.

        One at a time: a worker that gets a key wakes the next one. Keys that wait for their own
        earlier run do not count, so no worker wakes without work.
        """
        deadline = self.core.next_deadline(now) if self._waiters else None
        if deadline is not None and deadline > now:
            if self._timer is None or self._timer_at != deadline:
                self._stop_timer()
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(deadline - now, self._on_timer)
                self._timer_at = deadline
            return
        self._stop_timer()
        if deadline is not None:
            self._wake_one()
        elif self.core.exhausted:
            while self._waiters:
                self._wake_one()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _on_timer(self) -> None:
        self._timer = None
        self._wake(self._clock.monotonic())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _report(self, telemetry: Telemetry | None) -> QueueTimes | None:
        if telemetry is None:
            return None
        from kueuelib.runtime.telemetry import QueueSample

        def sample() -> QueueSample:
            now = self._clock.monotonic()
            core = self.core
            return QueueSample(
                core.depth, core.adds, core.retries, core.unfinished(now), core.longest_running(now)
            )

        return telemetry.add_queue(self.name, sample)
