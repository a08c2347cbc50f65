"""Time of the simulated cluster; tests bring a clock that they move by hand."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Where instants come from, and how one waits for a signal or an instant."""

    def now(self) -> float:
        """Seconds since the epoch."""

    async def wait(self, signal: asyncio.Event, until: float | None) -> None:
        """Returns when the signal is set, or at the instant; None: only at the signal."""


class SystemClock:
    """The clock of this machine, immune to steps of its wall clock."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch, going on evenly from the start of the process."""
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
        self._now = start
        self._waiting: set[asyncio.Event] = set()

    def now(self) -> float:
        """The instant it was set to."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Moves on; whoever waits for an instant looks again."""
        self._now += seconds
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
