"""A world with two racks of two nodes, and Workloads on them."""

from __future__ import annotations

from typing import Any

from kueuelib.api.codec import decode, encode
from kueuelib.api.kueue import Topology, Workload
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.workload import HOST
from kueuelib.scheduler.events import ForeignPod
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.settings import Settings
from kueuelib.scheduler.topology.nodes import node_facts
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)
from kueuelib.workload import states

NOW = 1000.0
BLOCK, RACK = "example.com/topology-block", "example.com/topology-rack"
KEY = ObjectKey("ns", "job")
TAINT = {"key": "broken", "value": "yes", "effect": "NoSchedule"}


def topology(*levels: str) -> Topology:
    spec = {"levels": [{"nodeLabel": level} for level in levels or (BLOCK, RACK, HOST)]}
    return decode(Topology, {"metadata": {"name": "t"}, "spec": spec})


def node(name: str, rack: str, cpu: int = 4, *, block: str = "b", **more: Any) -> Obj:
    """A raw node; `taints`, `unschedulable` and `ready` as they are."""
    labels = {BLOCK: block, RACK: rack, HOST: name, "tas": "yes"}
    ready = {"type": "Ready", "status": "True" if more.pop("ready", True) else "False"}
    status = {"allocatable": {"cpu": str(cpu), "pods": "20"}, "conditions": [ready]}
    return {"metadata": {"name": name, "labels": labels}, "spec": more, "status": status}


def pods(name: str, count: int, cpu: int = 1, *, queue: str = "a", **asked: Any) -> Workload:
    """A Workload that waits; `asked` is its topologyRequest."""
    pod_set = {**make_pod_set({"cpu": cpu}, count=count), "topologyRequest": asked}
    return make_workload(name, queue, pod_sets=[pod_set])


def placed(workload: Workload, *where: tuple[str, int], queue: str = "a") -> Workload:
    """The Workload with quota, and its pods on these nodes."""
    slices = [
        {
            "domainCount": 1,
            "valuesPerLevel": [{"universal": host}],
            "podCounts": {"universal": count},
        }
        for host, count in where
    ]
    (pod_set,) = workload.spec.pod_sets
    cpu = int(str(pod_set.template.spec.containers[0].resources.requests["cpu"]))
    assignment = make_assignment({"cpu": cpu * pod_set.count}, "f", count=pod_set.count)
    assignment["topologyAssignment"] = {"levels": [HOST], "slices": slices}
    admission = {"clusterQueue": queue, "podSetAssignments": [assignment]}
    return decode(Workload, states.reserve(encode(workload), admission, [], 1.0))


def pod_on(name: str, node: str, cpu: int) -> ForeignPod:
    """A pod that belongs to no Workload."""
    return ForeignPod(ObjectKey("other", name), node, {"cpu": 1000 * cpu, "pods": 1})


def world(
    nodes: list[Obj], *workloads: Workload, foreign: tuple[ForeignPod, ...] = (), cpu: int = 100
) -> World:
    """ClusterQueues `a` and `b` without a common cohort, on the same nodes."""
    base = World(
        settings=Settings(places_pods=True),
        topologies={"t": topology()},
        nodes={facts.name: facts for facts in map(node_facts, nodes)},
        foreign_pods={pod.key: pod for pod in foreign},
        workloads={one.key: one for one in workloads},
    ).with_namespace("ns", {})
    base = base.with_flavor(make_flavor("f", {"tas": "yes"}, topologyName="t"))
    for name in ("a", "b"):
        base = base.with_cluster_queue(make_cluster_queue(name, {"f": {"cpu": cpu}}))
        base = base.with_local_queue(make_local_queue(name, name))
    return base
