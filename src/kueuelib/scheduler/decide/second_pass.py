"""The second pass of a Workload that holds quota, but lacks places for its pods (KEP-2724).

Either nodes were made for it by now, or one of its nodes failed. Its flavors and counts stay, and
it takes no quota, only room in leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from kueuelib.api.core import PodSpec
from kueuelib.api.kueue import CHECK_READY, Admission, Workload
from kueuelib.api.patterns import PLACES_PENDING, PLACES_READY
from kueuelib.api.workload import PodSetAssignment
from kueuelib.api.workload_state import (
    has_quota,
    is_admitted,
    is_evicted,
    is_finished,
    passed_all,
    waits_for_places,
)
from kueuelib.scheduler.decide.cycle_values import NewPlaces, NodeEviction, SecondPass
from kueuelib.scheduler.decide.flavors import with_places
from kueuelib.scheduler.decide.kept_room import Present
from kueuelib.scheduler.decide.nomination import Entry, turn_of, with_victims
from kueuelib.scheduler.decide.offers import Proposal
from kueuelib.scheduler.decide.preemption.victims import Preemptor
from kueuelib.scheduler.flavor_reasons import (
    FIT,
    NO_FIT,
    FlavorAttempt,
    GroupReason,
    NoPlaces,
    PodSetReason,
)
from kueuelib.scheduler.pending.workload_info import PodSetNeeds
from kueuelib.scheduler.quota.amounts import Amounts, Charge, leaves_of
from kueuelib.scheduler.quota.snapshot import FrozenQueue, Snapshot
from kueuelib.scheduler.settings import Settings
from kueuelib.scheduler.topology.demand import Unplaceable
from kueuelib.scheduler.topology.pod_sets import (
    Domains,
    Member,
    NoPlace,
    flavor_with_topology,
    move,
    places_of,
)
from kueuelib.scheduler.topology.tree import charges_beyond, total_charges
from kueuelib.scheduler.values import changed

_NO_TOPOLOGY: Final = "the flavor or its topology no longer exists"


def needs_second_pass(workload: Workload) -> bool:
    """Whether a Workload that holds quota lacks places for its pods."""
    if not has_quota(workload) or is_finished(workload) or is_evicted(workload):
        return False
    return waits_for_nodes(workload) or lost_a_node(workload)


def waits_for_nodes(workload: Workload) -> bool:
    """Whether its pods have no places yet, although all its checks have passed."""
    return (
        waits_for_places(workload)
        and not is_admitted(workload)
        and bool(workload.status.admission_checks)
        and passed_all(workload, ())
    )


def lost_a_node(workload: Workload) -> bool:
    """Whether an admitted Workload has pods on a node that is said to be unhealthy."""
    admission = workload.status.admission
    failed = {one.name for one in workload.status.unhealthy_nodes}
    if not failed or admission is None or not is_admitted(workload):
        return False
    return any(_uses(one, failed) for one in admission.pod_set_assignments)


def _uses(assignment: PodSetAssignment, nodes: Iterable[str]) -> bool:
    placed = assignment.topology_assignment
    return placed is not None and any(values[-1] in nodes for values, _ in placed.domains)


def propose_again(snapshot: Snapshot, one: SecondPass) -> Proposal:
    """The places of a Workload that needs a second pass; victims are not searched.

    Args:
        snapshot: the state; not changed.
        one: the Workload.
    """
    workload = one.info.workload
    admission = workload.status.admission
    assert admission is not None, "it holds quota"
    levels = {name: each.tree.levels for name, each in snapshot.leaves.nodes.items()}
    if lost_a_node(workload):
        return _replaced(snapshot, one, admission, levels)
    assigned = {each.name: each for each in admission.pod_set_assignments}
    members = tuple(
        _member(workload, needs, assigned[needs.name], levels)
        for needs in one.info.pod_sets
        if assigned[needs.name].delayed_topology_request == PLACES_PENDING
        and assigned[needs.name].topology_assignment is None
    )
    proposal = Proposal(FIT, admission, {}, 0, (), members=members)
    placed = with_places(snapshot, proposal)
    if placed.mode is FIT:
        ready = tuple(
            each.evolve(delayed_topology_request=PLACES_READY)
            if each.name in placed.places
            else each
            for each in placed.admission.pod_set_assignments
        )
        return changed(placed, admission=placed.admission.evolve(pod_set_assignments=ready))
    return placed


def _member(
    workload: Workload,
    needs: PodSetNeeds,
    assigned: PodSetAssignment,
    levels: Mapping[str, tuple[str, ...]],
) -> Member:
    """A pod set with the flavor and the count that it got, and what its checks add to it."""
    flavor = flavor_with_topology(assigned.flavors, levels) or ""
    count = needs.spec.count if assigned.count is None else assigned.count
    pods = _updated(workload, needs.name, needs.spec.template.spec)
    request = needs.topology
    return Member(needs.name, flavor, count, needs.on_node, pods, request)


def _updated(workload: Workload, name: str, pods: PodSpec) -> PodSpec:
    """The pods with the selectors and tolerations of checks that have passed."""
    for check in workload.status.admission_checks:
        for update in check.pod_set_updates if check.state == CHECK_READY else ():
            if update.name == name:
                pods = pods.evolve(
                    node_selector={**pods.node_selector, **update.node_selector},
                    tolerations=(*pods.tolerations, *update.tolerations),
                )
    return pods


# ---- the replacement of a node -------------------------------------------------------------------


def _replaced(
    snapshot: Snapshot,
    one: SecondPass,
    admission: Admission,
    levels: Mapping[str, tuple[str, ...]],
) -> Proposal:
    """The same places but for those on failed nodes; only the first of these is replaced."""
    workload = one.info.workload
    failed = [each.name for each in workload.status.unhealthy_nodes]
    room = snapshot.leaves.fork()
    given = {each.name: each for each in admission.pod_set_assignments}
    requests = {needs.name: needs.on_node for needs in one.info.pod_sets}
    old = places_of(admission, requests, levels)
    new: dict[str, Domains] = dict(old)
    for needs in one.info.pod_sets:
        assigned = given.get(needs.name)
        if assigned is None or not _uses(assigned, failed) or needs.name not in old:
            continue
        member = _member(workload, needs, assigned, levels)
        if _is_of_one_pod(workload):
            continue  # which cannot move, and takes its workload with it
        before = old[needs.name]
        if not member.flavor:
            moved: Domains | NoPlace = NoPlace((needs.name,), Unplaceable(_NO_TOPOLOGY))
        else:
            moved = move(room, member, before.domains, failed[0])
        if isinstance(moved, NoPlace):
            attempt = FlavorAttempt(
                before.flavor, NO_FIT, (NoPlaces(before.flavor, moved.why.text),)
            )
            blocked = (PodSetReason(needs.name, (GroupReason((attempt,)),)),)
            return Proposal(NO_FIT, admission, {}, 0, (), blocked=blocked)
        room.take(moved.charges)
        new[needs.name] = moved
    placed = Proposal(FIT, admission, {}, 0, ()).placed(new)
    more = charges_beyond(leaves_of(placed.usage), leaves_of(one.holder.usage))
    return changed(placed, usage=Charge({}, more))


def _is_of_one_pod(workload: Workload) -> bool:
    """Whether a workload belongs to one pod, and not to a group of them."""
    owners = workload.metadata.owner_references
    return [(one.api_version, one.kind) for one in owners] == [("v1", "Pod")]


def _why(proposal: Proposal) -> str:
    return "; ".join(blocked.text for blocked in proposal.blocked)


def charge_of(one: SecondPass, proposal: Proposal) -> Charge:
    """What a Workload takes with its new places: the quota of before, and all its leaves."""
    requests = {needs.name: needs.on_node for needs in one.info.pod_sets}
    levels: dict[str, tuple[str, ...]] = {}
    for member in proposal.places.values():
        levels[member.flavor] = member.levels
    placed = places_of(proposal.placed_admission, requests, levels).values()
    return Charge(one.holder.usage, total_charges(each.charges for each in placed))


# ---- in a cycle, before all heads ----------------------------------------------------------------


class SecondPasses:
    """Gives places to Workloads that hold quota.

    Args:
        present: the state in which all that leaves still holds quota and places.
        settings: the administrator's choices.
        give: charges what one of them gets.
        postpone: takes one for which there are no places now, with its victims if it has any.

    Attributes:
        placed: the Workloads with new places.
        evictions: those that found none for the pods of a failed node.
    """

    def __init__(
        self,
        present: Present,
        settings: Settings,
        give: Callable[[FrozenQueue, Amounts], None],
        postpone: Callable[[Entry], None],
    ) -> None:
        self._present = present
        self._settings = settings
        self._give = give
        self._postpone = postpone
        self.placed: list[NewPlaces] = []
        self.evictions: list[NodeEviction] = []

    @property
    def _snapshot(self) -> Snapshot:
        return self._present.snapshot

    def nominate(self, passes: Iterable[SecondPass]) -> list[tuple[SecondPass, Entry]]:
        """Nominates all of them against the same state, in the order of their turns."""
        entries = []
        for one in passes:
            queue = self._snapshot.queue(one.holder.cluster_queue)
            if queue is not None and not queue.inactive:
                order = turn_of(one.head, 0, self._settings)
                entry = Entry(one.head, queue, self._propose(one, queue), order)
                entries.append((one, entry))
        return sorted(entries, key=lambda each: each[1].order)

    def _propose(self, one: SecondPass, queue: FrozenQueue) -> Proposal:
        proposal = propose_again(self._snapshot, one)
        if proposal.mode is FIT or proposal.mode is NO_FIT:
            return proposal
        preemptor = Preemptor(
            queue, one.info.priority, one.info.order.queued_at, self._settings.fair_sharing
        )
        return with_victims(
            changed(proposal, usage=Charge(one.holder.usage, leaves_of(proposal.usage))),
            self._snapshot,
            preemptor,
            one.head,
            self._settings,
        )

    def take_all(self, entries: Iterable[tuple[SecondPass, Entry]]) -> Iterator[SecondPass]:
        """Decides one after the other."""
        for one, nominated in entries:
            entry = nominated
            if not self._has_places(entry):
                entry = changed(entry, proposal=self._propose(one, entry.queue))
            self._take(one, entry)
            yield one

    def _has_places(self, entry: Entry) -> bool:
        """Whether the places of a proposal are still there, once its victims have left."""
        mark = self._snapshot.mark()
        for victim in entry.proposal.victims:
            if victim.key not in self._snapshot.gone:
                self._snapshot.take_out(victim.holder)
        has = self._snapshot.leaves.holds(leaves_of(entry.proposal.usage))
        self._snapshot.undo(mark)
        return has

    def _take(self, one: SecondPass, entry: Entry) -> None:
        proposal, workload = entry.proposal, one.info.workload
        if proposal.mode is FIT and self._has_places(entry):
            self._give(entry.queue, Charge({}, leaves_of(proposal.usage)))
            self.placed.append(
                NewPlaces(
                    one.info.key,
                    one.info.uid,
                    workload,
                    one.holder.cluster_queue,
                    proposal.placed_admission,
                    charge_of(one, proposal),
                )
            )
        elif lost_a_node(workload) and self._settings.node_failures.evicts:
            failed = ",".join(node.name for node in workload.status.unhealthy_nodes)
            text = (
                f"Workload was evicted as there was no replacement for unhealthy node(s): {failed}"
            )
            self.evictions.append(NodeEviction(one.info.key, one.info.uid, text, _why(proposal)))
        else:
            self._postpone(entry)
