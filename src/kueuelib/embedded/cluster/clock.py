"""The time of the simulated cluster; tests use a clock that they advance themselves."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Protocol


class WakeableClock(Protocol):
    """Gives the time, and waits for a signal or an instant."""

    def now(self) -> float:
        """Seconds since the epoch."""

    async def wait(self, signal: asyncio.Event, until: float | None) -> None:
        """Returns when the signal is set, or at the instant; None: only on the signal."""


class SteadyClock:
    """The clock of this machine, immune to steps of its wall clock."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch, advancing evenly from the start of the process."""
        return self._offset + time.monotonic()

    async def wait(self, signal: asyncio.Event, until: float | None) -> None:
        """Waits with the timer of the event loop."""
        if signal.is_set():
            return
        if until is None:
            await signal.wait()
            return
        try:
            async with asyncio.timeout(max(until - self.now(), 0.0)):
                await signal.wait()
        except TimeoutError:
            return


class ManualClock:
    """A clock that stands still until it is advanced."""

    def __init__(self, start: float) -> None:
        if not math.isfinite(start):
            raise ValueError(f"a clock cannot start at {start!r}: give seconds since the epoch")
        self._now = start
        self._waiting: set[asyncio.Event] = set()

    def now(self) -> float:
        """The instant it was set to."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Advances in one step; all waiters for an instant check again.

        Raises:
            ValueError: time would go back, or stand still.
        """
        self.move_to(self.after(seconds))

    def after(self, seconds: float) -> float:
        """The instant that is so many seconds from now.

        Raises:
            ValueError: time would go back, or stand still.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"a clock cannot move by {seconds!r} s: give a number of at least 0")
        return self._now + seconds

    def move_to(self, instant: float) -> None:
        """Advances to an instant in seconds since the epoch; an earlier one changes nothing."""
        self._now = max(self._now, instant)
        for signal in tuple(self._waiting):
            signal.set()

    async def wait(self, signal: asyncio.Event, until: float | None) -> None:
        """Waits for the signal, which `advance` sets as well."""
        if until is not None and until <= self._now:
            return
        self._waiting.add(signal)
        try:
            await signal.wait()
        finally:
            self._waiting.discard(signal)
