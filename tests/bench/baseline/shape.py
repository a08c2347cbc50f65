"""The shape of the benchmark as data: queues, classes of Workloads, intervals, run times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from kueuelib.api.kinds import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
)
from kueuelib.api.meta import Obj, Resource

CLASS_LABEL = "bench.kueuelib.dev/class"
FLAVOR = "bench"
TOPOLOGY = "bench"
GROUP_OF_NODES = "bench.kueuelib.dev/nodes"
"""The label of nodes that the flavor selects."""
BLOCK, RACK = "bench.kueuelib.dev/block", "bench.kueuelib.dev/rack"
HOST = "kubernetes.io/hostname"
NODES_OF_RACK = 64
CAPACITY = {"cpu": "96", "memory": "256Gi", "pods": "110"}
TIME = "2024-01-01T00:00:00Z"
PREEMPTION = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}


@attrs.frozen
class WorkloadClass:
    """Workloads that are alike.

    Attributes:
        name: of the class.
        count: how many each ClusterQueue gets.
        interval: seconds between two of them.
        seconds: how long each runs.
        priority: of each.
        cpu: that each requests.
        pods: of each, which share that.
        asks: the topology request.
    """

    name: str
    count: int
    interval: float
    seconds: float
    priority: int
    cpu: int
    pods: int = 1
    asks: Mapping[str, str | int] | None = None


@attrs.frozen
class QueuePlace:
    """One ClusterQueue, with a LocalQueue and a namespace of the same name."""

    name: str
    cohort: str


@attrs.frozen
class Shape:
    """What is created, and when.

    Attributes:
        classes: of Workloads.
        cohorts: how many.
        queues: ClusterQueues in each cohort.
        nominal: CPUs of each ClusterQueue.
        borrowing: CPUs that each may borrow.
        racks: of nodes in a topology; 0 for none.
        workers: how many status writes the stand-in for execution has in flight at most.
    """

    classes: tuple[WorkloadClass, ...]
    cohorts: int = 5
    queues: int = 6
    nominal: int = 20
    borrowing: int = 100
    racks: int = 0
    workers: int = 5

    @property
    def total(self) -> int:
        """All Workloads."""
        return self.cohorts * self.queues * sum(each.count for each in self.classes)

    @property
    def quota(self) -> int:
        """The nominal CPUs of all ClusterQueues."""
        return self.cohorts * self.queues * self.nominal

    def scaled(self, workloads: int) -> Shape:
        """The same shape with about so many Workloads, at least one of each class per queue."""
        part = workloads / self.total
        classes = (attrs.evolve(c, count=max(1, round(c.count * part))) for c in self.classes)
        return attrs.evolve(self, classes=tuple(classes))

    def places(self) -> Iterator[QueuePlace]:
        """The ClusterQueues."""
        for cohort in range(self.cohorts):
            for queue in range(self.queues):
                yield QueuePlace(f"bench-{cohort}-{queue}", f"bench-{cohort}")

    def queue_objects(self) -> Iterator[tuple[Resource, Obj]]:
        """Everything but the Workloads, in the order in which it has to be created."""
        spec: Obj = {}
        if self.racks:
            levels = [{"nodeLabel": label} for label in (BLOCK, RACK, HOST)]
            yield TOPOLOGIES, _typed(TOPOLOGIES, {"name": TOPOLOGY}, {"levels": levels})
            spec = {"nodeLabels": {GROUP_OF_NODES: "yes"}, "topologyName": TOPOLOGY}
        for node in self.nodes():
            yield NODES, node
        yield RESOURCE_FLAVORS, _typed(RESOURCE_FLAVORS, {"name": FLAVOR}, spec)
        for place in self.places():
            meta = {"name": place.name}
            yield CLUSTER_QUEUES, _typed(CLUSTER_QUEUES, meta, self._queue(place))
            yield NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
            local = {"name": place.name, "namespace": place.name}
            yield LOCAL_QUEUES, _typed(LOCAL_QUEUES, local, {"clusterQueue": place.name})

    def nodes(self) -> Iterator[Obj]:
        """The nodes, which are ready."""
        for rack in range(self.racks):
            for number in range(NODES_OF_RACK):
                name = f"bench-{rack}-{number}"
                labels = {BLOCK: "block", RACK: f"rack-{rack}", HOST: name, GROUP_OF_NODES: "yes"}
                ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
                ready |= {"lastTransitionTime": TIME, "lastHeartbeatTime": TIME}
                status = {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": [ready]}
                meta = {"name": name, "labels": labels}
                yield {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}

    def _queue(self, place: QueuePlace) -> Obj:
        quota = {
            "name": "cpu",
            "nominalQuota": str(self.nominal),
            "borrowingLimit": str(self.borrowing),
        }
        group = {"coveredResources": ["cpu"], "flavors": [{"name": FLAVOR, "resources": [quota]}]}
        return {
            "cohortName": place.cohort,
            "namespaceSelector": {},
            "preemption": dict(PREEMPTION),
            "resourceGroups": [group],
        }


BASELINE = Shape(
    (
        WorkloadClass("small", 350, 0.1, 0.2, 50, 1),
        WorkloadClass("medium", 100, 0.5, 0.5, 100, 5),
        WorkloadClass("large", 50, 1.2, 1.0, 200, 20),
    )
)
"""15,000 Workloads, as upstream's `test/performance/scheduler/configs/baseline` has them."""


LARGE_SCALE = Shape(
    (
        WorkloadClass("small", 35, 0.06, 0.15, 50, 1),
        WorkloadClass("medium", 11, 0.3, 0.35, 100, 5),
        WorkloadClass("large", 4, 0.7, 0.7, 200, 20),
    ),
    cohorts=10,
    queues=100,
)
"""50,000 Workloads in 1,000 ClusterQueues, as upstream's configuration `large-scale` has them."""


def _asking(kind: WorkloadClass, pods: int, *counts: int) -> Iterator[WorkloadClass]:
    """The class in three parts, which ask for a rack in different ways."""
    asked: tuple[Mapping[str, str | int], ...] = (
        {"required": RACK},
        {"preferred": RACK},
        {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": pods // 2},
    )
    for way, count, asks in zip(("required", "preferred", "slices"), counts, asked, strict=True):
        name = f"{kind.name}-{way}"
        yield attrs.evolve(kind, name=name, count=count, pods=pods, asks=asks)


_SMALL, _MEDIUM, _LARGE = BASELINE.classes
IN_RACKS = Shape(
    (
        *_asking(_SMALL, 2, 120, 120, 110),
        *_asking(_MEDIUM, 4, 34, 33, 33),
        *_asking(_LARGE, 8, 17, 17, 16),
    ),
    racks=10,
)
"""The same Workloads as in `BASELINE`, which ask for places on 640 nodes, as in `tas`."""

SHAPES = {"baseline": BASELINE, "tas": IN_RACKS, "large-scale": LARGE_SCALE}
"""By the names of upstream's configurations."""


def workload(place: QueuePlace, kind: WorkloadClass, number: int) -> Obj:
    """A Workload without a job."""
    container = {
        "name": "c",
        "image": "registry.example/work:1",
        "resources": {"requests": {"cpu": f"{1000 * kind.cpu // kind.pods}m"}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    meta = {
        "name": f"{kind.name}-{number}",
        "namespace": place.name,
        "labels": {CLASS_LABEL: kind.name},
    }
    pods: Obj = {"name": "main", "count": kind.pods, "template": template}
    if kind.asks is not None:
        pods["topologyRequest"] = dict(kind.asks)
    spec = {"queueName": place.name, "priority": kind.priority, "podSets": [pods]}
    return _typed(WORKLOADS, meta, spec)


def _typed(resource: Resource, meta: Obj, spec: Obj) -> Obj:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": meta,
        "spec": spec,
    }
