"""In which order Workloads come: a heap for each LocalQueue, so that these may change places.

Within a LocalQueue the order of Workloads is fixed. Past usage (KEP-4136) changes the places of
whole LocalQueues only, so the next head is one of their first Workloads. Where past usage does not
count, all share one lane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.pending.item import Pending
from kueuelib.scheduler.quota.decay import UNUSED, Value

E = TypeVar("E", bound=tuple[Any, ...])

Lane = ObjectKey | None
"""A LocalQueue; None where all share one lane."""

Entry = tuple[int, float, str, ObjectKey]
"""A Workload in a lane: what `QueueOrder` has, and its name. Flat, because heaps compare often."""

Usage = Callable[[ObjectKey], Value]
"""The past usage of a LocalQueue, now."""

SPARE = 64
"""Entries that may be out of date before all of them are dropped."""


class Ranking(Generic[E]):
    """A heap of entries that may go out of date: they are dropped when they come first.

    Its methods receive a function that finds the Workload of an entry, None if the entry is out of
    date. If it were stored here, its owner would be freed by the garbage collector only.
    """

    def __init__(self) -> None:
        self._entries: list[E] = []
        self._kept = 0

    def push(self, entry: E, find: Callable[[E], Pending | None]) -> None:
        """Adds an entry."""
        if len(self._entries) > 2 * self._kept + SPARE:
            self._entries = sorted({each for each in self._entries if find(each) is not None})
            self._kept = len(self._entries)
        heappush(self._entries, entry)

    def first(self, find: Callable[[E], Pending | None]) -> Pending | None:
        """The Workload that comes first, None when there is none."""
        entries = self._entries
        while entries:
            item = find(entries[0])
            if item is not None:
                return item
            heappop(entries)
        return None


class Lanes:
    """Workloads by LocalQueue, then by priority and age.

    Args:
        items: those that may be here, by name. Changed by the caller only.
        parked: whether those belong here, too, that are not to have a turn.
    """

    def __init__(self, items: Mapping[ObjectKey, Pending], *, parked: bool) -> None:
        self._items = items
        self._parked = parked
        self._rankings: dict[Lane, Ranking[Entry]] = {}

    def _current(self, entry: Entry) -> Pending | None:
        item = self._items.get(entry[-1])
        if item is None or item.entry is not entry:
            return None
        return item if self._parked or item.has_turn else None

    def push(self, item: Pending) -> None:
        """Adds a Workload; one that was added before may be added again."""
        ranking = self._rankings.get(item.lane)
        if ranking is None:
            ranking = self._rankings[item.lane] = Ranking()
        ranking.push(item.entry, self._current)

    def first(self, lane: Lane) -> Pending | None:
        """The Workload that comes first in a lane, None when there is none."""
        ranking = self._rankings.get(lane)
        if ranking is None:
            return None
        item = ranking.first(self._current)
        if item is None:
            del self._rankings[lane]
        return item

    def firsts(self) -> list[Pending]:
        """The first Workload of each lane."""
        return list(filter(None, map(self.first, tuple(self._rankings))))


class Heap(Lanes):
    """The Workloads of one ClusterQueue that are to have a turn.

    Args:
        items: the Workloads of the ClusterQueue, by name. Changed by the caller only.
        usage: the past usage of LocalQueues; None where it does not count.

    Attributes:
        sticky: the Workload for which others were preempted last; it stays first until it leaves
            the ClusterQueue, so that nothing overtakes it and takes what becomes free.
        last: the Workload whose turn it was last.
    """

    def __init__(self, items: Mapping[ObjectKey, Pending], usage: Usage | None) -> None:
        super().__init__(items, parked=False)
        self._usage = usage
        self.sticky: ObjectKey | None = None
        self.last: ObjectKey | None = None

    def head(self) -> Pending | None:
        """The Workload whose turn it is: the sticky one, or by past usage, priority and age."""
        sticky = None if self.sticky is None else self._items.get(self.sticky)
        if sticky is not None and sticky.has_turn:
            return sticky
        if self._usage is None:  # all share one lane
            return self.first(None)
        return min(self.firsts(), key=self.place, default=None)

    @property
    def has_new_head(self) -> bool:
        """Whether it is not the turn of the Workload whose turn it was last."""
        head = self.head()
        return head is not None and head.info.key != self.last

    def place(self, item: Pending) -> tuple[Value, QueueOrder, ObjectKey]:
        """By what a Workload is ordered: the least comes first."""
        return self.usage(item), item.info.order, item.info.key

    def usage(self, item: Pending) -> Value:
        """The past usage of the LocalQueue of a Workload; the same for all where none counts."""
        return UNUSED if self._usage is None else self._usage(item.info.local_queue)
