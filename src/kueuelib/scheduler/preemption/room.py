"""What is still missing while a search for victims removes workloads.

The rules are those of `kueuelib.scheduler.quota.arithmetic`, applied to a copy of the usage of the
pairs that matter, because a search may remove thousands of workloads.
"""

from __future__ import annotations

from kueuelib.scheduler.amounts import Amounts, FlavorResource
from kueuelib.scheduler.holders import Holder
from kueuelib.scheduler.quota import arithmetic
from kueuelib.scheduler.quota.node import QuotaNode
from kueuelib.scheduler.snapshot import FrozenQueue, Snapshot, Usage


class Room:
    """What the preemptor's ClusterQueue may use of every needed pair.

    Args:
        snapshot: the state to begin with; not changed.
        queue: the preemptor's ClusterQueue.
        needed: what has to fit, all amounts positive.
        contested: the pairs that decide whether others borrow.
        borrow: whether the preemptor may end above its nominal quota.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        queue: FrozenQueue,
        needed: Amounts,
        contested: frozenset[FlavorResource],
        *,
        borrow: bool,
    ) -> None:
        self._snapshot = snapshot
        self._own = snapshot.node(queue)
        self._needed = needed
        self._contested = contested
        self._borrow = borrow
        self._used = {
            pair: Usage(snapshot.used(pair).__getitem__) for pair in sorted({*needed, *contested})
        }

    @property
    def enough(self) -> bool:
        """Whether everything fits now."""
        return all(self._lack(pair) <= 0 for pair in self._needed)

    def lacks(self) -> dict[FlavorResource, int]:
        """How much of every pair is still missing."""
        lacks = {pair: self._lack(pair) for pair in self._needed}
        return {pair: lack for pair, lack in lacks.items() if lack > 0}

    def _lack(self, pair: FlavorResource) -> int:
        own, used, amount = self._own, self._used[pair], self._needed[pair]
        free = arithmetic.available(own, pair, used)
        if not self._borrow:
            free = min(free, arithmetic.quota_of(own, pair).nominal - used[own.key])
        return amount - free

    def borrows(self, queue: FrozenQueue, cohort: QuotaNode) -> bool:
        """Whether another ClusterQueue still borrows some contested pair.

        Args:
            queue: the ClusterQueue.
            cohort: the lowest one above it and the preemptor; every node below it on the way has to
                borrow.
        """
        here = self._snapshot.node(queue)
        while here is not cohort:
            if not any(
                arithmetic.borrows(here, pair, self._used[pair]) for pair in self._contested
            ):
                return False
            assert here.parent is not None, "it is below the cohort"
            here = here.parent
        return True

    def remove(self, holder: Holder, queue: FrozenQueue) -> None:
        """Lets a workload leave."""
        self._move(holder, queue, -1)

    def restore(self, holder: Holder, queue: FrozenQueue) -> None:
        """Brings a workload back."""
        self._move(holder, queue, 1)

    def _move(self, holder: Holder, queue: FrozenQueue, sign: int) -> None:
        node, charged = self._snapshot.node(queue), holder.usage
        for pair, used in self._used.items():
            if pair in charged:
                arithmetic.add(node, pair, sign * charged[pair], used)
