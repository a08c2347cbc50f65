"""Who may be preempted, and in which order (spec/scheduling 6.2 and 6.3).

Candidates hold quota in a pair of flavor and resource that is short, and the policies of the
preemptor's ClusterQueue let it take them. Those of other ClusterQueues count only while these
borrow. The order: who is on the way out already, other ClusterQueues before the own one, low
priority, new reservation, UID.

Every ClusterQueue keeps its workloads in that order, so candidates are produced one by one and only
as many as are looked at; a ClusterQueue whose lowest priority is out of reach is not looked at at
all (KEP-83).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from enum import Enum
from heapq import merge
from typing import NamedTuple

import attrs

from kueuelib.api.kueue import ANY, LOWER_OR_NEWER_EQUAL_PRIORITY, NEVER
from kueuelib.scheduler.amounts import Amounts, FlavorResource
from kueuelib.scheduler.holders import Holder, Ranked
from kueuelib.scheduler.preemption.victims import Path
from kueuelib.scheduler.snapshot import FrozenQueue, Snapshot


@attrs.frozen(eq=False)
class Preemptor:
    """Who wants quota.

    Attributes:
        queue: its ClusterQueue.
        priority: its priority.
        queued_at: its age, as its ClusterQueue orders it.
    """

    queue: FrozenQueue
    priority: int
    queued_at: float


class Borrowing(Enum):
    """What a round of removals may count on."""

    ALLOWED = "allowed"
    """The preemptor may borrow in the end; who is protected from borrowers stays."""
    FORBIDDEN = "forbidden"
    """The preemptor ends within its nominal quota."""


class Candidate(NamedTuple):
    """A workload that may be preempted.

    Attributes:
        holder: what it holds.
        queue: where it holds it.
        path: by which right it may be taken.
    """

    holder: Holder
    queue: FrozenQueue
    path: Path


class Candidates:
    """The candidates of one preemptor for one set of contested pairs.

    Args:
        snapshot: the state; not changed.
        preemptor: who wants quota.
        contested: the pairs that are short.
        needed: everything that the preemptor asks for, the contested pairs included.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        preemptor: Preemptor,
        contested: frozenset[FlavorResource],
        needed: Amounts,
    ) -> None:
        self._snapshot = snapshot
        self._preemptor = preemptor
        self._contested = contested
        queue = preemptor.queue
        policy = queue.spec.preemption
        self._own = [] if policy.within_cluster_queue == NEVER else [queue]
        self._others: list[FrozenQueue] = []
        if policy.reclaim_within_cohort != NEVER:
            self._others = snapshot.borrowers(queue, contested)
        self.within_nominal = all(
            snapshot.usage(queue, pair) + amount <= snapshot.limits(queue, pair).nominal
            for pair, amount in needed.items()
        )
        """Whether the preemptor would stay within its nominal quota: it has a right to it then."""
        self.any_elsewhere = next(self._foreign(Borrowing.FORBIDDEN), None) is not None
        """Whether other ClusterQueues have candidates."""

    def in_order(self, borrowing: Borrowing) -> Iterator[Candidate]:
        """The candidates; borrowing ClusterQueues may cease to borrow while they are removed."""
        yield from self._foreign(borrowing, leaving=True)
        yield from self._in_own_queue(leaving=True)
        yield from self._foreign(borrowing, leaving=False)
        yield from self._in_own_queue(leaving=False)

    def _in_own_queue(self, *, leaving: bool) -> Iterator[Candidate]:
        policy = self._preemptor.queue.spec.preemption.within_cluster_queue
        for queue in self._own:
            for _, holder in self._allowed(queue, policy, leaving=leaving):
                yield Candidate(holder, queue, Path.IN_CLUSTER_QUEUE)

    def _foreign(self, borrowing: Borrowing, *, leaving: bool | None = None) -> Iterator[Candidate]:
        policy = self._preemptor.queue.spec.preemption.reclaim_within_cohort
        if leaving is None:
            yield from self._foreign(borrowing, leaving=True)
            yield from self._foreign(borrowing, leaving=False)
            return
        queues = {queue.spec.name: queue for queue in self._others}
        streams = [self._allowed(queue, policy, leaving=leaving) for queue in self._others]
        for _, holder in streams[0] if len(streams) == 1 else merge(*streams):
            path = self._path(holder)
            if path is not None or borrowing is Borrowing.FORBIDDEN:
                yield Candidate(
                    holder, queues[holder.cluster_queue], path or Path.IN_COHORT_RECLAMATION
                )

    def _path(self, holder: Holder) -> Path | None:
        """By which right a preemptor that may end up borrowing takes a workload, None if by none.

        A preemptor that stays within nominal quota reclaims what is its own. Any other one needs
        `borrowWithinCohort`, a higher priority, and a victim up to the threshold.
        """
        if self.within_nominal:
            return Path.IN_COHORT_RECLAMATION
        policy = self._preemptor.queue.spec.preemption
        if not policy.borrow_within_cohort or holder.priority >= self._preemptor.priority:
            return None
        if policy.borrow_threshold is not None and holder.priority > policy.borrow_threshold:
            return None
        return Path.IN_COHORT_RECLAIM_WHILE_BORROWING

    def _allowed(self, queue: FrozenQueue, policy: str, *, leaving: bool) -> Iterator[Ranked]:
        """The workloads of a ClusterQueue that a policy gives away, in their order."""
        priority, queued_at = self._preemptor.priority, self._preemptor.queued_at
        highest = priority if policy == LOWER_OR_NEWER_EQUAL_PRIORITY else priority - 1
        lowest = queue.lowest_priority
        if lowest is None or (policy != ANY and lowest > highest):
            return
        gone, contested, ranked = self._snapshot.gone, self._contested, queue.ranked
        border = bisect_left(ranked, ((True,),))
        for index in range(border) if leaving else range(border, len(ranked)):
            found = ranked[index]
            holder = found[1]
            if policy != ANY:
                if holder.priority > highest:
                    return
                if holder.priority == priority and holder.order.queued_at <= queued_at:
                    continue
            if holder.key not in gone and not contested.isdisjoint(holder.usage):
                yield found
