"""The missing quota while a search for victims removes workloads.

The rules are those of `kueuelib.scheduler.quota.arithmetic`, applied to a copy of the usage of the
pairs that matter, because a search may remove thousands of workloads.
"""

from __future__ import annotations

from kueuelib.scheduler.quota import arithmetic
from kueuelib.scheduler.quota.amounts import Amounts, FlavorResource
from kueuelib.scheduler.quota.arithmetic import Step
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.node import QuotaNode
from kueuelib.scheduler.quota.snapshot import FrozenQueue, Snapshot, Usage
from kueuelib.scheduler.values import value


class Room:
    """The quota that the preemptor's ClusterQueue may use, for every needed pair.

    Args:
        snapshot: the state to begin with; not changed.
        queue: the preemptor's ClusterQueue.
        needed: the request, all amounts positive.
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
        own = snapshot.nodes[queue.spec.name]
        self._snapshot = snapshot
        self._used = {pair: Usage(snapshot.used[pair]) for pair in sorted({*needed, *contested})}
        self._needed = {
            pair: _Need(own.steps[pair], self._used[pair], amount, borrow)
            for pair, amount in needed.items()
        }
        held, self._columns = self._used, [self._used]
        if snapshot.held is not snapshot:
            held = {pair: Usage(snapshot.held.used[pair]) for pair in contested}
            self._columns.append(held)
        self._contested = [(pair, held[pair]) for pair in contested]
        self._ways: dict[str, list[list[tuple[Step, Usage]]]] = {}

    @property
    def enough(self) -> bool:
        """Whether everything fits now."""
        return all(need.lack <= 0 for need in self._needed.values())

    def lacks(self) -> dict[FlavorResource, int]:
        """How much of every pair is still missing."""
        lacks = {pair: need.lack for pair, need in self._needed.items()}
        return {pair: lack for pair, lack in lacks.items() if lack > 0}

    def borrows(self, queue: FrozenQueue, cohort: QuotaNode) -> bool:
        """Whether what is held in another ClusterQueue still borrows some contested pair.

        Args:
            queue: the ClusterQueue.
            cohort: the lowest common cohort; every node below it on the way has to borrow.
        """
        for places in self._way(queue, cohort):
            for here, used in places:
                if used[here.key] > here.nominal:
                    break
            else:
                return False
        return True

    def _way(self, queue: FrozenQueue, cohort: QuotaNode) -> list[list[tuple[Step, Usage]]]:
        """The nodes from a ClusterQueue up to those below a cohort, each with every pair."""
        way = self._ways.get(queue.spec.name)
        if way is None:
            node = self._snapshot.nodes[queue.spec.name]
            columns = [(node.steps[pair], used) for pair, used in self._contested]
            way = self._ways[queue.spec.name] = [
                [(steps[index], used) for steps, used in columns]
                for index in range(node.path.index(cohort))
            ]
        return way

    def remove(self, holder: Holder, queue: FrozenQueue) -> None:
        """Lets a workload leave."""
        self._move(holder, queue, -1)

    def restore(self, holder: Holder, queue: FrozenQueue) -> None:
        """Brings a workload back."""
        self._move(holder, queue, 1)

    def _move(self, holder: Holder, queue: FrozenQueue, sign: int) -> None:
        node, charged = self._snapshot.nodes[queue.spec.name], holder.usage
        for columns in self._columns:
            for pair, used in columns.items():
                if pair in charged:
                    arithmetic.add_along(node.steps[pair], sign * charged[pair], used)


@value
class _Need:
    """The preemptor's request for one pair.

    Attributes:
        steps: from its ClusterQueue up.
        used: the usage.
        amount: how much it needs.
        borrow: whether it may end above its nominal quota.
    """

    steps: tuple[Step, ...]
    used: Usage
    amount: int
    borrow: bool

    @property
    def lack(self) -> int:
        """How much is missing; negative if there is more than enough."""
        free = arithmetic.available_along(self.steps, self.used)
        if not self.borrow:
            here = self.steps[0]
            free = min(free, here.nominal - self.used[here.key])
        return self.amount - free
