"""A ranking for each LocalQueue, so that LocalQueues may change places without any sorting.

Within a LocalQueue the order of workloads is fixed. Past usage (KEP-4136) changes the places of
whole LocalQueues only, so the next head is one of their first workloads. Where past usage does not
count, all share one lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.pending.item import Pending
from kueuelib.scheduler.pending.ranking import Ranking

E = TypeVar("E", bound=tuple[Any, ...])

Lane = ObjectKey | None
"""A LocalQueue; None where all share one lane."""


class Lanes(Generic[E]):
    """Entries in their order, each for a workload, by the lane of the workload.

    Args:
        find: the workload that an entry in a lane is for, None when the entry is out of date.
    """

    def __init__(self, find: Callable[[E], Pending | None]) -> None:
        self._find = find
        self._rankings: dict[Lane, Ranking[E]] = {}

    def __iter__(self) -> Iterator[Pending]:
        for ranking in self._rankings.values():
            yield from ranking

    def push(self, entry: E) -> None:
        """Adds an entry, which ends with its lane."""
        lane = entry[-1]
        ranking = self._rankings.get(lane)
        if ranking is None:
            ranking = self._rankings[lane] = Ranking(self._find)
        ranking.push(entry)

    def pop(self, lane: Lane) -> None:
        """Drops the first entry of a lane."""
        self._rankings[lane].pop()

    def first(self, lane: Lane) -> Pending | None:
        """The workload that comes first in a lane, None when there is none."""
        ranking = self._rankings.get(lane)
        if ranking is None:
            return None
        item = ranking.first()
        if item is None:
            del self._rankings[lane]
        return item

    def firsts(self) -> list[Pending]:
        """The first workload of every lane."""
        found = map(self.first, tuple(self._rankings))
        return [item for item in found if item is not None]
