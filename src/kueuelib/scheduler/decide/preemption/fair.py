"""Finds the victims under fair sharing (KEP-1714, "Preemption").

The node furthest above its fair share loses a workload first. It is found from the root down, by
the highest share among siblings, until a ClusterQueue is reached. A victim of another ClusterQueue
is taken only if the shares of both sides allow it. A side is the child of the lowest cohort above
both, on the way to the ClusterQueue. During the search the request counts as used by the preemptor.
Whether others borrow depends on what holds quota and stays, their shares on promised room as well.

Every step takes a candidate or refuses it for good, so a search terminates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from kueuelib.scheduler.decide.preemption.guard import Guard
from kueuelib.scheduler.decide.preemption.victims import (
    MOST_NAMED,
    Path,
    Preemptor,
    SearchResult,
    Victim,
    allowed,
    first_user,
    is_borrower,
)
from kueuelib.scheduler.quota.amounts import Amounts, FlavorResource, available, borrows
from kueuelib.scheduler.quota.holders import Ranked, rank_of
from kueuelib.scheduler.quota.node import Bracket, QuotaNode, Share, borrowed, share_of, weigh
from kueuelib.scheduler.quota.snapshot import FrozenQueue, Snapshot
from kueuelib.scheduler.settings import FINAL_SHARE, INITIAL_SHARE, FairSharingRules
from kueuelib.scheduler.topology.pod_sets import Member, has_places

Strategy = Callable[[Share, Share, Share], bool]
"""Whether a victim of another ClusterQueue may be taken, given the share of the preemptor's side,
and the shares of the victim's side with and without the victim. If both of the latter are equal and
it may not be taken, it never may, because no side has a larger share without a victim than with it.
"""

STRATEGIES: Final[dict[str, Strategy]] = {
    FINAL_SHARE: lambda own, _, after: own <= after,
    INITIAL_SHARE: lambda own, before, _: own < before,
}
"""The strategies by their names in the configuration."""


def find_fairly(
    snapshot: Snapshot,
    preemptor: Preemptor,
    contested: frozenset[FlavorResource],
    needed: Amounts,
    fair_sharing: FairSharingRules,
    members: tuple[Member, ...] = (),
) -> SearchResult:
    """The workloads that have to leave so that the preemptor fits, fairly.

    Args:
        snapshot: the state; not changed.
        preemptor: the workload that needs quota.
        contested: the pairs that are short; only users of one of them can be victims.
        needed: the request that has to fit in the end, all amounts positive.
        fair_sharing: the strategies.
        members: the pod sets of the preemptor that need places.

    Raises:
        KeyError: there is no strategy of that name.
    """
    mark = snapshot.mark()
    search = _FairSearch(snapshot, preemptor, contested, needed, members)
    first, *second = (STRATEGIES[name] for name in fair_sharing.strategies)
    fits = search.first(first) or (bool(second) and search.second(second[0]))
    if fits:
        result = SearchResult(search.needed_victims(), len(search.taken), {}, spared=search.spared)
    else:
        named = tuple(victim.key for victim in search.taken[:MOST_NAMED])
        lacks = search.lacks()
        result = SearchResult((), len(search.taken), lacks, named, spared=search.spared)
    snapshot.undo(mark)
    return result


class _FairSearch:
    """A search, which changes the snapshot.

    Attributes:
        taken: the victims so far, in order.
        spared: how many candidates the strategies did not allow.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        preemptor: Preemptor,
        contested: frozenset[FlavorResource],
        needed: Amounts,
        members: tuple[Member, ...],
    ) -> None:
        self._snapshot = snapshot
        self._held = snapshot.held
        self._needed = needed
        self._members = members
        self._own = snapshot.nodes[preemptor.queue.spec.name]
        self._own_path = self._own.path
        self._guard = preemptor.guard
        self._refused: dict[str, list[Ranked]] = {}
        self.taken: list[Victim] = []
        self.spared = 0
        self._candidates = partial(_candidates, snapshot, preemptor, contested)
        policy = preemptor.queue.spec.preemption
        self._policy = policy.reclaim_within_cohort
        own = self._candidates(preemptor.queue, policy.within_cluster_queue)
        self._pools = {self._own.name: _Pool(self._own, own, self._guard)}
        self._borrowers = self._ranked_borrowers(preemptor.queue, contested)
        if self._guard is not None:  # it is asked about a candidate of each
            for queue in self._held.borrowers(preemptor.queue, contested):
                self._pool(snapshot.nodes[queue.spec.name])
        snapshot.add(preemptor.queue, needed)
        self._is_owner = not any(
            borrows(self._own, pair, snapshot.used[pair]) for pair in contested
        )

    def _pool(self, leaf: QuotaNode) -> _Pool:
        """The candidates of a ClusterQueue."""
        pool = self._pools.get(leaf.name)
        if pool is None:
            queue = self._snapshot.queue(leaf.name)
            assert queue is not None, "it is in the tree"
            pool = self._pools[leaf.name] = _Pool(
                leaf, self._candidates(queue, self._policy), self._guard
            )
        return pool

    def _ranked_borrowers(
        self, queue: FrozenQueue, contested: frozenset[FlavorResource]
    ) -> Bracket:
        """The ClusterQueues that borrow, in the order in which they give back to any preemptor."""
        snapshot = self._snapshot

        def rank(node: QuotaNode, leaf: QuotaNode) -> Any:
            more = borrowed(node, snapshot.used)
            if not more or not borrowed(node, snapshot.held.used):
                return None
            if not node.is_queue:
                return _rank(node, more)
            first = first_user(snapshot, leaf, contested)
            if first is None or not is_borrower(snapshot, node, contested):
                return None
            return _rank(node, more, first)

        return snapshot.bracket(queue, contested, "by share", rank)

    # --- strategies

    def first(self, allows: Strategy) -> bool:
        """Takes victims by the first strategy; returns whether the preemptor then fits."""
        bracket = self._bracket()
        while (leaf := bracket.best) is not None:
            pool = self._pools[leaf.name]
            if pool.first is None:  # the policy refuses the rest, after those that were chosen
                bracket.touch(leaf)
                continue
            if leaf is self._own:
                self._take(pool.pop(), Path.IN_CLUSTER_QUEUE)
            elif self._is_owner:
                self._take(pool.pop(), Path.IN_COHORT_RECLAMATION)
            else:
                self._take_fairly(pool, allows)
            if self._fits:
                return True
            bracket.touch(leaf)
        return False

    def _bracket(self) -> Bracket:
        if self._guard is None:
            return Bracket((self._own,), self._rank, self._borrowers)
        return Bracket((pool.node for pool in self._pools.values()), self._rank)

    def second(self, allows: Strategy) -> bool:
        """Takes at most one more victim of each ClusterQueue by the second strategy, among those
        that the first one refused; returns whether the preemptor then fits.
        """
        self._pools = {
            name: _Pool(self._pools[name].node, refused, self._guard)
            for name, refused in self._refused.items()
        }
        bracket = Bracket((pool.node for pool in self._pools.values()), self._rank)
        while (leaf := bracket.best) is not None:
            pool = self._pools[leaf.name]
            if pool.first is not None and self._taker(leaf, allows)(pool.pop()):
                self.spared -= 1
                if self._fits:
                    return True
            bracket.drop(leaf)
        return False

    def _take_fairly(self, pool: _Pool, allows: Strategy) -> None:
        """Takes the first candidate that the strategy allows, and refuses those before it."""
        takes = self._taker(pool.node, allows)
        while pool.first is not None:
            candidate = pool.pop()
            if takes(candidate):
                return
            self._refused.setdefault(pool.node.name, []).append(candidate)
            self.spared += 1

    def _taker(self, leaf: QuotaNode, allows: Strategy) -> Callable[[Ranked], bool]:
        """A function that takes a candidate of another ClusterQueue if the strategy allows it;
        valid until it has taken one.
        """
        snapshot = self._snapshot
        mine, theirs = self._sides(leaf)
        own, before = share_of(mine, snapshot.used), share_of(theirs, snapshot.used)
        if not allows(own, before, before):
            return lambda _: False

        def takes(candidate: Ranked) -> bool:
            mark = snapshot.mark()
            self._take(candidate, Path.IN_COHORT_FAIR_SHARING)
            if allows(own, before, share_of(theirs, snapshot.used)):
                return True
            snapshot.undo(mark)
            self.taken.pop()
            if self._guard is not None:
                self._guard.put_back(candidate[1])
            return False

        return takes

    def _take(self, candidate: Ranked, path: Path) -> None:
        _, holder = candidate
        self.taken.append(Victim(holder, path))
        self._snapshot.take_out(holder)
        if self._guard is not None:
            self._guard.take(holder)

    # --- what the search goes by

    def _rank(self, node: QuotaNode, leaf: QuotaNode) -> Any:
        """The rank of a node among its siblings for giving back quota; None if it need not.

        Only borrowing nodes give back to others; on the preemptor's side, nodes may have to give
        back to each other. Among equal shares, cohorts come first, then the node with the first
        candidate.
        """
        first = self._pool(leaf).first
        more = borrowed(node, self._snapshot.used)
        if first is None or not (node in self._own_path or (more and self._borrows(node))):
            return None
        if not node.is_queue:
            return _rank(node, more)
        wanted: tuple[float, ...] = ()
        if self._guard is not None:  # whose candidates are ranked as it wants them
            first = rank_of(first[1]), first[1]
            wanted = self._guard.order(first[1])
        return _rank(node, more, first, wanted, own=node is self._own)

    def _borrows(self, node: QuotaNode) -> bool:
        """Whether a node that uses more than its part owns does so without promised room."""
        return self._held is self._snapshot or bool(borrowed(node, self._held.used))

    def _sides(self, leaf: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
        """The preemptor's side and that of another ClusterQueue, below their common cohort."""
        own = self._own_path
        below = leaf
        while below.parent is not None and below.parent not in own:
            below = below.parent
        assert below.parent is not None, "both are in one tree"
        return own[own.index(below.parent) - 1], below

    # --- what is needed

    @property
    def _fits(self) -> bool:
        """Whether the preemptor fits: its request is already charged, so no quota may be
        overdrawn.
        """
        if self.lacks():
            return False
        return not self._members or has_places(self._snapshot.leaves, self._members)

    def lacks(self) -> dict[FlavorResource, int]:
        """How much of every pair is still missing."""
        used = self._snapshot.used
        free = {pair: available(self._own, pair, used[pair]) for pair in self._needed}
        return {pair: -amount for pair, amount in free.items() if amount < 0}

    def needed_victims(self) -> tuple[Victim, ...]:
        """The victims, without those that need not leave; the last one always stays a victim."""
        snapshot = self._snapshot
        kept = self.taken[-1:]
        for victim in reversed(self.taken[:-1]):
            queue = snapshot.queue(victim.holder.cluster_queue)
            assert queue is not None, "it holds quota there"
            snapshot.add(queue, victim.holder.usage)
            if not self._fits:
                snapshot.remove(queue, victim.holder.usage)
                kept.append(victim)
        return tuple(reversed(kept))


def _rank(
    node: QuotaNode,
    more: dict[FlavorResource, int],
    first: Ranked | None = None,
    wanted: tuple[float, ...] = (),
    *,
    own: bool = False,
) -> Any:
    """The rank of a node that borrows this, smaller first; a ClusterQueue has a candidate."""
    share = weigh(node, more)
    by_share = not share.weightless, -share.value, first is not None
    if first is None:
        return by_share
    rank, holder = first
    return *by_share, not holder.evicted, own, wanted, rank


def _candidates(
    snapshot: Snapshot,
    preemptor: Preemptor,
    contested: frozenset[FlavorResource],
    queue: FrozenQueue,
    policy: str,
) -> Iterator[Ranked]:
    """The candidates in a ClusterQueue: first those that are leaving already."""
    for leaving in (True, False):
        yield from allowed(snapshot, preemptor, contested, queue, policy, leaving=leaving)


class _Pool:
    """The candidates of one ClusterQueue, in their order.

    Attributes:
        node: the ClusterQueue.
    """

    def __init__(self, node: QuotaNode, candidates: Iterable[Ranked], guard: Guard | None) -> None:
        self.node = node
        self._guard = guard
        self._rest = iter(candidates)
        self._next = next(self._rest, None)

    @property
    def first(self) -> Ranked | None:
        """The next candidate, None when there is none."""
        guard = self._guard
        while guard is not None and self._next is not None and guard.refuses(self._next[1]):
            self._next = next(self._rest, None)
        return self._next

    def pop(self) -> Ranked:
        """Takes the next candidate."""
        candidate = self.first
        assert candidate is not None, "there is one"
        self._next = next(self._rest, None)
        return candidate
