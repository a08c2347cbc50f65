"""Histories made by hand."""

from __future__ import annotations

import copy
from typing import Any

from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.laws import Laws, Tolerance, Violation

KUEUE = "kueue.x-k8s.io"
WORKLOADS = f"workloads.{KUEUE}"
CLUSTER_QUEUES = f"clusterqueues.{KUEUE}"
COHORTS = f"cohorts.{KUEUE}"
LOCAL_QUEUES = f"localqueues.{KUEUE}"
FLAVORS = f"resourceflavors.{KUEUE}"
CHECKS = f"admissionchecks.{KUEUE}"
EVENTS = "events"
LEASES = "leases.coordination.k8s.io"
JOBS = "jobs.batch"
PODS = "pods"
LEADER = "manager-1"
TIME = "2026-01-01T00:00:00Z"
ADMITTED = {"QuotaReserved": True, "Admitted": True}


def thing(name: str, namespace: str = "ns", uid: str = "", **parts: Any) -> Obj:
    meta: Obj = {"name": name, "uid": uid or f"uid-{name}", "creationTimestamp": TIME}
    if namespace:
        meta["namespace"] = namespace
    return {"metadata": meta, **parts}


def conditions(**states: bool) -> list[Obj]:
    return [
        {
            "type": kind,
            "status": str(state),
            "reason": kind,
            "message": f"about {kind}",
            "lastTransitionTime": TIME,
        }
        for kind, state in states.items()
    ]


def owner(obj: Obj, kind: str = "Job", *, controller: bool = True) -> Obj:
    meta = obj["metadata"]
    reference = {"apiVersion": "v1", "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    return {**reference, **({"controller": True} if controller else {})}


def job(name: str = "one", *, suspend: bool = True, queue: str = "team", **parts: Any) -> Obj:
    obj = thing(name, spec={"suspend": suspend}, **parts)
    obj["metadata"]["labels"] = {f"{KUEUE}/queue-name": queue}
    return obj


def pod(
    name: str = "one", *, gated: bool = True, group: str = "", phase: str = "Pending", **parts: Any
) -> Obj:
    gates = {"schedulingGates": [{"name": f"{KUEUE}/admission"}]} if gated else {}
    obj = thing(name, spec=gates, status={"phase": phase}, **parts)
    labels = {f"{KUEUE}/queue-name": "team", f"{KUEUE}/managed": "true"}
    if group:
        labels[f"{KUEUE}/pod-group-name"] = group
    obj["metadata"]["labels"] = labels
    return obj


def workload(
    *owners: Obj,
    name: str = "wl",
    cpu: int = 1,
    queue: str = "cq",
    group: bool = False,
    priority: int = 0,
    checks: dict[str, str] | None = None,
    flavor: str = "default",
    local: str = "team",
    active: bool = True,
    selector: Obj | None = None,
    **states: bool,
) -> Obj:
    pods: Obj = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    if selector:
        pods["nodeSelector"] = selector
    pod_set = {"name": "main", "count": cpu, "template": {"spec": pods}}
    spec = {"podSets": [pod_set], "queueName": local, "priority": priority, "active": active}
    status: Obj = {"conditions": conditions(**states)}
    if states.get("QuotaReserved"):
        assignment = {"name": "main", "flavors": {"cpu": flavor}, "count": cpu}
        assignment["resourceUsage"] = {"cpu": str(cpu)}
        status["admission"] = {"clusterQueue": queue, "podSetAssignments": [assignment]}
    if checks:
        status["admissionChecks"] = [{"name": key, "state": of} for key, of in checks.items()]
    obj = thing(name, spec=spec, status=status)
    obj["metadata"]["ownerReferences"] = list(owners)
    if group:
        obj["metadata"]["annotations"] = {f"{KUEUE}/is-group-workload": "true"}
    return obj


def quota(nominal: int, flavor: str = "default", **limits: int) -> Obj:
    cpu = {"name": "cpu", "nominalQuota": str(nominal)}
    cpu |= {key: str(amount) for key, amount in limits.items()}
    return {"name": flavor, "resources": [cpu]}


def cluster_queue(
    name: str = "cq",
    *flavors: Obj,
    nominal: int = 4,
    cohort: str = "",
    status: Obj | None = None,
    **spec: Any,
) -> Obj:
    group = {"coveredResources": ["cpu"], "flavors": list(flavors) or [quota(nominal)]}
    raw = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
    if cohort:
        raw["cohortName"] = cohort
    return thing(name, "", spec=raw, status=status or {})


def cohort(
    name: str, *flavors: Obj, parent: str = "", status: Obj | None = None, **spec: Any
) -> Obj:
    groups = [{"coveredResources": ["cpu"], "flavors": list(flavors)}] if flavors else []
    above = {"parentName": parent} if parent else {}
    return thing(name, "", spec={"resourceGroups": groups, **above, **spec}, status=status or {})


def local_queue(name: str = "team", queue: str = "cq", **status: Any) -> Obj:
    return thing(name, spec={"clusterQueue": queue}, status=status)


def usage(reserved: int, used: int, *, borrowed: int | None = None) -> Obj:
    def flavors(total: int) -> list[Obj]:
        cpu: Obj = {"name": "cpu", "total": str(total)}
        if borrowed is not None:
            cpu["borrowed"] = str(borrowed)
        return [{"name": "default", "resources": [cpu]}]

    return {"flavorsReservation": flavors(reserved), "flavorsUsage": flavors(used)}


def lease(holder: str) -> Obj:
    return thing("lease", "system", spec={"holderIdentity": holder})


def leaving(obj: Obj, *finalizers: str) -> Obj:
    copied = copy.deepcopy(obj)
    copied["metadata"]["deletionTimestamp"] = TIME
    copied["metadata"]["finalizers"] = list(finalizers)
    return copied


def with_status(obj: Obj, **status: Any) -> Obj:
    return {**obj, "status": {**(obj.get("status") or {}), **status}}


class Story:
    """A history that is told one commit after the other, and judged as it is told."""

    def __init__(self, lag: float = 0.0) -> None:
        self.laws = Laws(Tolerance(lag=lag))
        self.broken: list[Violation] = []
        self.at = 0.0
        self._revision = 0
        self.put(LOCAL_QUEUES, local_queue(), "user")

    def put(self, resource: str, obj: Obj, actor: str = LEADER, *, after: float = 1.0) -> None:
        self._commit(resource, obj["metadata"], copy.deepcopy(obj), actor, after)

    def drop(self, resource: str, obj: Obj, actor: str = LEADER, *, after: float = 1.0) -> None:
        self._commit(resource, obj["metadata"], None, actor, after)

    def _commit(self, resource: str, meta: Obj, new: Obj | None, actor: str, after: float) -> None:
        self.at += after
        self._revision += 1
        namespace, name = meta.get("namespace", ""), meta["name"]
        old = self.laws.memory.get(resource, namespace, name)
        commit = Commit(self.at, self._revision, actor, resource, namespace, name, old, new)
        self.broken += self.laws.commit(commit)

    def submit(self, obj: Obj, resource: str = JOBS) -> Obj:
        """A job or pod of a user, and its owner reference."""
        self.put(resource, obj, "user")
        return owner(obj, "Job" if resource == JOBS else "Pod")

    @property
    def names(self) -> set[str]:
        return {violation.law for violation in self.broken}


def judged(**objects: list[Obj]) -> list[Violation]:
    """What is wrong with a state at rest; objects by the plural of their resource."""
    resources = {
        "workloads": WORKLOADS,
        "queues": CLUSTER_QUEUES,
        "local_queues": LOCAL_QUEUES,
        "cohorts": COHORTS,
        "flavors": FLAVORS,
        "checks": CHECKS,
        "jobs": JOBS,
        "pods": PODS,
        "limitranges": "limitranges",
    }
    stored = {resources[plural]: listed for plural, listed in objects.items()}
    return Laws().at_rest(lambda resource: stored.get(resource, []), 0.0)
