"""Places the pod sets of a Workload, each in the flavor that it got (KEP-2724).

Pod sets of one group are placed together; the smaller one is the leader. Each pod set sees what
those before it take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import attrs

from kueuelib.api.core import PodSpec
from kueuelib.api.workload import HOST, Admission, Domain, TopologyConstraint, TopologyRequest
from kueuelib.scheduler.topology.counting import forget_many
from kueuelib.scheduler.topology.demand import (
    NO_LEVEL,
    POD_SLOTS,
    PodsToPlace,
    Unplaceable,
    asks_explicitly,
    layers_of,
)
from kueuelib.scheduler.topology.leaf_room import FlavorNodes, FlavorRoom, LeafRoom
from kueuelib.scheduler.topology.placement import Misfit, Placement, place
from kueuelib.scheduler.topology.tree import (
    Charges,
    DomainTree,
    LeafKey,
    Path,
    leaf_key,
    node_needs,
)
from kueuelib.scheduler.values import value


def _key_of(member: Member) -> str:
    requests = tuple(member.per_pod.items())
    asked = member.name, member.count, requests, member.request
    return f"{asked} {node_needs(member.pods)}"


@value
class Member:
    """A pod set that needs a place.

    Attributes:
        name: its name.
        flavor: its flavor, which has a topology.
        count: how many pods.
        per_pod: the request of one of them, without its slot.
        pods: their selectors, affinity and tolerations.
        request: what they ask of the topology; None for none.
        key: of what its places depend on besides the nodes.
    """

    name: str
    flavor: str
    count: int
    per_pod: Mapping[str, int]
    pods: PodSpec
    request: TopologyRequest | None
    key: str = attrs.field(init=False, repr=False, default=attrs.Factory(_key_of, takes_self=True))


def _charges_of(places: Domains) -> Charges:
    taken: dict[LeafKey, dict[str, int]] = {}
    for values, count in places.domains:
        amounts = taken.setdefault(leaf_key(places.flavor, places.levels, values), {})
        for resource, amount in (*places.per_pod.items(), (POD_SLOTS, 1)):
            amounts[resource] = amounts.get(resource, 0) + amount * count
    return taken


@value
class Domains:
    """The places of a pod set.

    Attributes:
        flavor: its flavor.
        levels: the label keys of the domains.
        domains: their values and pods.
        per_pod: the request of one pod, without its slot.
        charges: what the pods take.
    """

    flavor: str
    levels: tuple[str, ...]
    domains: tuple[Domain, ...]
    per_pod: Mapping[str, int]
    charges: Charges = attrs.field(
        init=False, repr=False, default=attrs.Factory(_charges_of, takes_self=True)
    )


Places = Mapping[str, Domains]
"""Where pods go, by pod set."""


@value
class NoPlace:
    """Pod sets that could not be placed.

    Attributes:
        pod_sets: their names; those of a group fail together.
        why: the reason.
    """

    pod_sets: tuple[str, ...]
    why: Misfit


def is_placed(admission: Admission) -> bool:
    """Whether any pods have places."""
    return any(one.topology_assignment is not None for one in admission.pod_set_assignments)


def places_of(
    admission: Admission,
    requests: Mapping[str, Mapping[str, int]],
    levels: Mapping[str, tuple[str, ...]],
) -> Places:
    """The places that an admission assigns, by pod set.

    Nodes keep their pods when the flavor of these, or its topology, is gone.

    Args:
        admission: the admission.
        requests: of one pod, by pod set.
        levels: by flavor, the levels of its topology.
    """
    places = {}
    for one in admission.pod_set_assignments:
        placed = one.topology_assignment
        flavor = flavor_with_topology(one.flavors, levels)
        if flavor is None and placed is not None and placed.levels[-1] == HOST:
            flavor = min(one.flavors.values(), default="")
        if placed is not None and flavor is not None:
            per_pod = requests.get(one.name, {})
            places[one.name] = Domains(flavor, placed.levels, placed.domains, per_pod)
    return places


def flavor_with_topology(
    flavors: Mapping[str, str], levels: Mapping[str, tuple[str, ...]]
) -> str | None:
    """The one flavor of a pod set that has a topology; None if there are none or several."""
    placing = {flavor for flavor in flavors.values() if levels.get(flavor)}
    return placing.pop() if len(placing) == 1 else None


def leader_first(one: int, other: int) -> bool:
    """Whether the first of two pod sets of a group is the leader, by their numbers of pods."""
    return other > one


def place_all(
    room: LeafRoom, members: Iterable[Member], *, empty: bool = False
) -> Places | tuple[NoPlace, ...]:
    """Places pod sets.

    Args:
        room: what is free; not changed.
        members: the pod sets, in the order of the Workload.
        empty: whether to ignore what Workloads take.

    Returns:
        The places of all, or the first failure of each flavor, by its name.
    """
    by_flavor = _units(members)
    left = room.fork(empty=empty) if len(by_flavor) > 1 or _are_many(by_flavor) else room
    if empty and left is room:
        left = room.fork(empty=True)
    places: dict[str, Domains] = {}
    failures: list[NoPlace] = []
    for flavor in sorted(by_flavor):
        units = by_flavor[flavor]
        for unit in units.values():
            placed = _place_unit(left, flavor, unit)
            if isinstance(placed, NoPlace):
                failures.append(placed)
                break
            places.update(placed)
            if left is not room:
                for one in placed.values():
                    left.take(one.charges)
    return tuple(failures) if failures else places


def _units(members: Iterable[Member]) -> dict[str, dict[object, list[Member]]]:
    """By flavor, the pod sets that are placed together."""
    by_flavor: dict[str, dict[object, list[Member]]] = {}
    for index, member in enumerate(members):
        group = None if member.request is None else member.request.pod_set_group_name
        units = by_flavor.setdefault(member.flavor, {})
        units.setdefault(index if group is None else group, []).append(member)
    return by_flavor


def asked_after(
    room: LeafRoom, members: Iterable[Member], flavor: str, pod_set: str
) -> tuple[PodsToPlace, LeafRoom] | None:
    """What a pod set asks of a flavor, and what those before it leave there; for people.

    Args:
        room: what is free; not changed.
        members: the pod sets, in the order of the Workload.
        flavor: the flavor.
        pod_set: the name of the pod set; those of its group are asked for with it.

    Returns:
        None if there is no such pod set in the flavor.
    """
    left = room.fork()
    for unit in _units(members).get(flavor, {}).values():
        if any(member.name == pod_set for member in unit):
            return _asked(unit)[0], left
        placed = _place_unit(left, flavor, unit)
        if not isinstance(placed, NoPlace):
            for one in placed.values():
                left.take(one.charges)
    return None


def has_places(room: LeafRoom, members: Iterable[Member]) -> bool:
    """Whether all pod sets could be placed now."""
    return not isinstance(place_all(room, members), tuple)


def _are_many(by_flavor: Mapping[str, Mapping[object, Sequence[Member]]]) -> bool:
    return any(len(units) > 1 for units in by_flavor.values())


def _asked(unit: Sequence[Member]) -> tuple[PodsToPlace, Member, Member | None]:
    """What a pod set asks for, or a leader with its workers: both together, workers, leader."""
    workers, leader = unit[0], None
    if len(unit) > 1:
        leader = unit[1]
        if leader_first(workers.count, leader.count):
            workers, leader = leader, workers
    led = None if leader is None else leader.per_pod
    asked = PodsToPlace(workers.count, workers.per_pod, workers.pods, workers.request, led)
    return asked, workers, leader


def _place_unit(room: LeafRoom, flavor: str, unit: Sequence[Member]) -> Places | NoPlace:
    answers, key = room[flavor].answers, tuple([member.key for member in unit])
    known: Places | NoPlace | None = answers.get(key)
    if known is None:
        forget_many(answers)
        known = answers[key] = _placed_unit(room[flavor], flavor, unit)
    return known


def _placed_unit(room: FlavorRoom, flavor: str, unit: Sequence[Member]) -> Places | NoPlace:
    nodes = room.nodes
    asked, workers, leader = _asked(unit)
    placement = place(nodes, asked, room)
    if not isinstance(placement, Placement):
        return NoPlace(tuple(member.name for member in unit), placement)
    tree = nodes.tree
    domains = tuple((tree.shown(leaf), count) for leaf, count in placement.pods)
    places = {workers.name: Domains(flavor, tree.shown_levels, domains, workers.per_pod)}
    if leader is not None and placement.leader is not None:
        domains = ((tree.shown(placement.leader), 1),)
        places[leader.name] = Domains(flavor, tree.shown_levels, domains, leader.per_pod)
    return places


# ---- the replacement of a node -------------------------------------------------------------------


def replace(
    nodes: FlavorNodes,
    asked: PodsToPlace,
    placed: Sequence[Domain],
    node: str,
    room: FlavorRoom | None = None,
) -> tuple[Domain, ...] | Misfit:
    """The places of a pod set after those of one node have moved; the others stay.

    Args:
        nodes: the nodes of the flavor.
        asked: the pods, all of them.
        placed: where they are.
        node: the host name of the node.
        room: as in `place`; what the pods take now is not in it.
    """
    tree = nodes.tree
    rest = [(values[-1], count) for values, count in placed if values[-1] != node]
    moving = sum(count for _, count in placed) - sum(count for _, count in rest)
    at: list[tuple[int, int]] = []
    for host, count in rest:
        position = tree.positions.get(leaf_key("", (HOST,), (host,)))
        if position is None:
            return Unplaceable(
                "Cannot replace the node, because the existing topologyAssignment is invalid, as "
                f"it contains the stale domain {host}"
            )
        at.append((position, count))
    request = asked.request
    layers = layers_of(request)
    uneven = bool(layers) and moving % (layers[0].size or 1) != 0
    within: Path = ()
    if at and uneven:
        within = _incomplete(tree, layers, at, moving)
    elif at and request is not None and request.required is not None:
        depth = tree.levels.index(request.required) + 1
        within = tree.paths[-1][at[0][0]][:depth]
    if uneven and within and request is not None:
        fitting = [layer for layer in layers if moving % layer.size == 0]
        request = attrs.evolve(
            request,
            pod_set_slice_required_topology=fitting[-1].topology if fitting else None,
            pod_set_slice_size=fitting[-1].size if fitting else None,
            podset_slice_required_topology_constraints=(),
        )
        if not asks_explicitly(request):
            return NO_LEVEL
    if not moving:
        return Unplaceable(f"cannot find replacement assignment for unhealthy node: {node}")
    moved = place(nodes, PodsToPlace(moving, asked.per_pod, asked.pods, request), room, within)
    if not isinstance(moved, Placement):
        return moved
    if sum(count for _, count in moved.pods) < moving:
        return Unplaceable(f"slices cannot be completed with the {moving} pod(s) of node {node}")
    total: Counter[int] = Counter(dict(at))
    for leaf, count in moved.pods:
        total[leaf] += count
    return tuple((tree.shown(leaf), total[leaf]) for leaf in sorted(total))


def _incomplete(
    tree: DomainTree,
    layers: tuple[TopologyConstraint, ...],
    at: Sequence[tuple[int, int]],
    moving: int,
) -> Path:
    """The domain that lacks pods of a slice; empty if it is not known."""
    layer = layers[0]
    if len(layers) > 1:
        layer = [each for each in layers if moving % each.size][-1]
    depth = tree.levels.index(layer.topology) + 1
    held: Counter[Path] = Counter()
    for leaf, count in at:
        held[tree.paths[-1][leaf][:depth]] += count
    return next((path for path, count in held.items() if (count + moving) % layer.size == 0), ())


def move(room: LeafRoom, member: Member, placed: Sequence[Domain], node: str) -> Domains | NoPlace:
    """The places of a pod set after its pods on a node have moved to others.

    Args:
        room: what is free, without what the pods take now.
        member: the pod set.
        placed: where its pods are.
        node: the host name of the node.
    """
    nodes = room.nodes[member.flavor]
    asked = PodsToPlace(member.count, member.per_pod, member.pods, member.request)
    moved = replace(nodes, asked, placed, node, room[member.flavor])
    if not isinstance(moved, tuple):
        return NoPlace((member.name,), moved)
    return Domains(member.flavor, nodes.tree.shown_levels, moved, member.per_pod)
