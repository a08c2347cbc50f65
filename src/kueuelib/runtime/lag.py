"""Measures how late the event loop is, for example because a handler or reconciler blocks it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kueuelib.runtime.telemetry import Telemetry

PERIOD = 1.0
"""Seconds between two measurements."""


class LoopLag:
    """Measures the lateness of timers; a part of a `Manager`.

    `kueuelib_loop_lag_seconds` is the last measurement.

    Args:
        telemetry: where to report.
        period: seconds between two measurements.
    """

    def __init__(self, telemetry: Telemetry, *, period: float = PERIOD) -> None:
        self._period = period
        self._gauge = telemetry.gauge(
            "kueuelib_loop_lag_seconds", "How late the event loop ran a timer."
        )

    async def run(self, ready: Callable[[], None]) -> None:
        """Measure until cancelled."""
        ready()
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + self._period
            await asyncio.sleep(self._period)
            self._gauge.set(max(loop.time() - due, 0.0))
