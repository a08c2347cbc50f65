"""Reads raw objects: conditions, owners, phases."""

from __future__ import annotations

from datetime import datetime

from kueuelib.testing.storm.history import Obj

WORKLOADS = "workloads.kueue.x-k8s.io"
CLUSTER_QUEUES = "clusterqueues.kueue.x-k8s.io"
LOCAL_QUEUES = "localqueues.kueue.x-k8s.io"
COHORTS = "cohorts.kueue.x-k8s.io"
FLAVORS = "resourceflavors.kueue.x-k8s.io"
CHECKS = "admissionchecks.kueue.x-k8s.io"
JOBS = "jobs.batch"
PODS = "pods"
EVENTS = "events"
LEASES = "leases.coordination.k8s.io"

PREFIX = "kueue.x-k8s.io"
GATE = f"{PREFIX}/admission"
GROUP = f"{PREFIX}/pod-group-name"
POD_FINALIZER = f"{PREFIX}/managed"
IN_USE = f"{PREFIX}/resource-in-use"
GROUP_MARK = f"{PREFIX}/is-group-workload"

TERMINAL = ("Succeeded", "Failed")


def meta(obj: Obj) -> Obj:
    """Its metadata."""
    metadata: Obj = obj["metadata"]
    return metadata


def uid(obj: Obj) -> str:
    """Its UID."""
    return str(meta(obj).get("uid", ""))


def namespace(obj: Obj) -> str:
    """Its namespace, empty for objects of the cluster."""
    return str(meta(obj).get("namespace", ""))


def name(obj: Obj) -> str:
    """Its name."""
    return str(meta(obj)["name"])


def labels(obj: Obj) -> Obj:
    """Its labels."""
    return meta(obj).get("labels") or {}


def notes(obj: Obj) -> Obj:
    """Its annotations."""
    return meta(obj).get("annotations") or {}


def leaving(obj: Obj) -> bool:
    """Whether its deletion was requested."""
    return bool(meta(obj).get("deletionTimestamp"))


def finalizers(obj: Obj) -> list[str]:
    """Its finalizers."""
    return list(meta(obj).get("finalizers") or ())


def status(obj: Obj) -> Obj:
    """Its status."""
    return obj.get("status") or {}


def spec(obj: Obj) -> Obj:
    """Its spec."""
    return obj.get("spec") or {}


def condition(obj: Obj | None, kind: str) -> Obj:
    """A condition, empty if it is absent."""
    for entry in status(obj or {}).get("conditions") or ():
        if entry["type"] == kind:
            matching: Obj = entry
            return matching
    return {}


def holds(obj: Obj | None, kind: str) -> bool:
    """Whether a condition is True."""
    return condition(obj, kind).get("status") == "True"


def denied(obj: Obj, kind: str) -> bool:
    """Whether a condition is False, which differs from absent."""
    return condition(obj, kind).get("status") == "False"


def finished(workload: Obj | None) -> bool:
    """Whether a Workload has ended for good."""
    return holds(workload, "Finished")


def reserving(workload: Obj | None) -> bool:
    """Whether a Workload holds quota."""
    return holds(workload, "QuotaReserved") and not finished(workload)


def admitted(workload: Obj | None) -> bool:
    """Whether a Workload is admitted and has not ended."""
    return holds(workload, "Admitted") and not finished(workload)


def may_run(workload: Obj | None) -> bool:
    """Whether the job of a Workload may start: it is admitted, and not being evicted."""
    return (
        workload is not None
        and admitted(workload)
        and not holds(workload, "Evicted")
        and not leaving(workload)
    )


def active(workload: Obj) -> bool:
    """Whether it is active."""
    return spec(workload).get("active", True) is not False


def queue_of(workload: Obj) -> str:
    """The ClusterQueue of its quota; empty without a reservation."""
    return str((status(workload).get("admission") or {}).get("clusterQueue", ""))


def controller(obj: Obj) -> Obj:
    """Its owner reference with `controller: true`, empty if there is none."""
    for owner in meta(obj).get("ownerReferences") or ():
        if owner.get("controller"):
            reference: Obj = owner
            return reference
    return {}


def owner_uids(obj: Obj) -> list[str]:
    """UIDs of all owners."""
    return [owner["uid"] for owner in meta(obj).get("ownerReferences") or ()]


def is_group(workload: Obj) -> bool:
    """Whether it is the Workload of a pod group."""
    return notes(workload).get(GROUP_MARK) == "true"


def queued(job: Obj) -> bool:
    """Whether it names a LocalQueue."""
    return bool(labels(job).get(f"{PREFIX}/queue-name"))


def suspended(job: Obj) -> bool:
    """Whether a Job is suspended."""
    return spec(job).get("suspend") is True


def busy(obj: Obj) -> bool:
    """Whether a pod, or any pod of a Job, is running and not being deleted."""
    if obj.get("kind") == "Job":
        return int(status(obj).get("active") or 0) > 0
    return status(obj).get("phase") == "Running" and not leaving(obj)


def job_end(job: Obj) -> str:
    """`Complete` or `Failed` for a Job that has ended, otherwise empty."""
    return next((kind for kind in ("Complete", "Failed") if holds(job, kind)), "")


def gated(pod: Obj) -> bool:
    """Whether our scheduling gate keeps a pod from running."""
    return any(gate["name"] == GATE for gate in spec(pod).get("schedulingGates") or ())


def terminal(pod: Obj) -> bool:
    """Whether a pod has ended."""
    return status(pod).get("phase") in TERMINAL


def group_of(pod: Obj) -> str:
    """The group of a pod, empty if it has none."""
    return str(labels(pod).get(GROUP, ""))


def seconds(text: str | None) -> float:
    """An RFC 3339 time as seconds since the epoch; 0 for an absent one."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def subject_of_workload(workload: Obj) -> str:
    """The subject that a Workload admits: `uid:...` of its controller, or
    `group:namespace/name`.
    """
    if is_group(workload):
        return f"group:{namespace(workload)}/{name(workload)}"
    owner = controller(workload)
    return f"uid:{owner['uid']}" if owner else f"none:{namespace(workload)}/{name(workload)}"


def subject_of(obj: Obj) -> str:
    """The subject that has to be admitted before a Job or Pod may run, in the same form."""
    group = group_of(obj)
    return f"group:{namespace(obj)}/{group}" if group else f"uid:{uid(obj)}"
