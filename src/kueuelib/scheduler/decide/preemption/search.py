"""The search for a minimal set of victims (KEP-83 "Preemption").

With fair sharing, shares decide which workloads must leave:
`kueuelib.scheduler.decide.preemption.fair`. Otherwise priorities and ownership do. A round then
removes candidates in their order until the preemptor fits, and brings them back in the reverse
order as long as it still fits. The result is minimal: without any one of the victims the preemptor
does not fit. One or two rounds are tried, with and without borrowing in the end.
"""

from __future__ import annotations

from kueuelib.scheduler.decide.preemption.candidates import (
    Borrowing,
    Candidate,
    Candidates,
    Preemptor,
)
from kueuelib.scheduler.decide.preemption.fair import find_fairly
from kueuelib.scheduler.decide.preemption.room import Room
from kueuelib.scheduler.decide.preemption.victims import MOST_NAMED, SearchResult, Victim
from kueuelib.scheduler.policy import PolicyError
from kueuelib.scheduler.quota.amounts import Amounts, FlavorResource
from kueuelib.scheduler.quota.snapshot import Snapshot


def find_victims(
    snapshot: Snapshot,
    preemptor: Preemptor,
    contested: frozenset[FlavorResource],
    needed: Amounts,
) -> SearchResult:
    """The workloads that have to leave so that the preemptor fits.

    Args:
        snapshot: the state; not changed.
        preemptor: the workload that needs quota.
        contested: the pairs that are short; only users of one of them can be victims.
        needed: the request that has to fit in the end; amounts of zero are ignored.
    """
    if preemptor.guard is None:
        return _find(snapshot, preemptor, contested, needed)
    mark = snapshot.mark()
    try:
        return _find(snapshot, preemptor, contested, needed)
    except PolicyError:  # the guard has noted it, and does not ask the policy again
        snapshot.undo(mark)
        return _find(snapshot, preemptor, contested, needed)


def find_once(
    snapshot: Snapshot,
    preemptor: Preemptor,
    contested: frozenset[FlavorResource],
    needed: Amounts,
) -> SearchResult:
    """The same, remembered by the preemptor, while nothing else changes the state.

    A search is repeated if the whole request equals one made while flavors were chosen.
    """
    guard = preemptor.guard
    key = (contested, frozenset(needed.items()), guard is not None and guard.broken)
    result = preemptor.results.get(key)
    if result is None:
        result = find_victims(snapshot, preemptor, contested, needed)
        preemptor.results[key] = result
    return result


def _find(
    snapshot: Snapshot,
    preemptor: Preemptor,
    contested: frozenset[FlavorResource],
    needed: Amounts,
) -> SearchResult:
    needed = {pair: amount for pair, amount in needed.items() if amount > 0}
    guard = preemptor.guard
    if guard is not None:
        guard.begin()
    if preemptor.fair_sharing is not None:
        return find_fairly(snapshot, preemptor, contested, needed, preemptor.fair_sharing)
    candidates = Candidates(snapshot, preemptor, contested, needed)
    if not candidates.maybe_any:
        return SearchResult((), 0, snapshot.lacks(preemptor.queue, needed))
    widest: SearchResult | None = None
    for borrowing in _rounds(snapshot, preemptor, contested, candidates):
        result = _round(snapshot, preemptor, contested, needed, candidates, borrowing)
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
) -> SearchResult:
    may_borrow = borrowing is Borrowing.ALLOWED
    room = Room(snapshot, preemptor.queue, needed, contested, borrow=may_borrow)
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
