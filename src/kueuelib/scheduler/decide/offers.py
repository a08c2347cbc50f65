"""What a ClusterQueue offers to Workloads of one shape, whatever is in use.

Nothing here depends on usage, so it is prepared once per shape and kept with the ClusterQueue's
spec until that or a ResourceFlavor changes. The search in `kueuelib.scheduler.decide.flavors` then
only compares amounts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from kueuelib.api.conversion import topology_assignment
from kueuelib.api.core import PodSpec
from kueuelib.api.kueue import Admission, PodSetAssignment
from kueuelib.api.nodes import required_node_affinity, requirement_matches, untolerated
from kueuelib.api.quantity import quantity_of
from kueuelib.scheduler.decide.preemption.victims import Victim
from kueuelib.scheduler.flavor_reasons import (
    FIT,
    AffinityMismatch,
    FlavorMissing,
    FlavorReason,
    Mode,
    PodSetReason,
    ResourceUncovered,
    Together,
    TopologyMismatch,
    UntoleratedTaint,
)
from kueuelib.scheduler.pending.tries import TriedFlavors
from kueuelib.scheduler.pending.workload_info import PodSetNeeds, WorkloadInfo
from kueuelib.scheduler.policy import Protected, Unevictable, again_after
from kueuelib.scheduler.quota.amounts import Amounts, Charge, FlavorResource, Requests
from kueuelib.scheduler.quota.queue_spec import Flavor, FlavorGroup, QueueSpec
from kueuelib.scheduler.topology.demand import asks_explicitly, missing_level
from kueuelib.scheduler.topology.pod_sets import Member, Places
from kueuelib.scheduler.topology.tree import total_charges
from kueuelib.scheduler.values import changed, value

MOST_SHAPES = 64
"""The maximum number of shapes that a ClusterQueue remembers; then it forgets all."""

Picks = tuple[int, ...]
"""For each group of each pod set the index of the chosen offer, and that of the last one that was
tried (-1 for all). The rest is missing if a pod set does not fit.
"""


@value
class Offer:
    """One flavor of a resource group for one pod set.

    Attributes:
        flavor: its name; empty if no group covers the resource.
        mismatch: why the pods cannot have it, apart from quota, or None.
        charges: the requests, by resource.
    """

    flavor: str
    mismatch: FlavorReason | None
    charges: tuple[tuple[FlavorResource, int], ...] = ()


@value
class GroupOffers:
    """The flavors of a resource group for one pod set.

    Attributes:
        resource: one of the requested resources; all of them get the same flavor.
        offers: the flavors, in the order of the trial.
    """

    resource: str
    offers: tuple[Offer, ...]


@value
class Part:
    """A pod set that gets flavors.

    Attributes:
        needs: the pod set.
        count: the number of pods.
        requests: of all of them.
        index: its place in the Workload.
        placed: whether its pods get places on nodes (KEP-2724).
    """

    needs: PodSetNeeds
    count: int
    requests: Requests
    index: int
    placed: bool


@value
class PodSetOffers:
    """The flavors for one pod set, or for a leader with its workers, which share them.

    Attributes:
        name: the first pod set.
        parts: the pod sets.
        groups: the groups of their requests, in the order of the search. The resource that comes
            first in the alphabet is searched last.
    """

    name: str
    parts: tuple[Part, ...]
    groups: tuple[GroupOffers, ...]


@value
class Proposal:
    """The flavors that a Workload would get, and the workloads that must leave for it.

    Attributes:
        mode: the verdict; the next three attributes are only valid from `NO_CANDIDATES` on.
        admission: for its status, without places.
        usage: its charge.
        borrowing: how far up the tree it has to borrow; 0 within nominal quota.
        progress: which flavors were tried.
        contested: the part of `usage` that does not fit now.
        blocked: why it does not fit now.
        room: how much of it the nodes have room for, for people; empty if that is not the reason.
        victims: the workloads that must leave first; empty if none must, or if none would help.
        together: why it would not help, if each pair of flavor and resource could be freed.
        protected: the workloads that the preemption policy protected, or None.
        unevictable: those whose eviction the API server refused, or None.
        members: the pod sets that need places.
        places: where they are placed, or would be without all that have places now.
        delayed: whether any pods get places only after checks.
    """

    mode: Mode
    admission: Admission
    usage: Amounts
    borrowing: int
    progress: TriedFlavors
    contested: frozenset[FlavorResource] = frozenset()
    blocked: tuple[PodSetReason, ...] = ()
    room: str = ""
    victims: tuple[Victim, ...] = ()
    together: Together | None = None
    protected: Protected | None = None
    unevictable: Unevictable | None = None
    members: tuple[Member, ...] = ()
    places: Places = attrs.field(factory=dict)
    delayed: bool = False

    def placed(self, places: Places) -> Proposal:
        """The same with places for its pods."""
        leaves = total_charges(one.charges for one in places.values())
        return changed(self, usage=Charge(self.usage, leaves), places=places)

    @property
    def placed_admission(self) -> Admission:
        """Its admission with the places of its pods."""
        assigned = []
        for one in self.admission.pod_set_assignments:
            place = self.places.get(one.name)
            if place is not None:
                encoded = topology_assignment(place.levels, place.domains)
                one = one.evolve(topology_assignment=encoded)  # noqa: PLW2901
            assigned.append(one)
        return self.admission.evolve(pod_set_assignments=tuple(assigned))

    @property
    def again(self) -> float | None:
        """When candidates that were left out may be chosen; None if time does not change that."""
        return again_after(self.protected, self.unevictable)

    @property
    def flavors(self) -> dict[str, Mapping[str, str]]:
        """Per pod set, the flavor of each resource."""
        return {each.name: each.flavors for each in self.admission.pod_set_assignments}

    @property
    def counts(self) -> tuple[int, ...]:
        """The pods per pod set."""
        return tuple(each.count or 0 for each in self.admission.pod_set_assignments)


class Offers(dict[tuple[Picks, int], Proposal]):
    """What a ClusterQueue offers to Workloads of one shape.

    Its values are the proposals by choice of flavors and level of borrowing, for when they fit.

    Args:
        spec: the ClusterQueue.
        flavors: the ResourceFlavors that exist.
        info: one of the Workloads.
        counts: pods per pod set.

    Attributes:
        flavors: the ResourceFlavors that exist.
        pod_sets: per pod set, or group of pod sets with common flavors.
    """

    __slots__ = ("_cluster_queue", "flavors", "pod_sets")

    def __init__(
        self,
        spec: QueueSpec,
        flavors: Mapping[str, Flavor],
        info: WorkloadInfo,
        counts: tuple[int, ...],
    ) -> None:
        super().__init__()
        self._cluster_queue = spec.name
        self.flavors = flavors
        self.pod_sets = _pod_sets(spec, flavors, info, counts)

    def __missing__(self, key: tuple[Picks, int]) -> Proposal:
        picks, borrowing = key
        left = iter(picks)
        pairs = iter(zip(left, left, strict=True))
        usage: dict[FlavorResource, int] = {}
        assigned: dict[int, PodSetAssignment] = {}
        progress = []
        members: list[Member] = []
        for pod_set in self.pod_sets:
            chosen = {}
            for group, (index, last) in zip(pod_set.groups, pairs, strict=False):
                offer = group.offers[index]
                for pair, amount in offer.charges:
                    chosen[pair.resource] = offer.flavor, last
                    usage[pair] = usage.get(pair, 0) + amount
            for part in pod_set.parts:
                name = part.needs.name
                flavors = {
                    each: chosen[each][0] for each in sorted(chosen) if each in part.requests
                }
                amounts = {each: quantity_of(each, part.requests[each]) for each in flavors}
                assigned[part.index] = PodSetAssignment(name, flavors, amounts, part.count)
                if flavors:
                    progress.append((name, tuple((each, chosen[each][1]) for each in flavors)))
                if part.placed and part.count:
                    shared = flavors or {each: chosen[each][0] for each in chosen}
                    members.append(self._member(part, shared))
        ordered = tuple(map(assigned.__getitem__, sorted(assigned)))
        admission = Admission(self._cluster_queue, ordered)
        proposal = self[key] = Proposal(
            FIT, admission, usage, borrowing, tuple(progress), members=tuple(members)
        )
        return proposal

    def _member(self, part: Part, flavors: Mapping[str, str]) -> Member:
        """A pod set that needs places, in the only flavor with a topology that it got."""
        needs = part.needs
        placing = sorted({each for each in flavors.values() if self.flavors[each].topology})
        return Member(
            needs.name,
            ", ".join(placing),
            part.count,
            needs.on_node,
            needs.spec.template.spec,
            needs.topology,
        )


def offers_for(
    spec: QueueSpec,
    flavors: Mapping[str, Flavor],
    info: WorkloadInfo,
    counts: tuple[int, ...] | None = None,
) -> Offers:
    """What a ClusterQueue offers to a Workload.

    Args:
        spec: the ClusterQueue.
        flavors: the ResourceFlavors that exist; another mapping after every change.
        info: the Workload.
        counts: pods per pod set, if fewer than all are tried.
    """
    if counts is not None:
        return Offers(spec, flavors, info, counts)
    known: Offers | None = spec.offers.get(info.shape)
    if known is None or known.flavors is not flavors:
        if len(spec.offers) >= MOST_SHAPES:
            spec.offers.clear()
        known = Offers(spec, flavors, info, tuple(pod_set.count for pod_set in info.pod_sets))
        spec.offers[info.shape] = known
    return known


def _pod_sets(
    spec: QueueSpec, flavors: Mapping[str, Flavor], info: WorkloadInfo, counts: tuple[int, ...]
) -> tuple[PodSetOffers, ...]:
    everywhere = bool(spec.groups)
    for group in spec.groups:
        for name in group.flavors:
            flavor = flavors.get(name)
            everywhere = everywhere and flavor is not None and bool(flavor.topology)
    together: dict[object, list[Part]] = {}
    for index, (needs, count) in enumerate(zip(info.pod_sets, counts, strict=True)):
        asked = needs.topology
        key = None if asked is None else asked.pod_set_group_name
        requests = needs.requests(count, count_pods=spec.counts_pods)
        placed = everywhere or (asked is not None and asks_explicitly(asked))
        part = Part(needs, count, requests, index, placed)
        together.setdefault(index if key is None else key, []).append(part)
    return tuple(
        PodSetOffers(parts[0].needs.name, tuple(parts), _groups(spec, flavors, parts))
        for parts in together.values()
    )


def _groups(
    spec: QueueSpec, flavors: Mapping[str, Flavor], parts: Sequence[Part]
) -> tuple[GroupOffers, ...]:
    requests = dict(parts[0].requests)
    for part in parts[1:]:
        for resource, amount in part.requests.items():
            requests[resource] = requests.get(resource, 0) + amount
    groups: list[GroupOffers] = []
    covered: set[str] = set()
    for resource in sorted(requests, reverse=True):
        if resource in covered:
            continue
        group = spec.group_of(resource)
        if group is not None:
            covered.update(group.resources)
            offers = []
            for name in group.flavors:
                flavor = flavors.get(name)
                mismatch = (
                    FlavorMissing(name) if flavor is None else _mismatch(flavor, group, parts)
                )
                pairs = group.pairs[name].items()
                charges = [(pair, requests[key]) for key, pair in pairs if key in requests]
                offers.append(Offer(name, mismatch, tuple(charges)))
            groups.append(GroupOffers(resource, tuple(offers)))
        elif requests[resource] and not spec.ignores_undeclared:
            groups.append(GroupOffers(resource, (Offer("", ResourceUncovered(resource)),)))
    return tuple(groups)


def _mismatch(flavor: Flavor, group: FlavorGroup, parts: Sequence[Part]) -> FlavorReason | None:
    """Why one of some pod sets cannot have a flavor, apart from quota; None if all can."""
    for part in parts:
        mismatch: FlavorReason | None = None
        if flavor.topology or part.placed:
            mismatch = _topology_mismatch(flavor, group, part)
        mismatch = mismatch or mismatch_of(flavor, part.needs.spec.template.spec)
        if mismatch is not None:
            return mismatch
    return None


def _topology_mismatch(flavor: Flavor, group: FlavorGroup, part: Part) -> FlavorReason | None:
    """Why the topology of a flavor is not that of a pod set (KEP-2724); None if it is."""
    asked, name = part.needs.topology, flavor.name
    if not part.placed:
        return TopologyMismatch(name, f'Flavor "{name}" supports only TopologyAwareScheduling')
    if not asks_explicitly(asked):
        return None
    if not flavor.topology:
        if part.needs.on_node.keys().isdisjoint(group.resources):
            return None
        return TopologyMismatch(name, f'Flavor "{name}" does not support TopologyAwareScheduling')
    if not flavor.levels:
        return TopologyMismatch(name, f'Flavor "{name}" information missing in TAS cache')
    if asked is not None and (missing := missing_level(asked, flavor.levels)) is not None:
        text = f'Flavor "{name}" does not contain the requested level'
        levels = ", ".join(flavor.levels)
        detail = f"Topology {flavor.topology} of flavor {name} has the levels {levels}"
        if missing:
            detail += f", but not {missing}"
        elif asked.unconstrained is False:
            detail += ', and podset-unconstrained-topology: "false" asks for none; leave it out'
        else:
            detail += ", and the pods ask for none of them"
        return TopologyMismatch(name, text, detail)
    return None


def mismatch_of(flavor: Flavor, spec: PodSpec) -> FlavorReason | None:
    """Why pods cannot run on the nodes of a flavor, apart from quota; None if they can (5.5).

    Taints may be tolerated by the pods or by the flavor itself. Node selector and required affinity
    count only for labels that this flavor declares; an affinity term without any of them is left to
    the kube-scheduler.
    """
    if flavor.taints:
        taint = untolerated(flavor.taints, (*spec.tolerations, *flavor.tolerations))
        if taint is not None:
            return UntoleratedTaint(flavor.name, taint.key, taint.value, taint.effect)
    labels = flavor.labels
    if not labels:
        return None
    for key, wanted in spec.node_selector.items():
        offered = labels.get(key, wanted)
        if offered != wanted:
            return AffinityMismatch(flavor.name, key, wanted, offered)
    affinity = required_node_affinity(spec)
    if affinity is None:
        return None
    terms = [
        [one for one in term.match_expressions if one.key in labels]
        for term in affinity.node_selector_terms
    ]
    if not all(terms):
        return None
    unmet = [[one for one in term if not requirement_matches(one, labels)] for term in terms]
    if not unmet or not all(unmet):
        return None
    first = unmet[0][0]
    wanted = " ".join((first.operator, ", ".join(first.values))).strip()
    return AffinityMismatch(flavor.name, first.key, wanted, labels[first.key])
