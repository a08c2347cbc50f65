"""Topologies, nodes and the pods on them, as far as decisions depend on them (KEP-2724)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import attrs

from kueuelib.api import kinds
from kueuelib.api.codec import decode
from kueuelib.api.kueue import Topology
from kueuelib.api.meta import Obj, annotations_of, key_of
from kueuelib.scheduler.events import ForeignPod
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.topology.nodes import node_facts

ON_NODES: Final = "pods on nodes"
"""The Pods that are bound to nodes and have not ended, as if they were a kind."""
PLACING: Final = (kinds.TOPOLOGIES, kinds.NODES)
"""What decides about places besides pods."""


def names_topology(flavors: Iterable[Obj]) -> bool:
    """Whether any raw ResourceFlavor names a Topology."""
    return any((flavor.get("spec") or {}).get("topologyName") for flavor in flavors)


def places_matter(world: World) -> bool:
    """Whether any pods need places on nodes."""
    named = any(flavor.spec.topology_name for flavor in world.flavors.values())
    return world.settings.places_pods and named


def with_nodes(
    world: World, objects: Callable[[str], Sequence[Obj]], unseen: Collection[str]
) -> tuple[World, list[str]]:
    """A world with its nodes, or one in which nothing needs places, if they may not be read.

    Args:
        world: the other facts.
        objects: returns the raw objects of a kind.
        unseen: the kinds that were not read, with `ON_NODES`.

    Returns:
        The world, and sentences about what is not seen.
    """
    if not places_matter(world):
        return world, []
    hidden = [one.plural for one in PLACING if one.kind in unseen]
    if hidden:
        text = f"you may not list {' and '.join(hidden)}, so only quota was examined"
        return without_places(world), [f"{text}, not whether the pods fit on nodes"]
    topologies = [decode(Topology, obj) for obj in objects(kinds.TOPOLOGIES.kind)]
    nodes = map(node_facts, objects(kinds.NODES.kind))
    seen = attrs.evolve(
        world,
        topologies={one.name: one for one in topologies},
        nodes={one.name: one for one in nodes},
        foreign_pods={pod.key: pod for pod in foreign_pods(objects(ON_NODES))},
    )
    if ON_NODES in unseen:
        text = "you may not list pods in all namespaces, so room on nodes counts as free where "
        return seen, [f"{text}pods without a Workload use it"]
    return seen, []


def foreign_pods(pods: Iterable[Obj]) -> Iterable[ForeignPod]:
    """What pods that belong to no Workload take of their nodes.

    Args:
        pods: raw pods that are bound to nodes and have not ended.
    """
    from kueuelib.controllers.nodes import PLACED, request_of

    for pod in pods:
        if not PLACED & annotations_of(pod).keys():
            spec = pod["spec"]
            yield ForeignPod(key_of(pod), spec.get("nodeName") or "", request_of(spec))


def without_places(world: World) -> World:
    """The same world in which no flavor has a topology, and no pods ask for one."""
    flavors = {
        name: attrs.evolve(one, spec=attrs.evolve(one.spec, topology_name=""))
        for name, one in world.flavors.items()
    }
    workloads = {}
    for key, one in world.workloads.items():
        pod_sets = tuple(attrs.evolve(each, topology_request=None) for each in one.spec.pod_sets)
        workloads[key] = attrs.evolve(one, spec=attrs.evolve(one.spec, pod_sets=pod_sets))
    return attrs.evolve(world, flavors=flavors, workloads=workloads)
