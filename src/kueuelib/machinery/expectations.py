"""What a controller did and has not seen yet in its cache (spec/framework 5)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)

EXPECTATION_TIMEOUT = 300.0
"""Seconds after which an expectation is given up: its event was missed or will never come."""


class Expectations(Generic[K, V]):
    """Per key, the facts (for example UIDs) that the cache must still show.

    A reconciler that changed other objects notes them with `expect` before it writes, and does
    nothing for the key until `satisfied`. Facts may be observed before or after; only those that
    are expected are remembered.
    """

    def __init__(self, timeout: float = EXPECTATION_TIMEOUT) -> None:
        self._timeout = timeout
        self._open: dict[K, dict[V, float]] = {}

    def __len__(self) -> int:
        """How many keys have open expectations."""
        return len(self._open)

    def expect(self, key: K, facts: Iterable[V], now: float) -> None:
        """Wait for each fact, at most `timeout` seconds from `now`."""
        deadlines = dict.fromkeys(facts, now + self._timeout)
        if deadlines:
            self._open.setdefault(key, {}).update(deadlines)

    def observed(self, key: K, fact: V) -> None:
        """The cache shows a fact, or it will never be shown because the write failed."""
        found = self._open.get(key)
        if found is not None:
            found.pop(fact, None)
            if not found:
                del self._open[key]

    def satisfied(self, key: K, now: float) -> bool:
        """Whether nothing is waited for; what is overdue is given up."""
        found = self._open.get(key)
        if found is None:
            return True
        for fact in [fact for fact, deadline in found.items() if deadline <= now]:
            self.observed(key, fact)
        return key not in self._open

    def missing(self, key: K) -> frozenset[V]:
        """The facts still waited for."""
        return frozenset(self._open.get(key, ()))

    def deadline(self, key: K) -> float | None:
        """When the last expectation of the key is given up, or None when there is none."""
        return max(self._open.get(key, {}).values(), default=None)

    def forget(self, key: K) -> None:
        """The key is gone: wait for nothing."""
        self._open.pop(key, None)
