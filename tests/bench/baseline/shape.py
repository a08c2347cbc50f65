"""The shape of the benchmark as data: queues, classes of Workloads, intervals, run times."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from kueuelib.api.kinds import CLUSTER_QUEUES, LOCAL_QUEUES, NAMESPACES, RESOURCE_FLAVORS, WORKLOADS
from kueuelib.api.meta import Obj, Resource

CLASS_LABEL = "bench.kueuelib.dev/class"
FLAVOR = "bench"
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
    """

    name: str
    count: int
    interval: float
    seconds: float
    priority: int
    cpu: int


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
        workers: how many status writes the stand-in for execution has in flight at most.
    """

    classes: tuple[WorkloadClass, ...]
    cohorts: int = 5
    queues: int = 6
    nominal: int = 20
    borrowing: int = 100
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
        yield RESOURCE_FLAVORS, _typed(RESOURCE_FLAVORS, {"name": FLAVOR}, {})
        for place in self.places():
            meta = {"name": place.name}
            yield CLUSTER_QUEUES, _typed(CLUSTER_QUEUES, meta, self._queue(place))
            yield NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
            local = {"name": place.name, "namespace": place.name}
            yield LOCAL_QUEUES, _typed(LOCAL_QUEUES, local, {"clusterQueue": place.name})

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


def workload(place: QueuePlace, kind: WorkloadClass, number: int) -> Obj:
    """A Workload without a job."""
    container = {
        "name": "c",
        "image": "registry.example/work:1",
        "resources": {"requests": {"cpu": str(kind.cpu)}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    meta = {
        "name": f"{kind.name}-{number}",
        "namespace": place.name,
        "labels": {CLASS_LABEL: kind.name},
    }
    spec = {
        "queueName": place.name,
        "priority": kind.priority,
        "podSets": [{"name": "main", "count": 1, "template": template}],
    }
    return _typed(WORKLOADS, meta, spec)


def _typed(resource: Resource, meta: Obj, spec: Obj) -> Obj:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": meta,
        "spec": spec,
    }
