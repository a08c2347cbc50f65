"""How long to wait before the next attempt: growing pauses, and the rate limiters of queues."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

import attrs

# ---- rate limiters of a work queue: how long a failed key waits ----------------------------------

FIRST_DELAY, LONGEST_DELAY = 0.005, 60.0
"""Seconds until the first retry of a key, and the most seconds between retries."""
K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)


class RateLimiter(Protocol[K_contra]):
    """Returns how long a key waits before its next attempt."""

    def when(self, key: K_contra, now: float) -> float:
        """Count an attempt of `key` and return the seconds it must wait."""

    def forget(self, key: K_contra) -> None:
        """The key succeeded: its next failure is its first."""

    def num_requeues(self, key: K_contra) -> int:
        """How many attempts of `key` are counted."""


class _Counting(Generic[K]):
    """Attempts per key."""

    def __init__(self) -> None:
        self._attempts: dict[K, int] = {}

    def _count(self, key: K) -> int:
        before = self._attempts.get(key, 0)
        self._attempts[key] = before + 1
        return before

    def forget(self, key: K) -> None:
        self._attempts.pop(key, None)

    def num_requeues(self, key: K) -> int:
        return self._attempts.get(key, 0)


class ItemExponential(_Counting[K]):
    """`base * 2**failures` seconds per key, at most `cap`.

    The default cap is a minute: with client-go's 1,000 seconds, a key that failed during an outage
    of two minutes would be retried up to five minutes after it.
    """

    def __init__(self, base: float = FIRST_DELAY, cap: float = LONGEST_DELAY) -> None:
        super().__init__()
        self._base, self._cap = base, cap

    def when(self, key: K, now: float) -> float:  # noqa: ARG002 - the protocol's
        """The next delay of `key` in seconds."""
        return min(self._base * 2.0 ** min(self._count(key), 1000), self._cap)


class ReconcilerBackoff(Generic[K]):
    """The delays after failures that an author chose, and the usual short ones after conflicts.

    A conflict only means that the cache was stale, so it must not cost a long first delay.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._failures: ItemExponential[K] = ItemExponential(first, longest)
        self._conflicts: ItemExponential[K] = ItemExponential()
        self._conflicting: set[K] = set()

    def conflict(self, key: K) -> None:
        """The next attempt of `key` follows a conflict."""
        self._conflicting.add(key)

    def when(self, key: K, now: float) -> float:
        """The next delay of `key` in seconds."""
        if key in self._conflicting:
            self._conflicting.discard(key)
            return self._conflicts.when(key, now)
        return self._failures.when(key, now)

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure is its first."""
        self._conflicting.discard(key)
        self._conflicts.forget(key)
        self._failures.forget(key)

    def num_requeues(self, key: K) -> int:
        """How many attempts of `key` are counted."""
        return self._conflicts.num_requeues(key) + self._failures.num_requeues(key)


class TokenBucket:
    """`rate` tokens per second, at most `burst` saved; the same bucket for every key.

    Each call reserves a token and returns how long to wait for it, so reservations queue up.
    """

    __slots__ = ("_at", "_burst", "_rate", "_tokens")  # one per object that events are about

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._tokens = float(burst)
        self._at: float | None = None

    def when(self, key: object, now: float) -> float:  # noqa: ARG002 - the protocol's
        """Seconds until the reserved token exists."""
        if self._at is not None:
            earned = max(0.0, now - self._at) * self._rate
            self._tokens = min(float(self._burst), self._tokens + earned)
        self._at = now if self._at is None else max(self._at, now)
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._rate)

    def take(self, now: float) -> bool:
        """Take a token if one exists now; reserve nothing otherwise."""
        if self.when(None, now) > 0.0:
            self._tokens += 1.0
            return False
        return True

    def forget(self, key: object) -> None:
        """Does nothing: a bucket does not remember keys."""

    def num_requeues(self, key: object) -> int:  # noqa: ARG002 - the protocol's
        """Always 0: a bucket does not count keys."""
        return 0


# --------------------------------------------------------------------------------------------------


@attrs.define
class Backoff:
    """Pauses of `base`, `base * factor`, ... seconds, at most `cap`, each stretched by jitter.

    Attributes:
        base: the first pause in seconds.
        factor: growth per attempt.
        cap: the longest pause in seconds, before jitter.
        jitter: a pause becomes up to `1 + jitter` times as long.
        reset_after: after so many seconds without a call, the next pause is the first again; it
            must exceed the longest pause, or a long pause would count as recovery.
    """

    base: float = 0.8
    factor: float = 2.0
    cap: float = 30.0
    jitter: float = 1.0
    reset_after: float = 120.0
    _attempts: int = attrs.field(default=0, init=False)
    _last: float | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        if not (0 < self.base <= self.cap and self.factor >= 1 and self.jitter >= 0):
            raise ValueError("back-off needs 0 < base <= cap, factor >= 1 and jitter >= 0")
        if self.reset_after <= self.cap * (1 + self.jitter):
            raise ValueError("reset_after must exceed the longest pause")

    @property
    def attempts(self) -> int:
        """Calls of `next` since the last reset."""
        return self._attempts

    def next(self, now: float, chance: float) -> float:
        """The next pause in seconds.

        Args:
            now: the time; only differences matter.
            chance: a random number in [0, 1).
        """
        if self._last is not None and now - self._last > self.reset_after:
            self.reset()
        self._last = now
        grown = self.base * self.factor ** min(self._attempts, 1000 if self.factor <= 2 else 100)
        self._attempts += 1
        return min(grown, self.cap) * (1.0 + self.jitter * chance)

    def reset(self) -> None:
        """After a success: the next pause is the first again."""
        self._attempts = 0
