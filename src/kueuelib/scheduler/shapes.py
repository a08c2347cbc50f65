"""Workloads of equal shape in one ClusterQueue: how they wait, and what was found out about them.

Equal shapes get equal verdicts (spec/scheduling 9.3, equivalence classes).
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.pending import Pending
from kueuelib.scheduler.reasons import Reason
from kueuelib.scheduler.workload_info import Shape, WorkloadInfo

STALE_KEPT = 64
"""Entries of a heap that may be out of date before it is cleared of them."""


class ShapeGroup:
    """The workloads of one shape that wait in one ClusterQueue.

    Attributes:
        active: whether they are to be tried; otherwise they are parked.
        untold: those about which nothing was told yet.
    """

    def __init__(self, *, active: bool) -> None:
        self.active = active
        self.untold: dict[ObjectKey, None] = {}
        self._orders: dict[ObjectKey, QueueOrder] = {}
        self._heap: list[tuple[QueueOrder, ObjectKey]] = []

    def __len__(self) -> int:
        return len(self._orders)

    def join(self, item: Pending) -> None:
        """Adds a workload."""
        key = item.info.key
        self._orders[key] = item.info.order
        heappush(self._heap, (item.info.order, key))
        if len(self._heap) > 2 * len(self._orders) + STALE_KEPT:
            self._heap = [(order, each) for each, order in self._orders.items()]
            heapify(self._heap)
        if item.reason is None:
            self.untold[key] = None

    def leave(self, key: ObjectKey) -> None:
        """Takes a workload out."""
        del self._orders[key]
        self.untold.pop(key, None)

    def first(self) -> tuple[QueueOrder, ObjectKey] | None:
        """The workload that comes first, None when the group is empty."""
        while self._heap:
            order, key = self._heap[0]
            if self._orders.get(key) == order:
                return self._heap[0]
            heappop(self._heap)
        return None


@attrs.frozen
class Asks:
    """What all workloads of a shape ask for, as far as it tells what may help them.

    Attributes:
        least: per resource what a pod set needs at least that asks for it, the smallest one if
            there are several; nothing else can change a verdict, and no less can help without a
            preemption.
        priority: the priority.
        joint: whether several choices of flavors are to be made, so that one depends on the other.
            Not all combinations are tried: room or victims may be found just because somebody else
            took what would have been chosen.
    """

    least: Mapping[str, int]
    priority: int
    joint: bool


def what_is_asked(info: WorkloadInfo, *, groups: int, choosy: bool) -> Asks:
    """What a workload asks for.

    Args:
        info: the workload.
        groups: how many resource groups its ClusterQueue has.
        choosy: whether any of them has several flavors.
    """
    least: dict[str, int] = {}
    for found in info.pod_sets:
        fewest = found.count if found.min_count is None else min(found.count, found.min_count)
        for resource, amount in found.requests(fewest, count_pods=True).items():
            least[resource] = min(amount, least.get(resource, amount))
    return Asks(least, info.priority, choosy and (groups > 1 or len(info.pod_sets) > 1))


@attrs.frozen
class Verdict:
    """What came of trying a shape in vain.

    Attributes:
        reason: why.
        queued_at: the age of the oldest workload of the shape that was tried.
        asks: what the shape asks for.
        began: the cycle in which the pass over the flavors began; `OPEN` when something that
            matters happened in the course of it.
    """

    reason: Reason
    queued_at: float
    asks: Asks
    began: int


OPEN = -1
"""In place of a cycle: the verdict is not the last word, whatever happens."""


class Passing:
    """Parked shapes that let their turn pass, by the order in which their turns come."""

    def __init__(self) -> None:
        self._orders: dict[Shape, QueueOrder] = {}
        self._heap: list[tuple[QueueOrder, int, Shape]] = []
        self._serial = 0

    def __bool__(self) -> bool:
        return bool(self._orders)

    def put(self, shape: Shape, order: QueueOrder) -> None:
        """A shape has one turn to come."""
        if self._orders.get(shape) != order:
            self._orders[shape] = order
            self._serial += 1
            heappush(self._heap, (order, self._serial, shape))

    def drop(self, shape: Shape) -> None:
        """A shape is tried in its turn, or has none any more."""
        self._orders.pop(shape, None)

    def clear(self) -> None:
        """No turn is to come."""
        self._orders.clear()
        self._heap.clear()

    def take(self, before: QueueOrder | None) -> bool:
        """Uses up the first turn if it comes before another one; None for no other one."""
        while self._heap:
            order, _, shape = self._heap[0]
            if self._orders.get(shape) == order:
                if before is not None and before < order:
                    return False
                del self._orders[shape]
                heappop(self._heap)
                return True
            heappop(self._heap)
        return False
