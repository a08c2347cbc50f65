"""A state at rest, indexed once for all laws about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.laws.ledger import (
    QuotaLedger,
    cohort_of_raw,
    queue_of_raw,
    usage_by_queue,
)
from kueuelib.testing.storm.laws.reading import (
    CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    JOBS,
    LOCAL_QUEUES,
    PODS,
    WORKLOADS,
    active,
    finished,
    group_of,
    holds,
    is_group,
    labels,
    leaving,
    name,
    namespace,
    owner_uids,
    reserving,
    spec,
    subject_of_workload,
    uid,
)

Finding = tuple[str, str]
"""A violation: the name of the object in messages, and the text."""

QUEUE = "kueue.x-k8s.io/queue-name"


def title(resource: str, obj: Obj) -> str:
    """The name of an object in messages."""
    place = f"{namespace(obj)}/" if namespace(obj) else ""
    return f"{resource} {place}{name(obj)}"


class StateAtRest:
    """All objects of a state at rest.

    Args:
        objects: returns all stored objects of a resource.
        now: virtual seconds since the epoch.
    """

    def __init__(self, objects: Callable[[str], list[Obj]], now: float) -> None:
        self.now = now
        self.objects = objects
        self.workloads = _sorted(objects(WORKLOADS))
        self.jobs = [job for job in _sorted(objects(JOBS)) if labels(job).get(QUEUE)]
        self.pods = _sorted(objects(PODS))
        self.queues = {name(raw): raw for raw in _sorted(objects(CLUSTER_QUEUES))}
        self.local_queues = {
            (namespace(raw), name(raw)): raw for raw in _sorted(objects(LOCAL_QUEUES))
        }
        self.cohorts = {name(raw): raw for raw in _sorted(objects(COHORTS))}
        self.flavors = {name(raw): raw for raw in _sorted(objects(FLAVORS))}
        self.checks = {name(raw): raw for raw in _sorted(objects(CHECKS))}
        self.ledger = QuotaLedger(
            {key: queue_of_raw(raw) for key, raw in self.queues.items()},
            usage_by_queue(self.workloads),
            {key: cohort_of_raw(raw) for key, raw in self.cohorts.items()},
        )
        self.by_subject = {
            subject_of_workload(workload): workload
            for workload in self.workloads
            if not leaving(workload)
        }
        self.groups: dict[tuple[str, str], list[Obj]] = defaultdict(list)
        for pod in self.pods:
            if group := group_of(pod):
                self.groups[namespace(pod), group].append(pod)
        self.uids = {uid(obj) for obj in (*objects(JOBS), *self.pods)}

    def single_pods(self) -> Iterator[Obj]:
        """Pods that are queued alone."""
        for pod in self.pods:
            if labels(pod).get(QUEUE) and not group_of(pod) and not owner_uids(pod):
                yield pod

    def local_queue(self, workload: Obj) -> Obj | None:
        """The LocalQueue that a Workload names."""
        return self.local_queues.get((namespace(workload), spec(workload).get("queueName", "")))

    def queue(self, workload: Obj) -> Obj | None:
        """The ClusterQueue in which a Workload waits, by its LocalQueue."""
        local = self.local_queue(workload)
        return None if local is None else self.queues.get(spec(local).get("clusterQueue", ""))

    def can_admit(self, queue: Obj) -> bool:
        """Whether a ClusterQueue can admit anything."""
        if leaving(queue) or spec(queue).get("stopPolicy", "None") != "None":
            return False
        if self.ledger.endless(self.ledger.queues[name(queue)]):
            return False
        flavors = {
            flavor["name"]
            for group in spec(queue).get("resourceGroups") or ()
            for flavor in group.get("flavors") or ()
        }
        rules = (spec(queue).get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
        checks = [self.checks.get(rule["name"]) for rule in rules]
        return flavors <= set(self.flavors) and all(holds(check, "Active") for check in checks)

    def pending(self) -> Iterator[Obj]:
        """Workloads that wait for quota and are eligible for it."""
        for workload in self.workloads:
            waits = not reserving(workload) and not finished(workload)
            if waits and active(workload) and not leaving(workload):
                yield workload

    def members(self, workload: Obj) -> list[Obj]:
        """The pods of the group of a Workload."""
        return self.groups[namespace(workload), name(workload)] if is_group(workload) else []


def _sorted(objects: list[Obj]) -> list[Obj]:
    return sorted(objects, key=lambda obj: (namespace(obj), name(obj)))
