"""Changes after which the pods of a workload may find places on nodes (KEP-2724)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations

import attrs

from kueuelib.api.core import Taint
from kueuelib.api.kueue import ClusterQueue, ResourceFlavor, Workload
from kueuelib.api.nodes import UNSCHEDULABLE, untolerated
from kueuelib.api.phrases import some
from kueuelib.api.struct import frozen
from kueuelib.api.workload import HOST, TopologyRequest
from kueuelib.scheduler.explain.changes import CandidateChange, Ends, UnsizedChange
from kueuelib.scheduler.explain.own_changes import OfJob, job_of
from kueuelib.scheduler.explain.places import DomainRoom
from kueuelib.scheduler.explain.sizes import bisect
from kueuelib.scheduler.explain.world import World

MOST_COMBINED = 10
"""The maximum number of changes in a domain of which all combinations are tried."""


@frozen
class Uncordon(UnsizedChange):
    """A node takes pods again."""

    node: str

    kind = "uncordon"

    @property
    def subject(self) -> str:
        """The node."""
        return f"Node {self.node}"

    @property
    def text(self) -> str:
        """What to do."""
        return f"uncordon Node {self.node}"

    def apply(self, world: World) -> World:
        """The world in which it takes pods, without the taint that comes with a cordon."""
        node = world.nodes[self.node]
        taints = tuple(taint for taint in node.taints if taint.key != UNSCHEDULABLE)
        return world.with_node(attrs.evolve(node, cordoned=False, taints=taints))


Part = Ends | Uncordon
"""What gives pods more room on nodes, perhaps only with others of its kind."""


@frozen
class AllOf(UnsizedChange):
    """Several workloads end, or nodes take pods again, and all of that is needed.

    Attributes:
        parts: at least two changes.
    """

    parts: tuple[Part, ...]

    kind = "all-of"

    @property
    def subject(self) -> str:
        """The first workload or node."""
        return self.parts[0].subject

    @property
    def text(self) -> str:
        """What to do."""
        return f"all of these: {'; '.join(part.text for part in self.parts)}"

    def apply(self, world: World) -> World:
        """The world with all of that."""
        for part in self.parts:
            world = part.apply(world)
        return world


@frozen
class RelaxTopology(OfJob, UnsizedChange):
    """A pod set asks for less of a topology.

    Attributes:
        pod_sets: the pod set, with the others of its group.
        before: what it asks for now: the annotation without its domain, and its value.
        to: the same for what it should ask for.
    """

    pod_sets: tuple[str, ...]
    before: tuple[str, str]
    to: tuple[str, str]

    kind = "topology"

    @property
    def text(self) -> str:
        """What to set."""
        before, to = (f"podset-{name}-topology: {level}" for name, level in (self.before, self.to))
        return f"{to} instead of {before} in {pod_sets_text(self.pod_sets)}"

    def apply(self, world: World) -> World:
        """The world with that request."""
        workload = world.workloads[self.key]
        pod_sets = tuple(
            attrs.evolve(one, topology_request=self._relaxed(one.topology_request))
            if one.name in self.pod_sets and one.topology_request is not None
            else one
            for one in workload.spec.pod_sets
        )
        spec = attrs.evolve(workload.spec, pod_sets=pod_sets)
        return world.with_workload(attrs.evolve(workload, spec=spec))

    def _relaxed(self, request: TopologyRequest) -> TopologyRequest:
        name, level = self.to
        return attrs.evolve(
            request,
            required=level if name == "required" else None,
            preferred=level if name == "preferred" else None,
        )


def pod_sets_text(names: Sequence[str]) -> str:
    """Pod sets for people, as in "pod sets leader, workers"."""
    return f"pod set{'' if len(names) == 1 else 's'} {', '.join(names)}"


def levels_for(world: World, workload: Workload) -> list[list[str]]:
    """The levels of each topology in which a workload may be placed, from coarse to fine."""
    queue = world.cluster_queue_of(workload)
    named = [] if queue is None else [one.spec.topology_name for one in _flavors(world, queue)]
    return [
        [level.node_label for level in world.topologies[name].spec.levels]
        for name in named
        if name in world.topologies
    ]


def relaxations(world: World, workload: Workload) -> Iterator[tuple[RelaxTopology, ...]]:
    """For each pod set with a required level, the coarser ones from the nearest on, and the same
    level as a preference.

    Args:
        world: the facts.
        workload: the workload.
    """
    known = levels_for(world, workload)
    groups: dict[str, list[str]] = {}
    levels: dict[str, str] = {}
    for one in workload.spec.pod_sets:
        request = one.topology_request
        if request is not None and request.required is not None:
            group = request.pod_set_group_name or f"/{one.name}"
            groups.setdefault(group, []).append(one.name)
            levels[group] = request.required
    for group, pod_sets in groups.items():
        level = levels[group]
        above = [each[: each.index(level)] for each in known if level in each]
        coarser = dict.fromkeys(chain.from_iterable(reversed(each) for each in above))

        start = RelaxTopology(
            workload.key, tuple(pod_sets), ("required", level), ("", ""), job=job_of(workload)
        )
        if coarser:
            yield tuple(attrs.evolve(start, to=("required", each)) for each in coarser)
        yield (attrs.evolve(start, to=("preferred", level)),)


def cordoned(world: World, queue: ClusterQueue) -> list[Uncordon]:
    """The nodes of a ClusterQueue's flavors that would take pods if they were not cordoned.

    Args:
        world: the facts.
        queue: the ClusterQueue.
    """
    labels = [each.spec.node_labels for each in _flavors(world, queue)]
    return [
        Uncordon(node.name)
        for node in world.nodes.values()
        if node.cordoned
        and node.ready
        and any(wanted.items() <= node.labels.items() for wanted in labels)
    ]


def tainted(
    world: World, workload: Workload, queue: ClusterQueue | None
) -> list[tuple[str, Taint]]:
    """The taints that keep pods off the nodes of a ClusterQueue's flavors, those of most nodes
    first, each with its nodes for people.

    Args:
        world: the facts.
        workload: whose pods.
        queue: the ClusterQueue; None if there is none.
    """
    taints: dict[tuple[str, str, str], Taint] = {}
    nodes: dict[tuple[str, str, str], dict[str, None]] = {}
    for flavor in _flavors(world, queue) if queue is not None else ():
        topology = world.topologies.get(flavor.spec.topology_name)
        if topology is None or topology.spec.levels[-1].node_label != HOST:
            continue  # only single nodes keep pods off by their taints
        known = [
            (*flavor.spec.tolerations, *one.template.spec.tolerations)
            for one in workload.spec.pod_sets
        ]
        for node in world.nodes.values():
            if node.usable and flavor.spec.node_labels.items() <= node.labels.items():
                for taint in node.taints:
                    if any(untolerated((taint,), one) for one in known):
                        same = taint.key, taint.value, taint.effect
                        taints[same] = taint
                        nodes.setdefault(same, {})[node.name] = None
    most = sorted(nodes.items(), key=lambda item: -len(item[1]))
    return [(f"{'nodes' if len(on) > 1 else 'node'} {some(on)}", taints[one]) for one, on in most]


def _flavors(world: World, queue: ClusterQueue) -> list[ResourceFlavor]:
    """The flavors of a ClusterQueue that have a topology."""
    if not world.places([queue.name]):
        return []
    names = (flavor.name for group in queue.spec.resource_groups for flavor in group.flavors)
    flavors = (world.flavors.get(name) for name in names)
    return [one for one in flavors if one is not None and one.spec.topology_name]


def freed_in(room: DomainRoom) -> list[Part]:
    """What would give a domain more room, each by itself.

    Args:
        room: the domain.
    """
    used = (key for shortage in room.shortages for key in shortage.workloads)
    cordoned = (shortage.cordoned for shortage in room.shortages if shortage.cordoned)
    return [*map(Ends, dict.fromkeys(used)), *map(Uncordon, cordoned)]


def fewest(
    domains: Sequence[Sequence[Part]],
    helps: Callable[[CandidateChange], bool],
) -> AllOf | None:
    """The smallest combination of changes within a domain that is enough; None if there is none.

    In a domain with many of them, it is one of which no part can be left out.

    Args:
        domains: for each domain, what would give it more room; no single one of them is enough.
        helps: tries a change.
    """
    best: AllOf | None = None
    for parts in domains:
        if len(parts) < 2 or not helps(AllOf(tuple(parts))):
            continue
        option = _without_excess(parts, helps)
        if len(parts) <= MOST_COMBINED:
            smaller = chain.from_iterable(
                combinations(parts, size) for size in range(2, len(option.parts))
            )
            option = next(filter(helps, map(AllOf, smaller)), option)
        if best is None or len(option.parts) < len(best.parts):
            best = option
    return best


def _without_excess(parts: Sequence[Part], helps: Callable[[CandidateChange], bool]) -> AllOf:
    """A combination of which no part can be left out."""
    size = bisect(1, len(parts), lambda size: helps(AllOf(tuple(parts[:size]))))
    kept = tuple(parts[:size])
    for part in reversed(kept[:-1]):
        fewer = tuple(one for one in kept if one is not part)
        if len(fewer) > 1 and helps(AllOf(fewer)):
            kept = fewer
    return AllOf(kept)
