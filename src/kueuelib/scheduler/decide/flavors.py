"""Assigns flavors to pod sets.

`assign` tries the flavors of every resource group in order and keeps the best; the reasons of the
others become the reason. It reads a snapshot and changes nothing.

A flavor whose quota is in use is ranked by a simulated preemption for each single request: no
workload could be preempted, workloads of the own ClusterQueue would have to leave, or only
borrowing ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from kueuelib.api.patterns import PLACES_PENDING
from kueuelib.scheduler.decide.offers import (
    Offer,
    Picks,
    PodSetOffers,
    Proposal,
    offers_for,
)
from kueuelib.scheduler.decide.preemption.search import Simulation, simulate
from kueuelib.scheduler.decide.preemption.victims import Preemptor
from kueuelib.scheduler.flavor_reasons import (
    FIT,
    NO_CANDIDATES,
    NO_FIT,
    ExceedsCapacity,
    FlavorAttempt,
    FlavorReason,
    GroupReason,
    Mode,
    NoPlaces,
    PodSetReason,
    QuotaInUse,
    TopologyMismatch,
)
from kueuelib.scheduler.pending.tries import TriedFlavors
from kueuelib.scheduler.pending.workload_info import WorkloadInfo
from kueuelib.scheduler.quota.amounts import (
    NO_LIMITS,
    Amounts,
    FlavorResource,
    available_along,
    level,
    pair_of,
)
from kueuelib.scheduler.quota.queue_spec import FIRST_FIT, Fungibility
from kueuelib.scheduler.quota.snapshot import Snapshot
from kueuelib.scheduler.topology.demand import layers_of
from kueuelib.scheduler.topology.placement import NoDomain
from kueuelib.scheduler.topology.pod_sets import Member, NoPlace, place_all
from kueuelib.scheduler.values import changed, value


@value
class _Verdict:
    """The result for one flavor, for one request or for all requests of a resource group.

    Attributes:
        mode: the worst verdict of a request.
        borrowing: how far up the tree that request borrows.
        most: the same for the request that borrows most.
        contested: the pairs that do not fit now.
        reasons: why it does not fit now.
    """

    mode: Mode
    borrowing: int = 0
    most: int = 0
    contested: tuple[FlavorResource, ...] = ()
    reasons: tuple[FlavorReason, ...] = ()


@cache
def _fits(borrowing: int) -> _Verdict:
    return _Verdict(FIT, borrowing, borrowing)


_FREE: Final = _fits(0)
_NOTHING: Final[Amounts] = {}
_NONE: Final[Mapping[str, int]] = {}


def assign(
    snapshot: Snapshot,
    preemptor: Preemptor,
    info: WorkloadInfo,
    counts: tuple[int, ...] | None = None,
    progress: TriedFlavors = (),
    *,
    fungible: bool = True,
    only: Mapping[str, Mapping[str, str]] | None = None,
) -> Proposal:
    """Assign flavors to all pod sets of a workload; victims are not searched.

    Args:
        snapshot: the state, which is not changed.
        preemptor: the workload as a preemptor.
        info: the workload.
        counts: pods per pod set, if fewer than all are tried.
        progress: the flavors that earlier attempts tried already.
        fungible: False takes the first flavor that fits and ignores the ClusterQueue's preferences.
        only: per pod set, the allowed flavor of each resource; None for all.
    """
    spec = preemptor.queue.spec
    offers = offers_for(spec, snapshot.flavors, info, counts)
    policy = spec.fungibility if fungible else FIRST_FIT
    resume = {name: dict(indices) for name, indices in progress} if progress else {}
    mode, borrowing = FIT if offers.pod_sets else NO_FIT, 0
    picks: Picks = ()
    contested: tuple[FlavorResource, ...] = ()
    blocked: list[PodSetReason] = []
    for pod_set in offers.pod_sets:
        earlier = offers[picks, 0].usage if picks else _NOTHING
        skipped = resume.get(pod_set.name, _NONE)
        pinned = None if only is None else only.get(pod_set.name, {})
        worst, chosen, most, short, groups = _choose(
            snapshot, preemptor, policy, pod_set, earlier, skipped, pinned
        )
        if groups:
            blocked += (PodSetReason(part.needs.name, groups) for part in pod_set.parts)
        if worst is not FIT:
            mode = min(mode, worst)
            if worst is NO_FIT:
                break
        picks += chosen
        contested += short
        if most:
            borrowing = max(borrowing, most)
    if mode is FIT:
        proposal = offers[picks, borrowing]
        return _with_places(snapshot, preemptor, proposal) if proposal.members else proposal
    free = offers[picks, 0]
    proposal = Proposal(
        mode,
        free.admission,
        free.usage,
        borrowing,
        free.progress,
        frozenset(contested),
        tuple(blocked),
        members=free.members,
    )
    if mode is NO_FIT or not free.members:
        return proposal
    return _with_places(snapshot, preemptor, proposal)


# ---- the places of pods, in the flavors that quota gave them (KEP-2724) --------------------------


def _with_places(snapshot: Snapshot, preemptor: Preemptor, proposal: Proposal) -> Proposal:
    """A proposal with places for its pods, if there are any, now or without all that have some.

    Pods for which nodes have yet to be made get their places later.
    """
    spec, delaying = preemptor.queue.spec, snapshot.delaying
    later = {
        member.name
        for member in proposal.members
        if delaying and not delaying.isdisjoint(spec.checks_for((member.flavor,)))
    }
    for member in proposal.members:
        wrong = _not_placeable(snapshot, member)
        if wrong is not None:
            return changed(proposal, mode=NO_FIT, blocked=(*proposal.blocked, wrong))
    if later:
        assigned = tuple(
            one.evolve(delayed_topology_request=PLACES_PENDING) if one.name in later else one
            for one in proposal.admission.pod_set_assignments
        )
        members = tuple(member for member in proposal.members if member.name not in later)
        admission = proposal.admission.evolve(pod_set_assignments=assigned)
        proposal = changed(proposal, admission=admission, members=members, delayed=True)
    return with_places(snapshot, proposal) if proposal.members else proposal


def with_places(snapshot: Snapshot, proposal: Proposal) -> Proposal:
    """A proposal whose pods have places now, or would have if nobody else had any."""
    members, blocked, said, room = proposal.members, proposal.blocked, "", ""
    mode = proposal.mode
    if mode is FIT:
        placed = place_all(snapshot.leaves, members)
        if not isinstance(placed, tuple):
            return proposal.placed(placed)
        blocked = (*blocked, _unplaced(members, placed, Mode.PREEMPT))
        said = placed[0].why.text
        mode, room = Mode.PREEMPT, _room("At best", placed[0], members, said)
    alone = place_all(snapshot.leaves, members, empty=True)
    if isinstance(alone, tuple):
        if mode is proposal.mode:
            blocked = _unsaid(blocked, _unplaced(members, alone, NO_FIT))
        room = _room("Even without other Workloads", alone[0], members, said)
        return changed(proposal, mode=NO_FIT, blocked=blocked, room=room)
    contested = set(proposal.contested)
    by_name = {one.name: one for one in proposal.admission.pod_set_assignments}
    for member in members:
        given = by_name[member.name]
        contested.update(pair_of(flavor, name) for name, flavor in given.flavors.items())
    return changed(
        proposal, mode=mode, contested=frozenset(contested), blocked=blocked, room=room
    ).placed(alone)


def _room(when: str, failure: NoPlace, members: Sequence[Member], said: str) -> str:
    """One sentence about the room for pod sets that lack places; empty if there is nothing to add.

    Args:
        when: in which case.
        failure: what was found for this case.
        members: all pod sets that need places.
        said: what the message says about nodes already.
    """
    why, names = failure.why, failure.pod_sets
    best = why.best if isinstance(why, NoDomain) else ""
    if best and len(members) > 1:
        best += f" of pod set{'s' if len(names) > 1 else ''} {', '.join(names)}"
    more = best or why.text
    return "" if more == said else f"{when}, {more}"


def _not_placeable(snapshot: Snapshot, member: Member) -> PodSetReason | None:
    """Why a pod set cannot have places, whatever is free; None if it can."""
    if not member.flavor:
        text = "no TAS flavor assigned"
    elif member.flavor not in snapshot.leaves.nodes:
        text = f"more than one TAS flavor assigned: {member.flavor}"
    else:
        layers = layers_of(member.request)
        size = layers[0].size if layers else 1
        if size > 0 and member.count % size == 0:
            return None
        text = f"slice size {size} must evenly divide pod count {member.count}"
    reason = TopologyMismatch(member.flavor, text)
    attempt = FlavorAttempt(member.flavor, NO_FIT, (reason,))
    return PodSetReason(member.name, (GroupReason((attempt,)),))


def _unsaid(blocked: tuple[PodSetReason, ...], more: PodSetReason) -> tuple[PodSetReason, ...]:
    """Reasons about quota, and that there are no places either, which the message does not say."""
    ((attempt,),) = (group.attempts for group in more.groups)
    silent = FlavorAttempt(attempt.flavor, NO_FIT, (NoPlaces(attempt.flavor, ""),))
    return tuple(
        PodSetReason(
            one.pod_set, tuple(GroupReason((*group.attempts, silent)) for group in one.groups)
        )
        if one.pod_set == more.pod_set
        else one
        for one in blocked
    )


def _unplaced(members: Sequence[Member], failures: tuple[NoPlace, ...], mode: Mode) -> PodSetReason:
    first = failures[0]
    flavor = next(member.flavor for member in members if member.name == first.pod_sets[0])
    attempt = FlavorAttempt(flavor, mode, (NoPlaces(flavor, first.why.text),))
    return PodSetReason(first.pod_sets[0], (GroupReason((attempt,)),))


def _choose(
    snapshot: Snapshot,
    preemptor: Preemptor,
    policy: Fungibility,
    pod_set: PodSetOffers,
    earlier: Amounts,
    skipped: Mapping[str, int],
    only: Mapping[str, str] | None,
) -> tuple[Mode, Picks, int, tuple[FlavorResource, ...], tuple[GroupReason, ...]]:
    """Chooses flavors for all resources of a pod set; the first group without any ends it.

    Returns:
        The verdict, the choices, the level of the one that borrows most, the pairs that do not fit
        now, and why.
    """
    mode, most = FIT, 0
    picks: Picks = ()
    contested: tuple[FlavorResource, ...] = ()
    blocked: tuple[GroupReason, ...] = ()
    for group in pod_set.groups:
        resource = group.resource
        flavor = None if only is None else only.get(resource, "")
        best, index, last, attempts = _best(
            snapshot, preemptor, policy, group.offers, earlier, skipped.get(resource, -1), flavor
        )
        if best is None:
            return NO_FIT, (), 0, (), (GroupReason(tuple(attempts)),)
        picks += (index, last)
        if best is _FREE:
            continue
        most = max(most, best.most)
        if best.mode is not FIT:
            mode = min(mode, best.mode)
            contested += best.contested
            blocked += (GroupReason(tuple(attempts)),)
    return mode, picks, most, contested, blocked


def _best(
    snapshot: Snapshot,
    preemptor: Preemptor,
    policy: Fungibility,
    offers: tuple[Offer, ...],
    earlier: Amounts,
    last: int,
    only: str | None,
) -> tuple[_Verdict | None, int, int, list[FlavorAttempt]]:
    """The verdict of the best flavor of one group, or None; its index; the index of the last one
    tried, or -1 if none is left; and the flavors that do not fit now.
    """
    blocked: list[FlavorAttempt] = []
    best: _Verdict | None = None
    chosen, tried, end = -1, -1, len(offers) - 1
    if last >= end:
        last = -1  # the group has lost flavors since
    for index, offer in enumerate(offers):
        if index <= last:
            continue
        tried = index
        if only is not None and offer.flavor != only:
            continue
        verdict = _try(snapshot, preemptor, policy, offer, earlier)
        if verdict.reasons:
            blocked.append(FlavorAttempt(offer.flavor, verdict.mode, verdict.reasons))
        if verdict.mode is NO_FIT:
            continue
        if verdict is _FREE or not _try_next(verdict, policy):
            best, chosen = verdict, index
            break
        if best is None or _is_better(verdict, best, policy):
            best, chosen = verdict, index
    return best, chosen, -1 if tried == end else tried, blocked


def _try(
    snapshot: Snapshot, preemptor: Preemptor, policy: Fungibility, offer: Offer, earlier: Amounts
) -> _Verdict:
    if offer.mismatch is not None:
        return _Verdict(NO_FIT, reasons=(offer.mismatch,))
    worst = _FREE
    for pair, amount in offer.charges:
        verdict = _request(snapshot, preemptor, pair, earlier.get(pair, 0), amount)
        if verdict is not _FREE:
            worst = verdict if worst is _FREE else _both(worst, verdict, policy)
    return worst


def _both(one: _Verdict, other: _Verdict, policy: Fungibility) -> _Verdict:
    """The verdict for two requests in the same flavor."""
    worst = other if _is_better(one, other, policy) else one
    return _Verdict(
        worst.mode,
        worst.borrowing,
        max(one.most, other.most),
        one.contested + other.contested,
        one.reasons + other.reasons,
    )


def _request(
    snapshot: Snapshot, preemptor: Preemptor, pair: FlavorResource, earlier: int, amount: int
) -> _Verdict:
    """Whether one request fits one flavor, whether it borrows, and why it does not fit (5.3).

    Args:
        snapshot: the state.
        preemptor: the workload.
        pair: flavor and resource.
        earlier: the requests of earlier pod sets.
        amount: the request.
    """
    spec = preemptor.queue.spec
    node, used = snapshot.nodes[spec.name], snapshot.used[pair]
    wanted = earlier + amount
    available = available_along(node.steps[pair], used)
    borrowing, in_part = level(node, pair, wanted, used)
    if wanted <= available or not wanted:
        return _fits(borrowing) if borrowing else _FREE
    capacity = node.capacity[pair]
    if wanted > capacity:
        exceeded = ExceedsCapacity(pair.flavor, pair.resource, earlier, amount, capacity)
        return _Verdict(NO_FIT, reasons=(exceeded,))
    limits = spec.limits.get(pair, NO_LIMITS)
    simulation: Simulation | None = None
    if wanted <= limits.nominal or in_part or preemptor.may_borrow:
        simulation = simulate(snapshot, preemptor, pair, wanted)
    reason = QuotaInUse(
        pair.flavor,
        pair.resource,
        earlier,
        amount,
        used[node.key],
        limits.nominal,
        limits.borrowing if spec.cohort else 0,
        max(0, available),
        simulation is not None,
        simulation.outlook if simulation is not None else None,
    )
    mode = NO_FIT
    if simulation is not None:
        mode, borrowing = simulation.mode, simulation.borrowing
    return _Verdict(mode, borrowing, borrowing, (pair,), (reason,))


def _try_next(verdict: _Verdict, policy: Fungibility) -> bool:
    """Whether to try later flavors (5.4); one without victims never ends the search."""
    if verdict.mode is NO_CANDIDATES:
        return True
    if verdict.mode is not FIT and policy.next_rather_than_preempt:
        return True
    return verdict.borrowing > 0 and policy.next_rather_than_borrow


def _is_better(one: _Verdict, other: _Verdict, policy: Fungibility) -> bool:
    """Whether one flavor or request is preferred to another; among equals the earlier is kept
    (5.4).

    One that is not available now loses to all that are, whatever the policy prefers.
    """
    for hopeless in (NO_FIT, NO_CANDIDATES):
        if (one.mode is hopeless) is not (other.mode is hopeless):
            return other.mode is hopeless
    if one.mode is NO_FIT:
        return False
    if policy.preempt_rather_than_borrow and one.borrowing != other.borrowing:
        return one.borrowing < other.borrowing
    if one.mode is not other.mode:
        return one.mode > other.mode
    return one.borrowing < other.borrowing
