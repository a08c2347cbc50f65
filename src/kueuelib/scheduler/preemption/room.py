"""The arithmetic of one search for victims: what is still missing while workloads are removed.

The same sums as in `Snapshot`, restricted to the pairs that the preemptor asks for and kept as
plain numbers, because a search may remove thousands of workloads. With `g` the part of nominal
quota that is never lent, `S` what all other members use beyond theirs, and `u` what the
preemptor's ClusterQueue uses, it may use

    min(g + capacity of the cohort - S, ceiling) - u

more, where the ceiling is nominal quota plus borrowing limit (spec/scheduling 2.4).
"""

from __future__ import annotations

from math import inf

from kueuelib.scheduler.amounts import Amounts, FlavorResource
from kueuelib.scheduler.holders import Holder
from kueuelib.scheduler.snapshot import FrozenQueue, Snapshot


class Room:
    """What the preemptor's ClusterQueue may use of every needed pair.

    Args:
        snapshot: the state to begin with; not changed.
        queue: the preemptor's ClusterQueue.
        needed: what has to fit, all amounts positive.
        contested: the pairs that decide whether another ClusterQueue borrows.
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
        self._own = queue.spec.name
        self._contested = contested
        self._pairs = (*needed, *sorted(contested.difference(needed)))
        self._reach: list[float] = []
        self._ceiling: list[float] = []
        self._taken: list[int] = []
        self._elsewhere: dict[str, list[int]] = {}
        cohort = snapshot.cohort_of(queue)
        for pair in self._pairs:
            limits, used = snapshot.limits(queue, pair), snapshot.usage(queue, pair)
            ceiling: float = limits.nominal
            reach: float = limits.nominal
            if cohort is not None:
                beyond = max(0, used - limits.guaranteed)
                shared = snapshot.shared_use(cohort, pair) - beyond
                reach = limits.guaranteed + cohort.capacity.get(pair, 0) - shared
                if borrow:
                    ceiling = inf if limits.ceiling is None else limits.ceiling
            if pair not in needed:
                reach = ceiling = inf
            self._reach.append(reach)
            self._ceiling.append(ceiling)
            self._taken.append(used + needed.get(pair, 0))

    @property
    def enough(self) -> bool:
        """Whether everything fits now."""
        for taken, reach, ceiling in zip(self._taken, self._reach, self._ceiling, strict=True):
            if taken > reach or taken > ceiling:
                return False
        return True

    def lacks(self) -> dict[FlavorResource, int]:
        """How much of every pair is still missing."""
        found = {}
        for index, pair in enumerate(self._pairs):
            lack = self._taken[index] - min(self._reach[index], self._ceiling[index])
            if lack > 0:
                found[pair] = int(lack)
        return found

    def borrows(self, queue: FrozenQueue) -> bool:
        """Whether another ClusterQueue uses more than its nominal quota of a contested pair."""
        usage = self._usage_of(queue)
        return any(
            usage[index] > self._snapshot.limits(queue, pair).nominal
            for index, pair in enumerate(self._pairs)
            if pair in self._contested
        )

    def remove(self, holder: Holder, queue: FrozenQueue) -> None:
        """Lets a workload leave."""
        self._move(holder, queue, -1)

    def restore(self, holder: Holder, queue: FrozenQueue) -> None:
        """Brings a workload back."""
        self._move(holder, queue, 1)

    def _move(self, holder: Holder, queue: FrozenQueue, sign: int) -> None:
        charged = holder.usage
        if queue.spec.name == self._own:
            for index, pair in enumerate(self._pairs):
                if pair in charged:
                    self._taken[index] += sign * charged[pair]
            return
        usage = self._usage_of(queue)
        for index, pair in enumerate(self._pairs):
            if pair in charged:
                before = usage[index]
                after = usage[index] = before + sign * charged[pair]
                guaranteed = self._snapshot.limits(queue, pair).guaranteed
                moved = max(0, after - guaranteed) - max(0, before - guaranteed)
                self._reach[index] -= moved

    def _usage_of(self, queue: FrozenQueue) -> list[int]:
        name = queue.spec.name
        found = self._elsewhere.get(name)
        if found is None:
            found = [self._snapshot.usage(queue, pair) for pair in self._pairs]
            self._elsewhere[name] = found
        return found
