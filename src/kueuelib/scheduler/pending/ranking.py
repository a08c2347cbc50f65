"""A heap whose entries may go out of date: they are skipped when they come first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from kueuelib.scheduler.pending.item import Pending

E = TypeVar("E", bound=tuple[Any, ...])

SPARE = 64
"""Entries that may be out of date before all of them are dropped."""


class Ranking(Generic[E]):
    """Entries in their order, each for a workload.

    Args:
        find: the workload that an entry is for, None when the entry is out of date.
    """

    def __init__(self, find: Callable[[E], Pending | None]) -> None:
        self._find = find
        self._entries: list[E] = []
        self._kept = 0

    def __iter__(self) -> Iterator[Pending]:
        return iter([item for item in map(self._find, self._entries) if item is not None])

    def push(self, entry: E) -> None:
        """Adds an entry."""
        if len(self._entries) > 2 * self._kept + SPARE:
            self._entries = sorted({each for each in self._entries if self._find(each) is not None})
            self._kept = len(self._entries)
        heappush(self._entries, entry)

    def first(self) -> Pending | None:
        """The workload that comes first, None when there is none."""
        while self._entries:
            item = self._find(self._entries[0])
            if item is not None:
                return item
            heappop(self._entries)
        return None

    def pop(self) -> None:
        """Drops the first entry."""
        heappop(self._entries)
