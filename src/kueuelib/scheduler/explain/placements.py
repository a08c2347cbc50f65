"""On which nodes, or in which other domains, the pods of a Workload are placed (KEP-2724)."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.api.kueue import Admission, Workload
from kueuelib.api.phrases import MOST_NAMES, counted
from kueuelib.api.struct import frozen
from kueuelib.api.workload import HOST, PodSetAssignment, TopologyRequest
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.topology.demand import layers_of
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
    """Where the pods of each pod set with places are.

    Args:
        world: knows in which wider domains the nodes are.
        workload: says which of them count.
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
    """The domains of the level that a pod set asks for, or of the last but one, by host name."""
    for name in assignment.flavors.values():
        flavor = world.flavors.get(name)
        topology = world.topologies.get(flavor.spec.topology_name) if flavor is not None else None
        if topology is not None:
            break
    else:
        return {}
    levels = [level.node_label for level in topology.spec.levels][:-1]
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
