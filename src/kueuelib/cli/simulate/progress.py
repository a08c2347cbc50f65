"""Shows the progress of a simulation on standard error, if that is a terminal."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Self

from kueuelib.cli.progress import StatusLine
from kueuelib.simulator.listener import Listener
from kueuelib.simulator.live import Live
from kueuelib.simulator.trace import Trace

PAUSE = 0.5
"""Seconds between two lines."""


class Progress(Listener):
    """Shows virtual time, jobs and the estimated rest; a context manager.

    Args:
        name: of the run.
        trace: what is simulated.
    """

    def __init__(self, name: str, trace: Trace) -> None:
        self._name = name
        self._trace = trace
        self._line = StatusLine()
        self._began = self._next = time.monotonic()
        self._arrived = self._ended = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.clear()

    def arrived(self, live: Live, now: float) -> None:
        """Counts a job."""
        del live, now
        self._arrived += 1

    def ended(self, live: Live, end: str, now: float) -> None:
        """Counts a job."""
        del live, end, now
        self._ended += 1

    def rested(self, now: float, until: float) -> None:
        """Shows a line from time to time."""
        del until
        if not self._line.shows or time.monotonic() < self._next:
            return
        seconds = time.monotonic() - self._began
        self._next = time.monotonic() + PAUSE
        total, done = 2 * self._trace.count, self._arrived + self._ended
        left = timedelta(seconds=round(seconds * (total - done) / done)) if done else "?"
        passed = timedelta(seconds=round(now - (self._trace.first or 0.0)))
        self._line.show(
            f"{self._name}: {passed} simulated, {self._arrived:,} of {self._trace.count:,} jobs "
            f"arrived, {self._ended:,} ended, about {left} left"
        )
