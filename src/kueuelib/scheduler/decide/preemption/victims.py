"""Which workloads may be preempted, in which order, and the victims of a plan (KEP-83)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from heapq import heappop, heappush, heapreplace, merge
from itertools import islice, pairwise, takewhile
from typing import Any, NamedTuple

import attrs

from kueuelib.api import names
from kueuelib.api.kueue import NEVER, Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.api.preemption_policies import GRANTS
from kueuelib.scheduler.decide.preemption.guard import Guard
from kueuelib.scheduler.quota import amounts
from kueuelib.scheduler.quota.amounts import Amounts, FlavorResource
from kueuelib.scheduler.quota.holders import Holder, Ranked
from kueuelib.scheduler.quota.node import Bracket, QuotaNode
from kueuelib.scheduler.quota.snapshot import FrozenQueue, Snapshot
from kueuelib.scheduler.settings import FairSharingRules
from kueuelib.scheduler.values import value


class Path(Enum):
    """The ground for a preemption; the value is the reason of `Preempted`."""

    IN_CLUSTER_QUEUE = names.REASON_IN_CLUSTER_QUEUE
    """It ranks lower in the same ClusterQueue."""
    IN_COHORT_RECLAMATION = names.REASON_IN_COHORT_RECLAMATION
    """Its ClusterQueue borrows what the preemptor's ClusterQueue owns."""
    IN_COHORT_RECLAIM_WHILE_BORROWING = names.REASON_IN_COHORT_RECLAIM_WHILE_BORROWING
    """Its ClusterQueue borrows, and so will the preemptor, which ranks higher."""
    IN_COHORT_FAIR_SHARING = names.REASON_IN_COHORT_FAIR_SHARING
    """Its side of the tree has a larger share of what is borrowed than the preemptor's."""

    @property
    def words(self) -> str:
        """Its name in the condition message."""
        return _WORDS[self]


_WORDS = {
    Path.IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    Path.IN_COHORT_RECLAMATION: "reclamation within the cohort",
    Path.IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
    Path.IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
}


@value
class Victim:
    """A workload that has to release its quota.

    Attributes:
        holder: its charge.
        path: the ground for its preemption.
    """

    holder: Holder
    path: Path

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return self.holder.key

    @property
    def is_leaving(self) -> bool:
        """Whether it is leaving already and needs no eviction."""
        return self.holder.evicted


def home_of(victim: Victim) -> str:
    """The ClusterQueue in which a victim holds quota."""
    return victim.holder.cluster_queue


MOST_NAMED = 5
"""The maximum number of insufficient candidates that a reason names; all are counted."""


@value
class SearchResult:
    """The result of a search.

    Attributes:
        victims: which workloads must leave; empty if no victims suffice.
        candidates: how many candidates were considered, in the widest round.
        lacks: what is still missing without any of them; empty if there are victims.
        named: the first `MOST_NAMED` of them, if they do not suffice.
        borrowing: whether that round would have let the preemptor borrow in the end.
        spared: how many more the policies allow but the shares do not.
    """

    victims: tuple[Victim, ...]
    candidates: int
    lacks: Mapping[FlavorResource, int]
    named: tuple[ObjectKey, ...] = ()
    borrowing: bool = True
    spared: int = 0


@value
class PendingPreemption:
    """A workload that waits for others to leave.

    Attributes:
        key: the preemptor.
        uid: its UID.
        workload: the object that was evaluated.
        cluster_queue: the queue in which it waits.
        places: the path of that queue and of each victim's: `/root/cohort/queue`.
        victims: which workloads must leave, including those that are leaving already.
        reserved: whether the preemptor holds quota already, which does not fit beside the victims.
    """

    key: ObjectKey
    uid: str
    workload: Workload
    cluster_queue: str
    places: Mapping[str, str]
    victims: tuple[Victim, ...]
    reserved: bool = False

    def message(self, victim: Victim) -> str:
        """The message of the conditions `Evicted` and `Preempted`, and of the events."""
        job_uid = self.workload.metadata.labels.get(names.JOB_UID_LABEL) or "UNKNOWN"
        return (
            f"Preempted to accommodate a workload (UID: {self.uid or 'UNKNOWN'}, "
            f"JobUID: {job_uid}) due to {victim.path.words}; "
            f"preemptor path: {self.places[self.cluster_queue]}; "
            f"preemptee path: {self.places[victim.holder.cluster_queue]}"
        )

    def ranks(self, victim: Victim) -> str:
        """The priorities of both, as events name them."""
        mine, other = self.workload.spec.priority or 0, victim.holder.priority
        return (
            f"preemptor effective priority: {mine} (base: {mine}, boost: 0); "
            f"preemptee effective priority: {other} (base: {other}, boost: 0)"
        )


# ---- which workloads may be preempted, and in which order (KEP-83) -------------------------------
# Candidates hold quota in a contested pair of flavor and resource, and the policies of the
# preemptor's ClusterQueue permit their preemption. Those of other ClusterQueues count only while
# their ClusterQueue borrows, and with it every cohort on the way up to the first common one. Only
# what holds quota there and stays counts as borrowed, so room that is promised or withheld makes
# nobody a candidate. The order: workloads that are leaving already, those that use what a part of
# the tree with the preemptor owns, those of other ClusterQueues, those of the own one. Within each:
# low priority, new reservation, UID. If past usage orders the LocalQueues of a ClusterQueue
# (KEP-4136), those of the one that used most come first.
#
# Every ClusterQueue keeps its workloads in that order, and a cycle keeps the ClusterQueues that
# borrow in the order of their first ones. So candidates are produced lazily, one by one, and only
# the ClusterQueues of those are looked at. One whose lowest priority is out of reach is skipped
# (KEP-83).

Borrows = Callable[[FrozenQueue, QuotaNode], bool]
"""Whether a ClusterQueue, and every node on the way to a cohort above it, still borrows."""


def _as_it_was(_queue: FrozenQueue, _cohort: QuotaNode) -> bool:
    return True


@value
class Preemptor:
    """The workload that needs quota.

    Attributes:
        queue: its ClusterQueue.
        priority: its priority.
        queued_at: its age in the order of its ClusterQueue.
        fair_sharing: how shares decide on victims; None if they do not.
        guard: leaves out candidates; None if every candidate may be chosen.
        results: the results of its searches; see `find_once`.
    """

    queue: FrozenQueue
    priority: int
    queued_at: float
    fair_sharing: FairSharingRules | None = None
    guard: Guard | None = None
    results: dict[object, SearchResult] = attrs.field(factory=dict, init=False)

    @property
    def may_borrow(self) -> bool:
        """Whether it may preempt in other ClusterQueues while its own borrows."""
        policy = self.queue.spec.preemption
        by_share = self.fair_sharing is not None and policy.reclaim_within_cohort != NEVER
        return by_share or policy.may_borrow


class Borrowing(Enum):
    """Whether the preemptor may borrow in a round of removals."""

    ALLOWED = "allowed"
    """The preemptor may borrow in the end; workloads protected from borrowers stay."""
    FORBIDDEN = "forbidden"
    """The preemptor ends within its nominal quota."""


class Candidate(NamedTuple):
    """A workload that may be preempted.

    Attributes:
        holder: its charge.
        queue: its ClusterQueue.
        path: the ground for its preemption.
        cohort: the lowest cohort above its ClusterQueue and the preemptor's; None if they are the
            same.
    """

    holder: Holder
    queue: FrozenQueue
    path: Path
    cohort: QuotaNode | None


class _Level(NamedTuple):
    """ClusterQueues that may have candidates, all below one cohort.

    Attributes:
        cohort: the lowest one above them and the preemptor.
        below: the child of it that the preemptor belongs to.
    """

    cohort: QuotaNode
    below: QuotaNode


_Borrower = tuple[Any, FrozenQueue, QuotaNode]
"""A ClusterQueue that may have candidates, with a rank that none of them is before, and the lowest
cohort above it and the preemptor.
"""


class Candidates:
    """The candidates of one preemptor for one set of contested pairs.

    Args:
        snapshot: the state; not changed.
        preemptor: the workload that needs quota.
        contested: the pairs that are short.
        needed: the whole request of the preemptor, including the contested pairs.
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
        self._own = [queue] if _is_in_reach(preemptor, queue, policy.within_cluster_queue) else []
        self._owed: list[_Level] = []
        self._others: list[_Level] = []
        if policy.reclaim_within_cohort != NEVER and snapshot.held.others_borrow(queue, contested):
            self._borrowers = borrowers_of(snapshot, queue, contested)
            self._collect(needed)
        self.any_owed = self._has_any(self._owed)
        """Whether candidates use quota of a part of the tree that contains only the preemptor."""
        self.any_elsewhere = self.any_owed or self._has_any(self._others)
        """Whether other ClusterQueues have candidates."""
        self.maybe_any = self.any_elsewhere or bool(self._own)
        """Whether there may be candidates; the own ClusterQueue is not searched."""

    def _collect(self, needed: Amounts) -> None:
        """Finds the cohorts below which others borrow, from the nearest ones up.

        As soon as a part of the tree owns enough for the preemptor, that part reclaims, as the
        owner, from everything outside it.
        """
        snapshot, queue = self._snapshot, self._preemptor.queue
        path, rest, owner = snapshot.nodes[queue.spec.name].path, needed, False
        for below, cohort in pairwise(path):
            owner = owner or not any(
                amounts.borrows(below, pair, snapshot.used[pair], amount)
                for pair, amount in rest.items()
            )
            if not owner and cohort.parent is not None:
                rest = {
                    pair: max(0, amount - amounts.free(below, pair, snapshot.used[pair]))
                    for pair, amount in rest.items()
                }
            (self._owed if owner else self._others).append(_Level(cohort, below))

    def _has_any(self, levels: Sequence[_Level]) -> bool:
        return bool(levels) and any(
            next(self._foreign(levels, Borrowing.FORBIDDEN, _as_it_was, leaving=leaving), None)
            for leaving in (True, False)
        )

    def in_order(self, borrowing: Borrowing, borrows: Borrows) -> Iterator[Candidate]:
        """The candidates, while they are removed one by one.

        Args:
            borrowing: what the preemptor may do in the end.
            borrows: whether a ClusterQueue still borrows below a cohort. One that has ceased to
                borrow does not begin again, so the rest of it is skipped.
        """
        for leaving in (True, False):
            for levels in filter(None, (self._owed, self._others)):
                yield from self._foreign(levels, borrowing, borrows, leaving=leaving)
            yield from self._in_own_queue(leaving=leaving)

    def _in_own_queue(self, *, leaving: bool) -> Iterator[Candidate]:
        policy = self._preemptor.queue.spec.preemption.within_cluster_queue
        for queue in self._own:
            for _, holder in self._allowed(queue, policy, leaving=leaving):
                yield Candidate(holder, queue, Path.IN_CLUSTER_QUEUE, None)

    def _foreign(
        self,
        levels: Sequence[_Level],
        borrowing: Borrowing,
        borrows: Borrows,
        *,
        leaving: bool,
    ) -> Iterator[Candidate]:
        spec, owed = self._preemptor.queue.spec.preemption, levels is self._owed
        if not (owed or spec.may_borrow or borrowing is Borrowing.FORBIDDEN):
            return
        policy = spec.reclaim_within_cohort

        def candidates(borrower: _Borrower) -> Iterator[Ranked]:
            _, queue, cohort = borrower
            granted = self._allowed(queue, policy, leaving=leaving)
            return takewhile(lambda _: borrows(queue, cohort), granted)

        for (_, holder), (_, queue, cohort) in _merged(
            self._borrowers_in(levels, policy, leaving=leaving), candidates
        ):
            path = Path.IN_COHORT_RECLAMATION if owed else self._path(holder)
            if path is not None or borrowing is Borrowing.FORBIDDEN:
                yield Candidate(holder, queue, path or Path.IN_COHORT_RECLAMATION, cohort)

    def _borrowers_in(
        self, levels: Sequence[_Level], policy: str, *, leaving: bool
    ) -> Iterator[_Borrower]:
        """The ClusterQueues that may have candidates, in their order."""
        highest = _highest(self._preemptor, policy)

        def has_any(borrower: _Borrower) -> bool:
            stays, priority, *_ = borrower[0]
            return not stays or (not leaving and priority <= highest)

        in_reach = takewhile(has_any, merge(*map(self._borrowers_at, levels)))
        if self._preemptor.guard is None:
            return in_reach
        # it is asked about a candidate of each, and may order them otherwise
        return iter([((), *each[1:]) for each in sorted(in_reach, key=_name)])

    def _borrowers_at(self, level: _Level) -> Iterator[_Borrower]:
        for rank, leaf in self._borrowers.leaves_below(level.cohort, level.below):
            queue = self._snapshot.queue(leaf.name)
            assert queue is not None, "it is in the tree"
            yield rank, queue, level.cohort

    def _path(self, holder: Holder) -> Path | None:
        """The ground on which a preemptor that may end up borrowing preempts a workload, or None.

        It needs a victim that `borrowWithinCohort` grants, up to the threshold.
        """
        policy = self._preemptor.queue.spec.preemption
        if holder.priority > _highest(self._preemptor, policy.borrow_within_cohort):
            return None
        if policy.borrow_threshold is not None and holder.priority > policy.borrow_threshold:
            return None
        return Path.IN_COHORT_RECLAIM_WHILE_BORROWING

    def _allowed(self, queue: FrozenQueue, policy: str, *, leaving: bool) -> Iterator[Ranked]:
        preemptor, contested = self._preemptor, self._contested
        return allowed(self._snapshot, preemptor, contested, queue, policy, leaving=leaving)


def allowed(
    snapshot: Snapshot,
    preemptor: Preemptor,
    contested: frozenset[FlavorResource],
    queue: FrozenQueue,
    policy: str,
    *,
    leaving: bool,
) -> Iterator[Ranked]:
    """The workloads of a ClusterQueue that may be preempted, in their order.

    The ClusterQueues permit it, and the preemption policy has not refused it.

    Args:
        snapshot: the state.
        preemptor: the workload that needs quota.
        contested: the pairs that are short; only users of one of them count.
        queue: the ClusterQueue.
        policy: that of the preemptor's ClusterQueue for this one.
        leaving: whether to return those that are leaving, or the others.

    Raises:
        PolicyError: the preemption policy failed.
    """
    granted = _granted(snapshot, preemptor, contested, queue, policy, leaving=leaving)
    if queue.spec.by_usage:
        granted = iter(
            sorted(granted, key=lambda candidate: -snapshot.past_usage(candidate[1].local_queue))
        )
    guard = preemptor.guard
    return granted if guard is None or leaving else guard.sift(granted)


def _granted(
    snapshot: Snapshot,
    preemptor: Preemptor,
    contested: frozenset[FlavorResource],
    queue: FrozenQueue,
    policy: str,
    *,
    leaving: bool,
) -> Iterator[Ranked]:
    if not _is_in_reach(preemptor, queue, policy):
        return
    priority, queued_at = preemptor.priority, preemptor.queued_at
    highest, newer = _highest(preemptor, policy), GRANTS[policy].newer
    gone, ranked = snapshot.gone, queue.ranked
    border = bisect_left(ranked, ((True,),)) if ranked[0][1].evicted else 0
    for index in range(border) if leaving else range(border, len(ranked)):
        candidate = ranked[index]
        holder = candidate[1]
        if holder.priority > highest:
            return
        if newer and holder.priority == priority and holder.order.queued_at <= queued_at:
            continue
        if holder.key not in gone and holder.uses(contested):
            yield candidate


def _highest(preemptor: Preemptor, policy: str) -> float:
    """The highest priority that may be preempted."""
    return GRANTS[policy].highest(preemptor.priority)


def _is_in_reach(preemptor: Preemptor, queue: FrozenQueue, policy: str) -> bool:
    """Whether the lowest priority of a ClusterQueue permits any preemption in it (KEP-83)."""
    lowest = queue.lowest_priority
    return lowest is not None and lowest <= _highest(preemptor, policy)


def _name(borrower: _Borrower) -> str:
    return borrower[1].spec.name


def _merged(
    borrowers: Iterator[_Borrower], candidates: Callable[[_Borrower], Iterator[Ranked]]
) -> Iterator[tuple[Ranked, _Borrower]]:
    """The candidates of ClusterQueues in their order, looking only at those that come first."""
    heap: list[tuple[Any, Holder, Iterator[Ranked], _Borrower]] = []
    borrower = next(borrowers, None)
    while borrower is not None or heap:
        if borrower is not None and (not heap or borrower[0] < heap[0][0]):
            rest = candidates(borrower)
            for rank, holder in islice(rest, 1):
                heappush(heap, (rank, holder, rest, borrower))
            borrower = next(borrowers, None)
            continue
        rank, holder, rest, of = heap[0]
        yield (rank, holder), of
        after = next(rest, None)
        if after is None:
            heappop(heap)
        else:
            heapreplace(heap, (*after, rest, of))


# ---- the ClusterQueues that borrow, kept in order while a cycle changes them ---------------------


def first_user(
    snapshot: Snapshot, leaf: QuotaNode, pairs: frozenset[FlavorResource]
) -> Ranked | None:
    """The first Workload of an active ClusterQueue that uses any of the pairs and is not gone."""
    queue, gone = snapshot.queue(leaf.name), snapshot.gone
    if queue is None or queue.inactive:
        return None
    for ranked in queue.ranked:
        if ranked[1].key not in gone and ranked[1].uses(pairs):
            return ranked
    return None


def is_borrower(snapshot: Snapshot, node: QuotaNode, pairs: frozenset[FlavorResource]) -> bool:
    """Whether what is held in a node borrows any of the pairs."""
    used = snapshot.held.used
    return any(amounts.borrows(node, pair, used[pair]) for pair in pairs)


def borrowers_of(
    snapshot: Snapshot, queue: FrozenQueue, pairs: frozenset[FlavorResource]
) -> Bracket:
    """The active ClusterQueues of a tree from which any of the pairs may be reclaimed.

    Each has the rank of its first candidate for any preemptor. With it, all cohorts on the way to
    the first common one borrow as well.

    Args:
        snapshot: the state.
        queue: any ClusterQueue of the tree.
        pairs: the pairs that are short.
    """

    def rank(node: QuotaNode, leaf: QuotaNode) -> Any:
        first = first_user(snapshot, leaf, pairs) if is_borrower(snapshot, node, pairs) else None
        return None if first is None else first[0]

    return snapshot.bracket(queue, pairs, "by rank", rank)
