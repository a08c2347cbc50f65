"""Where the pods of a pod set go: domains of a topology, with a number of pods each (KEP-2724).

First, bottom up, how many pods each domain could hold (`counting`). Then domains are chosen, from
the level of the request down to the leaves (`searching`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from kueuelib.scheduler.topology.counting import DomainCounts, Numbers, counted
from kueuelib.scheduler.topology.demand import (
    POD_SLOTS,
    LevelPlan,
    PodsToPlace,
    Unplaceable,
    planned,
)
from kueuelib.scheduler.topology.leaf_room import FlavorNodes, FlavorRoom
from kueuelib.scheduler.topology.searching import DomainSearch
from kueuelib.scheduler.topology.tree import Columns, DomainTree, Path, name_of
from kueuelib.scheduler.values import record, value


@record
class Placement:
    """The leaves that pods get.

    Attributes:
        pods: for each leaf that gets any, by position and in order, how many.
        leader: the leaf of the leader; None without one.
    """

    pods: tuple[tuple[int, int], ...]
    leader: int | None = None


@record
class NoDomain:
    """No domains have room for all pods.

    Attributes:
        topology: the Topology.
        wanted: how many pods, or slices of them, need room.
        fitting: how many would have it.
        sliced: whether these are slices.
        layers: with slices in slices, for each level how many fit, and how many are wanted.
        leaves: how many leaves there are.
        excluded: how many of them are left out, by reason.
        best: which domain has most room, and for how many; empty if not one domain has to hold all,
            or none has any room.
    """

    topology: str
    wanted: int
    fitting: int
    sliced: bool
    layers: tuple[tuple[str, int, int], ...]
    leaves: int
    excluded: Mapping[str, int] = attrs.field(hash=False)
    best: str = ""

    @property
    def text(self) -> str:
        """The words of the condition message."""
        unit = "slice(s)" if self.sliced else "pod(s)"
        start = f'topology "{self.topology}"'
        if self.layers:
            text = f"{start} doesn't allow to fit"
            for level, fitting, wanted in self.layers:
                text += f"; {fitting}/{wanted} slice(s) fit on level {level}"
        elif self.fitting:
            text = f"{start} allows to fit only {self.fitting} out of {self.wanted} {unit}"
        else:
            text = f"{start} doesn't allow to fit any of {self.wanted} {unit}"
        if self.excluded:
            items = ", ".join(sorted(f"{why}: {n}" for why, n in self.excluded.items()))
            text += f". Total nodes: {self.leaves}; excluded: {items}"
        return text


Misfit = Unplaceable | NoDomain
"""Why pods are not placed."""


def place(
    nodes: FlavorNodes, asked: PodsToPlace, room: FlavorRoom | None = None, within: Path = ()
) -> Placement | Misfit:
    """Places pods.

    The figures of a `Placement` never exceed the room in a leaf, and add up to all pods. Only if
    the size of slices does not divide their number, the rest is left out.

    Args:
        nodes: the nodes of the flavor.
        asked: the pods.
        room: the room in the leaves; None for what is free now.
        within: the domain in which all of them must be; empty for anywhere.
    """
    tree = nodes.tree
    plan = planned(tree, asked)
    if isinstance(plan, Unplaceable):
        return plan
    if not tree.leaves:
        return Unplaceable(f"no topology domains at level: {tree.levels[plan.level]}")
    barred = tree.barred(asked.pods, nodes.tolerations)
    outside: tuple[int, ...] = ()
    if within:
        depth = len(within)
        outside = tuple(
            i for i, path in enumerate(tree.paths[-1]) if path[:depth] != within and i not in barred
        )
    room = FlavorRoom(nodes) if room is None else room
    counts = room.counts(asked, plan, barred, outside)
    search = DomainSearch(tree, plan, counts, led=asked.leader is not None, mixed=nodes.mixed)
    level, chosen = search.choose(asked.count // plan.size)
    if isinstance(chosen, int):
        fitting = chosen
    else:
        shares = search.descend(level, chosen, asked.count)
        led = sum(leader for *_, leader in shares)
        pods = sum(count for _, count, _ in shares)
        if pods == asked.count - asked.count % plan.size and led == int(asked.leader is not None):
            given = tuple(sorted((leaf, count) for leaf, count, _ in shares if count))
            leader = next((leaf for leaf, _, leader in shares if leader), None)
            return Placement(given, leader)
        fitting = pods // plan.size
    excluded = Counter(barred.values())
    if outside:
        excluded["topologyDomain"] = len(outside)
    _note_full(excluded, counts[-1].pods, room.free, asked, {*barred, *outside})
    return NoDomain(
        tree.topology,
        asked.count // plan.size,
        fitting,
        plan.size != 1,
        _layers(tree, plan, counts, level, asked.count),
        len(tree.leaves),
        excluded,
        _most_room(tree, plan, counts, asked.count // plan.size),
    )


def _most_room(tree: DomainTree, plan: LevelPlan, counts: list[DomainCounts], wanted: int) -> str:
    """See `NoDomain.best`."""
    if not plan.required:
        return ""
    slices = counts[plan.level].slices_l
    most = max(slices)
    if not 0 < most < wanted:
        return ""
    values = tree.distinct(tree.paths[plan.level][slices.index(most)])
    return room_text(name_of(tree.levels[plan.level], values), most, wanted, plan.size)


def room_text(domain: str, fitting: int, wanted: int, size: int) -> str:
    """How many of the pods fit in a domain, for people.

    Args:
        domain: its name.
        fitting: how many slices fit.
        wanted: how many have to.
        size: the pods of a slice; 1 if there are none.
    """
    unit = f"slices of {size} pods" if size > 1 else "pods"
    return f"{domain} has room for {fitting} of {wanted} {unit}"


@value
class RoomByDomain:
    """How many pods there is room for, by domain.

    Attributes:
        level: the position of the level whose domains must hold all pods; None if any will do.
        size: the pods of a slice; 1 if there are none.
        slices: how many of these each domain of that level holds, or of the first level.
        pods: how many pods each leaf holds.
        barred: the leaves that the pods may not use, and why.
    """

    level: int | None
    size: int
    slices: Sequence[int]
    pods: Sequence[int]
    barred: Mapping[int, str]


def room_by_domain(
    nodes: FlavorNodes, asked: PodsToPlace, free: Columns
) -> RoomByDomain | Unplaceable:
    """How many pods there is room for in each domain, for people; arguments as in `place`."""
    plan = planned(nodes.tree, asked)
    if isinstance(plan, Unplaceable):
        return plan
    barred = nodes.tree.barred(asked.pods, nodes.tolerations)
    counts = counted(nodes.tree, free, asked, plan, barred)
    level = plan.level if plan.required else None
    at = counts[level or 0]
    slices = at.slices_l if level is not None and asked.leader is not None else at.slices
    return RoomByDomain(level, plan.size, slices, counts[-1].pods, barred)


def _note_full(
    excluded: Counter[str],
    pods: Numbers,
    free: Columns,
    asked: PodsToPlace,
    others: set[int],
) -> None:
    """Counts the leaves in which no pod fits, by the resource that is most lacking."""
    request = {**asked.per_pod, POD_SLOTS: 1}
    names = sorted(name for name, amount in request.items() if amount > 0)
    for index, fits in enumerate(pods):
        if not fits and index not in others:
            name = next(
                name for name in names if name not in free or free[name][index] < request[name]
            )
            excluded[f'resource "{name}"'] += 1


def _layers(
    tree: DomainTree, plan: LevelPlan, counts: list[DomainCounts], level: int, count: int
) -> tuple[tuple[str, int, int], ...]:
    """For each layer of slices in slices, how many fit below the best domain, and are wanted."""
    if len(plan.layers) < 2:
        return ()
    at = counts[level].slices
    named = [",".join(path) for path in tree.paths[level]]
    if level == len(tree.levels) - 1 and tree.ends_with_hosts:
        named = [path[-1] for path in tree.paths[level]]
    best = min(range(len(at)), key=lambda i: (-at[i], named[i]))
    rows = []
    for layer in plan.layers:
        depth = tree.levels.index(layer.topology)
        path = tree.paths[level][best]
        fits = sum(
            counts[depth].pods[i] // layer.size
            for i, each in enumerate(tree.paths[depth])
            if each[: level + 1] == path
        )
        rows.append((layer.topology, fits, count // layer.size))
    return tuple(rows)
