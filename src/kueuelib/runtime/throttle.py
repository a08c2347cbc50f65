"""A client-side rate limit; off unless asked for."""

from __future__ import annotations

from kueuelib.machinery.rate_limits import TokenBucket
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock


class Throttle:
    """Lets `qps` calls per second pass, and `burst` at once after a pause; in order.

    Args:
        qps: calls per second.
        burst: calls that may pass at once.
        clock: time.
    """

    def __init__(self, qps: float, burst: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._limits = qps, burst, clock
        self._bucket = TokenBucket(qps, burst)
        self._clock = clock

    def alike(self) -> Throttle:
        """Another one with the same limits: calls that wait for it delay nobody here."""
        return Throttle(*self._limits)

    async def __call__(self) -> None:
        """Wait for this call's turn."""
        seconds = self._bucket.when(None, self._clock.monotonic())
        if seconds > 0:
            await self._clock.sleep(seconds)
