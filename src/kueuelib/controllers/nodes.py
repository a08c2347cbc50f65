"""What the scheduler learns of nodes, and of pods on them that are nobody's Workload (KEP-2724).

Both are read only while a ResourceFlavor names a Topology, and only what counts is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from kueuelib.api import kinds
from kueuelib.api.codec import decode
from kueuelib.api.core import PodSpec
from kueuelib.api.kueue import Topology
from kueuelib.api.meta import Obj, ObjectKey, annotations_of, find_condition, labels_of
from kueuelib.api.names import (
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
    SLICE_CONSTRAINTS,
    SLICE_LEVEL,
    UNCONSTRAINED_TOPOLOGY,
)
from kueuelib.api.quantity import Quantity, amount_of
from kueuelib.api.workload import HOST
from kueuelib.controllers.feed import Feed, ObjectSource
from kueuelib.controllers.ungater import LIVING, follow_topologies, identity, topology_of
from kueuelib.errors import InvalidObject, InvalidQuantity
from kueuelib.machinery.store import Delta, shared, strip
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.wanted import WantedInformer
from kueuelib.scheduler import events
from kueuelib.scheduler.pending.requests import NO_LIMIT_RANGES, pod_request
from kueuelib.scheduler.topology.nodes import node_facts

BY_HOST: Final = "host"
"""The index of nodes by their host name."""
BOUND: Final = f"spec.nodeName!=,{LIVING}"
"""The field selector of pods that take room on a node."""
PLACED: Final = frozenset(
    (REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY, UNCONSTRAINED_TOPOLOGY, SLICE_LEVEL, SLICE_CONSTRAINTS)
)
"""Annotations of pods whose Workload counts instead of them."""
_OF_READY: Final = ("type", "status", "lastTransitionTime")
_OF_POD: Final = ("resources", "overhead")
_OF_CONTAINER: Final = ("resources", "restartPolicy")


def trimmed_node(obj: Obj) -> Obj:
    """What is stored of a node; changes its argument."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    ready = find_condition(status.get("conditions"), "Ready")
    kept = ("type", "status") if ready.get("status") == "True" else _OF_READY
    obj["metadata"] = identity(obj) | {"labels": dict(labels_of(obj))}
    obj["spec"] = {key: spec[key] for key in ("taints", "unschedulable") if spec.get(key)}
    obj["status"] = {
        "allocatable": shared(status.get("allocatable") or {}),
        "conditions": [{key: ready[key] for key in kept if key in ready}] if ready else [],
    }
    return strip(obj)


def trimmed_pod(obj: Obj) -> Obj:
    """What is stored of a pod: its node, and instead of its containers what it takes of that.

    Pods with equal requests share them. Changes its argument.
    """
    spec = obj.get("spec") or {}
    counted = not PLACED & annotations_of(obj).keys()
    obj["metadata"] = identity(obj)
    obj["spec"] = {"nodeName": spec.get("nodeName", "")}
    if counted:
        obj["spec"]["request"] = request_of(spec)
    obj.pop("status", None)
    return strip(obj)


def request_of(spec: Mapping[str, Any]) -> Mapping[str, int]:
    """What a pod takes of its node, its slot included, in the units of `amount_of`.

    Args:
        spec: of the raw pod, with the defaults of its LimitRanges. One that cannot be read takes
            nothing but its slot.
    """
    parts = {key: spec[key] for key in _OF_POD if spec.get(key)}
    for field in ("initContainers", "containers"):
        parts[field] = [
            {"name": "", **{key: each[key] for key in _OF_CONTAINER if each.get(key)}}
            for each in spec.get(field) or ()
        ]
    return _request(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS))


@lru_cache(maxsize=4096)
def _request(parts: bytes) -> Mapping[str, int]:
    try:
        pod = decode(PodSpec, orjson.loads(parts))
        per_pod = pod_request(pod, NO_LIMIT_RANGES, None).per_pod
    except (InvalidObject, InvalidQuantity):
        per_pod = {}
    return {
        **{name: amount_of(name, Quantity(nanos)) for name, nanos in per_pod.items()},
        "pods": 1,
    }


TOPOLOGIES: Final = ObjectSource(
    lambda obj: events.TopologySet(decode(Topology, obj)),
    lambda key: events.TopologyGone(key.name),
    lambda obj: obj.get("spec"),
)
NODES: Final = ObjectSource(
    lambda obj: events.NodeSet(node_facts(obj)),
    lambda key: events.NodeGone(key.name),
    lambda obj: (labels_of(obj), obj["spec"], obj["status"]),
)
FOREIGN_PODS: Final = ObjectSource(
    lambda obj: events.ForeignPod(
        ObjectKey(obj["metadata"]["namespace"], obj["metadata"]["name"]),
        obj["spec"]["nodeName"],
        obj["spec"].get("request"),
    ),
    lambda key: events.ForeignPod(key, "", None),
    lambda obj: obj["spec"],
)


def feed_nodes(
    manager: Manager, cache: Cache, feed: Feed, topologies: Informer, flavors: Informer
) -> WantedInformer:
    """Let an engine learn Topologies, and while a flavor names one, nodes and the pods on them.

    Args:
        manager: runs the informers of nodes and pods.
        cache: makes them.
        feed: of the engine.
        topologies: the Topologies.
        flavors: the ResourceFlavors.

    Returns:
        The informer of nodes, indexed by `BY_HOST`.
    """
    pods = WantedInformer(
        cache,
        kinds.PODS,
        flavors.wait_synced,
        refused=lambda why: feed.observe(events.Unreadable(kinds.PODS.kind, why)),
        field_selector=BOUND,
        transform=trimmed_pod,
    )
    nodes = WantedInformer(
        cache,
        kinds.NODES,
        flavors.wait_synced,
        indexes={BY_HOST: lambda node: filter(None, (labels_of(node).get(HOST),))},
        refused=lambda why: feed.observe(events.Unreadable(kinds.NODES.kind, why)),
        after=pods,  # until its pods are known, a node would seem to be free
        transform=trimmed_node,
    )
    follow_topologies(flavors, pods, nodes)
    feed.attach(topologies, TOPOLOGIES)
    for informer, source, name in (
        (pods, FOREIGN_PODS, "pods on nodes"),
        (nodes, NODES, "nodes"),
    ):
        feed.attach(informer, source)
        manager.add(Group.CACHES, informer, name)
    return nodes


def users_of(flavors: Informer, topology: str) -> list[str]:
    """The ResourceFlavors that name a Topology."""
    return [
        flavor["metadata"]["name"]
        for flavor in flavors.store.items()
        if topology_of(flavor) == topology
    ]


def topologies_of(delta: Delta[Obj]) -> Iterator[ObjectKey]:
    """The Topologies that a ResourceFlavor names, or named before."""
    for flavor in (delta.old, delta.new):
        if flavor is not None and (name := topology_of(flavor)):
            yield ObjectKey("", name)
