"""Rate limiters of a work queue: how long a failed key waits (spec/framework 1.3)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)


class RateLimiter(Protocol[K_contra]):
    """Answers how long a key waits before its next attempt."""

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

    By default at most a minute: with the 1,000 seconds of client-go, a key that failed all through
    an outage of two minutes would be retried up to five minutes after it.
    """

    def __init__(self, base: float = 0.005, cap: float = 60.0) -> None:
        super().__init__()
        self._base, self._cap = base, cap

    def when(self, key: K, now: float) -> float:  # noqa: ARG002 - the protocol's
        """The next delay of `key` in seconds."""
        return min(self._base * 2.0 ** min(self._count(key), 1000), self._cap)


class FastSlow(_Counting[K]):
    """`fast` seconds for the first `fast_attempts` attempts of a key, `slow` afterwards."""

    def __init__(self, fast: float, slow: float, fast_attempts: int) -> None:
        super().__init__()
        self._fast, self._slow, self._fast_attempts = fast, slow, fast_attempts

    def when(self, key: K, now: float) -> float:  # noqa: ARG002 - the protocol's
        """The next delay of `key` in seconds."""
        return self._fast if self._count(key) < self._fast_attempts else self._slow


class TokenBucket:
    """`rate` tokens per second, at most `burst` saved; the same bucket for every key.

    Each call reserves a token and returns when it will exist, so that reservations queue up.
    """

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
        """A bucket remembers no key."""

    def num_requeues(self, key: object) -> int:  # noqa: ARG002 - the protocol's
        """A bucket counts no key."""
        return 0


class MaxOf(Generic[K]):
    """The longest of several limiters; each of them counts every attempt."""

    def __init__(self, *limiters: RateLimiter[K]) -> None:
        self._limiters = limiters

    def when(self, key: K, now: float) -> float:
        """The longest delay in seconds."""
        return max(limiter.when(key, now) for limiter in self._limiters)

    def forget(self, key: K) -> None:
        """Forget the key in every limiter."""
        for limiter in self._limiters:
            limiter.forget(key)

    def num_requeues(self, key: K) -> int:
        """The largest count."""
        return max(limiter.num_requeues(key) for limiter in self._limiters)


class MaxWait(Generic[K]):
    """Another limiter, with at most `cap` seconds."""

    def __init__(self, limiter: RateLimiter[K], cap: float) -> None:
        self._limiter, self._cap = limiter, cap

    def when(self, key: K, now: float) -> float:
        """The delay in seconds."""
        return min(self._limiter.when(key, now), self._cap)

    def forget(self, key: K) -> None:
        """Forget the key."""
        self._limiter.forget(key)

    def num_requeues(self, key: K) -> int:
        """The count of the other limiter."""
        return self._limiter.num_requeues(key)
