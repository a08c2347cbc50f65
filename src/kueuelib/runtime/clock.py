"""Time as the shells see it: injected, so that tests and the simulator can bring their own.

Pure code never asks a clock; its callers pass `now`.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


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
