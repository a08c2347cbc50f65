"""The order of Workloads: a heap for each LocalQueue, so that LocalQueues can change places.

Within a LocalQueue the order of Workloads is fixed. Past usage (KEP-4136) only changes the places
of whole LocalQueues, so the next head is one of their first Workloads. If past usage does not
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
"""A LocalQueue; None if all share one lane."""

Entry = tuple[int, float, str, ObjectKey]
"""A Workload in a lane: what `QueueOrder` has, and its name. Flat, because heaps compare often."""

Usage = Callable[[ObjectKey], Value]
"""The past usage of a LocalQueue, now."""

SPARE = 64
"""The maximum number of outdated entries before all of them are dropped."""


class Ranking(Generic[E]):
    """A heap of entries that may become outdated; these are dropped when they come first.

    Its methods receive a function that finds the Workload of an entry, None if the entry is out of
    date. Storing it here would leave its owner to the garbage collector.
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

    def drop(self, entry: E) -> None:
        """Removes an entry that became outdated, if it comes first."""
        entries = self._entries
        if entries and entries[0] is entry:
            heappop(entries)

    def first(self, find: Callable[[E], Pending | None]) -> Pending | None:
        """The first Workload, or None."""
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
        items: those that may be here, by name. Only the caller changes it.
        parked: whether those without a turn belong here, too.
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

    def drop(self, item: Pending) -> None:
        """Notes that a Workload is no longer here."""
        ranking = self._rankings.get(item.lane)
        if ranking is not None:
            ranking.drop(item.entry)

    def first(self, lane: Lane) -> Pending | None:
        """The first Workload of a lane, or None."""
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
    """The Workloads of one ClusterQueue that get a turn.

    Args:
        items: the Workloads of the ClusterQueue, by name. Only the caller changes it.
        usage: the past usage of LocalQueues; None if it does not count.

    Attributes:
        sticky: the last Workload for which others were preempted; it stays first until it is
            parked or leaves the ClusterQueue, so that no other takes the freed quota.
        last: the Workload that had the last turn.
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
        """Whether the next turn belongs to another Workload than the last one."""
        head = self.head()
        return head is not None and head.info.key != self.last

    def place(self, item: Pending) -> tuple[Value, QueueOrder, ObjectKey]:
        """The sort key of a Workload; the least comes first."""
        return self.usage(item), item.info.order, item.info.key

    def usage(self, item: Pending) -> Value:
        """The past usage of a Workload's LocalQueue; the same for all if it does not count."""
        return UNUSED if self._usage is None else self._usage(item.info.local_queue)
