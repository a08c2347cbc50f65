"""On which nodes, or in which other domains, the pods of a Workload are placed, and whether these
domains still meet the request of the pods (KEP-2724).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kueuelib.api.kueue import Admission, Topology, Workload
from kueuelib.api.phrases import MOST_NAMES, counted, some
from kueuelib.api.struct import frozen
from kueuelib.api.workload import HOST, PodSetAssignment, TopologyRequest
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.topology.demand import layers_of
from kueuelib.scheduler.topology.nodes import NodeFacts
from kueuelib.scheduler.topology.tree import name_of, noun_of


@frozen
class DomainWithPods:
    """Pods in a domain of the last level.

    Attributes:
        values: its label values; only the host name if the domain is a node.
        pods: how many are placed there.
        within: the wider domain of a node; empty if it is not known.
    """

    values: tuple[str, ...]
    pods: int
    within: str = ""


@frozen
class PlacedPods:
    """Where the pods of a pod set are placed.

    Attributes:
        pod_set: the pod set.
        level: the label key of the last level.
        domains: in the order of the assignment.
    """

    pod_set: str
    level: str
    domains: tuple[DomainWithPods, ...]

    @property
    def text(self) -> str:
        """One sentence for people, which names the first domains and counts the others."""
        shown, rest = self.domains[:MOST_NAMES], self.domains[MOST_NAMES:]
        preposition = "on" if self.level == HOST else "in"
        by_parent: dict[str, list[str]] = {}
        for number, one in enumerate(shown):
            pods, name = counted(one.pods, "pod"), name_of(self.level, one.values)
            if number:
                pods, name = f"{one.pods:,}", "/".join(one.values)
            by_parent.setdefault(one.within, []).append(f"{pods} {preposition} {name}")
        listed = [
            ", ".join(texts) + (f" ({within})" if within else "")
            for within, texts in by_parent.items()
        ]
        if rest:
            more = counted(len(rest), f"more {noun_of(self.level)}")
            listed.append(f"{sum(one.pods for one in rest):,} {preposition} {more}")
        return f"Pod set {self.pod_set}: {', '.join(listed)}"


def placed_pods(
    world: World, workload: Workload, admission: Admission | None
) -> Iterator[PlacedPods]:
    """Where the pods are, for each pod set that is placed.

    Args:
        world: the facts, among them the wider domains of the nodes.
        workload: its requests decide which wider domain is shown.
        admission: that of the Workload, or the one that it would get; None for none.
    """
    requests = {one.name: one.topology_request for one in workload.spec.pod_sets}
    for one in () if admission is None else admission.pod_set_assignments:
        places = one.topology_assignment
        if places is None:
            continue
        parents = _parents(world, one, requests.get(one.name)) if places.levels[-1] == HOST else {}
        domains = tuple(
            DomainWithPods(values, pods, parents.get(values[-1], ""))
            for values, pods in places.domains
        )
        yield PlacedPods(one.name, places.levels[-1], domains)


def _parents(
    world: World, assignment: PodSetAssignment, request: TopologyRequest | None
) -> dict[str, str]:
    """The domain of each host, at the level that a pod set asks for or else just above hosts."""
    levels = _levels(world, assignment)[:-1]
    asked = [layer.topology for layer in layers_of(request)]
    if request is not None:
        asked = [request.required or request.preferred or "", *asked]
    last = next((each for each in asked if each in levels), levels[-1] if levels else "")
    path = levels[: levels.index(last) + 1] if last else []
    paths = {
        node.labels[HOST]: tuple(node.labels[level] for level in path)
        for node in world.nodes.values()
        if path and {HOST, *path} <= node.labels.keys()
    }
    alone = len({each[-1:] for each in paths.values()}) == len({*paths.values()})
    return {host: name_of(last, values[-1:] if alone else values) for host, values in paths.items()}


def _levels(world: World, assignment: PodSetAssignment) -> list[str]:
    """The label keys of a pod set's topology, from coarse to fine; empty without a topology."""
    for name in assignment.flavors.values():
        flavor = world.flavors.get(name)
        topology = world.topologies.get(flavor.spec.topology_name) if flavor is not None else None
        if topology is not None:
            return [level.node_label for level in topology.spec.levels]
    return []


# ---- the nodes of flavors, and those in no domain ------------------------------------------------


def nodes_by_flavor(world: World) -> Iterator[tuple[str, Topology, list[NodeFacts]]]:
    """Each flavor with a topology that exists, by name, and the nodes with its labels, usable or
    not.

    Args:
        world: the facts.
    """
    for name, flavor in sorted(world.flavors.items()):
        topology = world.topologies.get(flavor.spec.topology_name)
        if topology is not None:
            wanted = flavor.spec.node_labels.items()
            nodes = world.nodes.values()
            yield name, topology, [node for node in nodes if wanted <= node.labels.items()]


@frozen
class NodesWithoutLevel:
    """Nodes of a flavor that lack the label of a level of its topology.

    Attributes:
        topology: the Topology.
        level: the label key.
        nodes: their names.
        text: the consequence, for people.
        every: whether all nodes of the flavor lack it.
    """

    topology: str
    level: str
    nodes: tuple[str, ...]
    text: str
    every: bool


def nodes_without_level(world: World) -> Iterator[NodesWithoutLevel]:
    """The nodes that are in no domain, usable or not, by flavor and level.

    Args:
        world: the facts.
    """
    for name, topology, nodes in nodes_by_flavor(world) if world.settings.places_pods else ():
        for level in [each.node_label for each in topology.spec.levels]:
            without = tuple(node.name for node in nodes if level not in node.labels)
            if not without:
                continue
            every, which = len(without) == len(nodes), counted(len(without), "node")
            which = f"{which} ({some(without)}) of flavor {name}"
            text = f"no pods are placed on {which} without the label {level}"
            if every:
                text = (
                    f"no node of flavor {name} ({some(without)}) has the label {level}, so no "
                    "pods can be placed on its nodes"
                )
            yield NodesWithoutLevel(topology.name, level, without, text, every)


# ---- domains that have changed since the admission -----------------------------------------------


@frozen
class Misplacement:
    """Pods whose nodes no longer meet their request.

    Attributes:
        level: the label key of the level that is wrong.
        text: what is wrong, for people.
    """

    level: str
    text: str


class Misplacements:
    """Finds Workloads whose nodes no longer meet their requests.

    Args:
        world: the facts.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        nodes = world.nodes.values()
        self._hosts = {node.labels[HOST]: node for node in nodes if HOST in node.labels}
        self._known: dict[tuple[str, ...], set[tuple[str | None, ...]]] = {}

    def of(self, workload: Workload, admission: Admission) -> Iterator[Misplacement]:
        """Reports domains of a Workload that no longer exist, and nodes that are no longer in one
        domain. Nodes without the label of a level do not count.

        Args:
            workload: has the requests of its pod sets.
            admission: that of the Workload.
        """
        requests = {one.name: one.topology_request for one in workload.spec.pod_sets}
        groups: dict[str, _Group] = {}
        for one in admission.pod_set_assignments:
            places, request = one.topology_assignment, requests.get(one.name)
            if places is None:
                continue
            if places.levels[-1] != HOST:
                known = self._domains(places.levels)
                lost = [values for values, _ in places.domains if values not in known]
                yield from _gone(one.name, places.levels[-1], lost)
                continue
            pods = [(self._node(values[-1]), values, count) for values, count in places.domains]
            yield from _gone(one.name, HOST, [values for node, values, _ in pods if node is None])
            yield from _renamed(one.name, [(node, values[-1]) for node, values, _ in pods if node])
            if request is not None:
                name = request.pod_set_group_name or one.name
                group = groups.setdefault(name, _Group([], _levels(self._world, one), request, []))
                group.pod_sets.append(one.name)
                group.pods.extend((node, count) for node, _, count in pods if node is not None)
        for group in groups.values():
            yield from group.apart()

    def _node(self, host: str) -> NodeFacts | None:
        return self._hosts.get(host) or self._world.nodes.get(host)

    def _domains(self, levels: tuple[str, ...]) -> set[tuple[str | None, ...]]:
        if levels not in self._known:
            nodes = self._world.nodes.values()
            self._known[levels] = {tuple(map(node.labels.get, levels)) for node in nodes}
        return self._known[levels]


def _gone(pod_set: str, level: str, domains: Sequence[tuple[str, ...]]) -> Iterator[Misplacement]:
    if domains:
        what = ("on " if level == HOST else "in ") + noun_of(level)
        what += "" if len(domains) == 1 else "s"
        names = some(["/".join(values) for values in domains])
        gone = "no longer exists" if len(domains) == 1 else "no longer exist"
        yield Misplacement(level, f"pod set {pod_set} is placed {what} {names}, which {gone}")


def _renamed(pod_set: str, pods: Iterable[tuple[NodeFacts, str]]) -> Iterator[Misplacement]:
    """Nodes with another host name now, so that their room counts as free."""
    for node, host in pods:
        now = node.labels.get(HOST, host)
        if now != host:
            yield Misplacement(
                HOST,
                f"pod set {pod_set} is placed on node {host}, which has the label {HOST}={now} now,"
                " so other Workloads may be placed there too",
            )


@frozen
class _Group:
    """Pod sets that are placed together, on nodes that exist."""

    pod_sets: list[str]
    levels: list[str]
    request: TopologyRequest
    pods: list[tuple[NodeFacts, int]]

    def apart(self) -> Iterator[Misplacement]:
        """Reports nodes that are no longer in one domain as required."""
        many = len(self.pod_sets) > 1
        who = f"pod set{'s' if many else ''} {some(self.pod_sets)} require{'' if many else 's'}"
        required = self.request.required
        if required and required != HOST:
            inside = self._inside(required)
            if len(inside) > 1:
                places = "; ".join(
                    f"{some([node.name for node, _ in pods])} in {name_of(required, values)}"
                    for values, pods in sorted(inside.items())
                )
                nodes = f"{'their' if many else 'its'} nodes"
                text = f"{who} one {noun_of(required)}, but {nodes} are now in several: {places}"
                yield Misplacement(required, text)
        for layer in layers_of(self.request):
            level, size = layer.topology, layer.size
            if level == HOST or size < 1:
                continue
            inside = self._inside(level)
            if sum(map(len, inside.values())) < len(self.pods):
                continue
            for values, pods in sorted(inside.items()):
                count = sum(number for _, number in pods)
                if count % size:
                    text = (
                        f"{who} each slice of {counted(size, 'pod')} in one {noun_of(level)}, but "
                        f"{name_of(level, values)} now has {counted(count, 'pod')}"
                    )
                    yield Misplacement(level, text)

    def _inside(self, level: str) -> dict[tuple[str, ...], list[tuple[NodeFacts, int]]]:
        """The nodes of the group and the pods on them, by domain of a level."""
        end = self.levels.index(level) + 1 if level in self.levels else 0
        path = self.levels[:end] or [level]
        inside: dict[tuple[str, ...], list[tuple[NodeFacts, int]]] = {}
        for node, count in self.pods:
            if {*path} <= node.labels.keys():
                values = tuple(node.labels[each] for each in path)
                inside.setdefault(values, []).append((node, count))
        return inside
