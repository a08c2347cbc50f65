"""The search for a minimal set of victims (KEP-83 "Preemption").

With fair sharing, shares decide which workloads must leave:
`kueuelib.scheduler.decide.preemption.fair`. Otherwise priorities and ownership do. A round then
removes candidates in their order until the preemptor fits, and brings them back in the reverse
order as long as it still fits. The result is minimal: without any one of the victims the preemptor
does not fit. One or two rounds are tried, with and without borrowing in the end.
"""

from __future__ import annotations

from kueuelib.scheduler.decide.preemption.fair import find_fairly
from kueuelib.scheduler.decide.preemption.victims import (
    MOST_NAMED,
    Borrowing,
    Candidate,
    Candidates,
    Path,
    Preemptor,
    SearchResult,
    Victim,
    home_of,
)
from kueuelib.scheduler.flavor_reasons import Mode, Outlook
from kueuelib.scheduler.policy import PolicyError
from kueuelib.scheduler.quota.amounts import (
    Amounts,
    FlavorResource,
    QuotaStep,
    add,
    add_along,
    available_along,
    leaves_of,
    level,
)
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.node import QuotaNode
from kueuelib.scheduler.quota.snapshot import FrozenQueue, Snapshot, Usage
from kueuelib.scheduler.topology.pod_sets import Member, has_places
from kueuelib.scheduler.values import value

# ---- the missing quota while a search for victims removes workloads ------------------------------
# The rules are those of `kueuelib.scheduler.quota.amounts`, applied to a copy of the usage of the
# pairs that matter, because a search may remove thousands of workloads.


class Room:
    """The quota that the preemptor's ClusterQueue may use, for every needed pair.

    Args:
        snapshot: the state to begin with; not changed.
        queue: the preemptor's ClusterQueue.
        needed: the request, all amounts positive.
        contested: the pairs that decide whether others borrow.
        borrow: whether the preemptor may end above its nominal quota.
        members: the pod sets of the preemptor that need places.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        queue: FrozenQueue,
        needed: Amounts,
        contested: frozenset[FlavorResource],
        *,
        borrow: bool,
        members: tuple[Member, ...] = (),
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
        self._ways: dict[str, list[list[tuple[QuotaStep, Usage]]]] = {}
        self._members = members
        self._leaves = snapshot.leaves.fork() if members else snapshot.leaves

    @property
    def enough(self) -> bool:
        """Whether everything fits now."""
        if not all(need.lack <= 0 for need in self._needed.values()):
            return False
        return not self._members or has_places(self._leaves, self._members)

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

    def _way(self, queue: FrozenQueue, cohort: QuotaNode) -> list[list[tuple[QuotaStep, Usage]]]:
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
        if self._members:
            self._leaves.take(leaves_of(charged), sign)
        for columns in self._columns:
            for pair, used in columns.items():
                if pair in charged:
                    add_along(node.steps[pair], sign * charged[pair], used)


@value
class _Need:
    """The preemptor's request for one pair.

    Attributes:
        steps: from its ClusterQueue up.
        used: the usage.
        amount: how much it needs.
        borrow: whether it may end above its nominal quota.
    """

    steps: tuple[QuotaStep, ...]
    used: Usage
    amount: int
    borrow: bool

    @property
    def lack(self) -> int:
        """How much is missing; negative if there is more than enough."""
        free = available_along(self.steps, self.used)
        if not self.borrow:
            here = self.steps[0]
            free = min(free, here.nominal - self.used[here.key])
        return self.amount - free


# --------------------------------------------------------------------------------------------------


def find_victims(
    snapshot: Snapshot,
    preemptor: Preemptor,
    contested: frozenset[FlavorResource],
    needed: Amounts,
    members: tuple[Member, ...] = (),
) -> SearchResult:
    """The workloads that have to leave so that the preemptor fits.

    Args:
        snapshot: the state; not changed.
        preemptor: the workload that needs quota.
        contested: the pairs that are short; only users of one of them can be victims.
        needed: the request that has to fit in the end; amounts of zero are ignored.
        members: its pod sets that need places in the end.
    """
    if preemptor.guard is None:
        return _find(snapshot, preemptor, contested, needed, members)
    mark = snapshot.mark()
    try:
        return _find(snapshot, preemptor, contested, needed, members)
    except PolicyError:  # the guard has noted it, and does not ask the policy again
        snapshot.undo(mark)
        return _find(snapshot, preemptor, contested, needed, members)


def find_once(
    snapshot: Snapshot,
    preemptor: Preemptor,
    contested: frozenset[FlavorResource],
    needed: Amounts,
    members: tuple[Member, ...] = (),
) -> SearchResult:
    """The same, remembered by the preemptor, while nothing else changes the state.

    A search is repeated if the whole request equals one made while flavors were chosen.
    """
    guard = preemptor.guard
    key = (contested, frozenset(needed.items()), guard is not None and guard.broken, members)
    result = preemptor.results.get(key)
    if result is None:
        result = find_victims(snapshot, preemptor, contested, needed, members)
        preemptor.results[key] = result
    return result


def _find(
    snapshot: Snapshot,
    preemptor: Preemptor,
    contested: frozenset[FlavorResource],
    needed: Amounts,
    members: tuple[Member, ...],
) -> SearchResult:
    needed = {pair: amount for pair, amount in needed.items() if amount > 0}
    guard = preemptor.guard
    if guard is not None:
        guard.begin()
    if preemptor.fair_sharing is not None:
        sharing = preemptor.fair_sharing
        return find_fairly(snapshot, preemptor, contested, needed, sharing, members)
    candidates = Candidates(snapshot, preemptor, contested, needed)
    if not candidates.maybe_any:
        return SearchResult((), 0, snapshot.lacks(preemptor.queue, needed))
    widest: SearchResult | None = None
    for borrowing in _rounds(snapshot, preemptor, contested, candidates):
        result = _round(snapshot, preemptor, contested, needed, candidates, borrowing, members)
        if result.victims:
            return result
        if widest is None or result.candidates > widest.candidates:
            widest = result
    assert widest is not None, "there is always a round"
    return widest


def _rounds(
    snapshot: Snapshot,
    preemptor: Preemptor,
    contested: frozenset[FlavorResource],
    candidates: Candidates,
) -> tuple[Borrowing, ...]:
    """The rounds to try.

    Within its own ClusterQueue, a preemptor may always borrow. Without `borrowWithinCohort`,
    workloads of others are taken only to get back to nominal quota, some of which must then be
    unused in every contested pair. If some can be reclaimed as the owner, the order of rounds is
    the same as with `borrowWithinCohort`.
    """
    queue = preemptor.queue
    forbidden = not queue.spec.preemption.may_borrow
    if not candidates.any_elsewhere:
        return (Borrowing.ALLOWED,)
    under_nominal = all(
        snapshot.usage(queue, pair) < snapshot.limits(queue, pair).nominal for pair in contested
    )
    if forbidden and not under_nominal:
        return (Borrowing.ALLOWED,)
    if forbidden and not candidates.any_owed:
        return (Borrowing.FORBIDDEN, Borrowing.ALLOWED)
    return (Borrowing.ALLOWED, Borrowing.FORBIDDEN)


def _round(
    snapshot: Snapshot,
    preemptor: Preemptor,
    contested: frozenset[FlavorResource],
    needed: Amounts,
    candidates: Candidates,
    borrowing: Borrowing,
    members: tuple[Member, ...],
) -> SearchResult:
    may_borrow = borrowing is Borrowing.ALLOWED
    room = Room(snapshot, preemptor.queue, needed, contested, borrow=may_borrow, members=members)
    removed: list[Candidate] = []
    guard = preemptor.guard
    if guard is not None:
        guard.begin()
    for candidate in candidates.in_order(borrowing, room.borrows):
        border = candidate.cohort
        if border is not None and not room.borrows(candidate.queue, border):
            continue
        if guard is not None:
            if guard.refuses(candidate.holder):
                continue
            guard.take(candidate.holder)
        room.remove(candidate.holder, candidate.queue)
        removed.append(candidate)
        if room.enough:
            kept = _bring_back(room, removed)
            victims = tuple(Victim(one.holder, one.path) for one in kept)
            return SearchResult(victims, len(removed), {})
    named = tuple(one.holder.key for one in removed[:MOST_NAMED])
    return SearchResult((), len(removed), room.lacks(), named, may_borrow)


def _bring_back(room: Room, removed: list[Candidate]) -> list[Candidate]:
    """The necessary victims, given that only the last removal made enough room."""
    kept = [removed[-1]]
    for candidate in reversed(removed[:-1]):
        room.restore(candidate.holder, candidate.queue)
        if not room.enough:
            room.remove(candidate.holder, candidate.queue)
            kept.append(candidate)
    kept.reverse()
    return kept


# ---- whether preemption could free one flavor for one request; used while flavors are chosen -----
# Each pair of flavor and resource is tested separately, so the result is only a necessary
# condition. Victims for the whole request are searched after the flavors are chosen (KEP-83).


@value
class Simulation:
    """The result of preempting for one request in one flavor.

    Attributes:
        mode: `NO_CANDIDATES`, `PREEMPT` if workloads of the own ClusterQueue have to leave, or
            `RECLAIM` if only others have to.
        borrowing: how far up the ClusterQueue would then borrow; 0 for not at all.
        outlook: the same for the reason tree.
    """

    mode: Mode
    borrowing: int
    outlook: Outlook


def simulate(
    snapshot: Snapshot, preemptor: Preemptor, pair: FlavorResource, amount: int
) -> Simulation:
    """Tries to free `amount` of one pair.

    Args:
        snapshot: the state, which is not changed.
        preemptor: the workload that needs quota.
        pair: flavor and resource.
        amount: more than is available now.
    """
    result = find_once(snapshot, preemptor, frozenset((pair,)), {pair: amount})
    used = snapshot.used[pair]
    left = Usage(used) if result.victims else used
    for victim in result.victims:
        place = snapshot.nodes[home_of(victim)]
        add(place, pair, -victim.holder.usage.get(pair, 0), left)
    home = snapshot.nodes[preemptor.queue.spec.name]
    borrowing, _ = level(home, pair, amount, left)
    mode = Mode.NO_CANDIDATES
    if result.victims:
        own = any(victim.path is Path.IN_CLUSTER_QUEUE for victim in result.victims)
        mode = Mode.PREEMPT if own else Mode.RECLAIM
    return Simulation(mode, borrowing, _outlook(result, pair))


def _outlook(result: SearchResult, pair: FlavorResource) -> Outlook:
    victims = tuple(sorted([victim.key for victim in result.victims]))
    lack = result.lacks.get(pair, 0)
    return Outlook(result.candidates, victims, lack, result.named, result.spared, result.borrowing)
