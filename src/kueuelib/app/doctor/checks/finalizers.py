"""Finalizers: deleted objects that do not disappear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kueuelib.api.ages import duration
from kueuelib.api.meta import Obj, ObjectKey, key_of
from kueuelib.api.phrases import some
from kueuelib.app.doctor.finding import Finding, Severity, check, subject_of
from kueuelib.app.doctor.manager import TERMINATING, is_ending, no_manager
from kueuelib.app.doctor.snapshot import Snapshot
from kueuelib.app.explaining.gather import NEEDED
from kueuelib.app.foreign_finalizers import OURS
from kueuelib.jobs.pods.reading import Stage, group_of, stage_of
from kueuelib.scheduler.pending.workload_info import holds_quota
from kueuelib.scheduler.quota.queue_spec import queue_spec
from kueuelib.workload.states import has_quota, is_deleted, is_finished

PATIENCE = 60.0
"""Seconds that a deletion may take."""
_KINDS = ("ClusterQueue", "ResourceFlavor", "AdmissionCheck", "Workload")


def recreation(name: str) -> str:
    """The command that creates a deleted ClusterQueue again once nothing uses it.

    Args:
        name: its name.
    """
    again = "kubectl replace --force --timeout=24h -f -"
    return (
        f"kubectl get clusterqueue {name} -o yaml | {again}  # creates it again once the Workloads "
        "that hold its quota have ended; a deletion cannot be cancelled"
    )


@check("finalizer-stuck", *(one.kind for one in NEEDED), before_migration=True)
def stuck(snapshot: Snapshot) -> Iterator[Finding]:
    """Queueing objects that carry our finalizer long after they were deleted."""
    for kind in _KINDS:
        for obj in snapshot.all(kind):
            if not _is_stuck(snapshot, obj):
                continue
            users = users_of(snapshot, kind, obj["metadata"]["name"])
            if users and is_ending(snapshot, kind):
                continue  # nobody can create it again; see what keeps its kind
            age = duration(snapshot.age(obj["metadata"]["deletionTimestamp"]))
            if users:
                problem = f"it was deleted {age} ago and stays while in use by {some(users)}"
                name = obj["metadata"]["name"]
                fix = (
                    f"kubectl get {kind.lower()} {name} -o yaml  # remove it from its ClusterQueues"
                )
                fix = recreation(name) if kind == "ClusterQueue" else fix
                follows = ("queue-inactive",) if kind == "ClusterQueue" else ()
                yield Finding(Severity.HINT, subject_of(kind, obj), problem, fix, follows)
            else:
                problem = f"it was deleted {age} ago, nothing uses it, and its finalizer stays"
                yield _kept(snapshot, kind, obj, problem)


@check("pod-finalizer-stuck", "Pod", "Workload", before_migration=True)
def stuck_pods(snapshot: Snapshot) -> Iterator[Finding]:
    """Pods that carry our finalizer long after their deletion and end; the first one of each group
    that waits for replacements.

    A manager keeps the finalizer on purpose of a pod that has succeeded until its group is
    finished, and while other pods of the group are still ending.
    """
    told: set[ObjectKey] = set()
    ending = {_group_key(pod) for pod in snapshot.all("Pod") if stage_of(pod) is Stage.LEAVING}
    for pod in snapshot.all("Pod"):
        stage = stage_of(pod)
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        waits = stage is Stage.LEAVING or (group_of(pod) and _group_key(pod) in ending)
        if waits or not _is_stuck(snapshot, pod, grace):
            continue
        age = duration(snapshot.age(pod["metadata"]["deletionTimestamp"]))
        group = _going_on(snapshot, pod) if stage.is_over else None
        if group is None:
            problem = f"it was deleted {age} ago, does not run, and its finalizer stays"
            yield _kept(snapshot, "Pod", pod, problem)
        elif stage is Stage.FAILED and key_of(group) not in told:
            told.add(key_of(group))
            yield _awaiting(snapshot, pod, group, age)


def _group_key(pod: Obj) -> ObjectKey:
    return ObjectKey(pod["metadata"].get("namespace") or "", group_of(pod))


def _going_on(snapshot: Snapshot, pod: Obj) -> Obj | None:
    """The Workload of a pod's group, which may still be replaced; None if it has no such group."""
    if not group_of(pod):
        return None
    key = _group_key(pod)
    workload = snapshot.find("Workload", key.name, key.namespace)
    goes_on = workload is not None and not is_finished(workload) and not is_deleted(workload)
    return workload if goes_on else None


def _awaiting(snapshot: Snapshot, pod: Obj, group: Obj, age: str) -> Finding:
    """A group that waits for replacements."""
    holds = ", and its quota is held until then" if has_quota(group) else ""
    stays = f"was deleted {age} ago and stays until it is replaced or the group ends{holds}"
    problem = f"its pod {pod['metadata']['name']} {stays}"
    meta = group["metadata"]
    end = f"kubectl delete workload {meta['name']} -n {meta['namespace']}"
    fix = f"create a pod in its place; or, to end the group and its other pods: {end}"
    space = snapshot.find("Namespace", meta["namespace"])
    if space is not None and space["metadata"].get("deletionTimestamp"):
        fix = f"{end}  # ends its other pods too; no pod can replace it in a deleted namespace"
    return Finding(Severity.HINT, subject_of("Workload", group), problem, fix)


def _kept(snapshot: Snapshot, kind: str, obj: Obj, problem: str) -> Finding:
    """An object whose finalizer a running manager would remove."""
    follows = (*no_manager(snapshot), TERMINATING)
    return Finding(Severity.ERROR, subject_of(kind, obj), problem, _release(kind, obj), follows)


def _is_stuck(snapshot: Snapshot, obj: Obj, grace: float = 0.0) -> bool:
    meta = obj["metadata"]
    ours = any(name in OURS for name in meta.get("finalizers") or ())
    return ours and snapshot.age(meta.get("deletionTimestamp")) > PATIENCE + grace


def users_of(snapshot: Snapshot, kind: str, name: str) -> Sequence[str]:
    """The users that keep a deleted object, as kind and name.

    Args:
        snapshot: the cluster.
        kind: of the object.
        name: of the object.
    """
    world = snapshot.world
    if kind == "ClusterQueue":
        return [
            f"Workload {key}"
            for key, one in sorted(world.workloads.items())
            if holds_quota(one) and world.home_of(one) == name
        ]
    specs = [(each, queue_spec(queue)) for each, queue in sorted(world.cluster_queues.items())]
    if kind == "ResourceFlavor":
        return [f"ClusterQueue {each}" for each, spec in specs if name in spec.flavors]
    if kind == "AdmissionCheck":
        return [
            f"ClusterQueue {each}"
            for each, spec in specs
            if name in {one.name for one in spec.checks}
        ]
    return ()


def _release(kind: str, obj: Obj) -> str:
    """The command that removes our finalizer."""
    meta = obj["metadata"]
    place = next(number for number, name in enumerate(meta["finalizers"]) if name in OURS)
    where = f"-n {meta['namespace']} " if meta.get("namespace") else ""
    body = f'[{{"op":"remove","path":"/metadata/finalizers/{place}"}}]'
    patch = f"kubectl patch {where}{kind.lower()} {meta['name']} --type=json -p '{body}'"
    return f"{patch}  # a manager that manages it does the same"
