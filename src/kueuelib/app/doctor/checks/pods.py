"""Pods and Jobs that are held back although no Workload will start them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kueuelib.api.ages import duration
from kueuelib.api.kinds import WORKLOAD_PRIORITY_CLASSES
from kueuelib.api.meta import Obj, controller_of, labels_of
from kueuelib.api.names import PRIORITY_CLASS_LABEL, QUEUE_LABEL
from kueuelib.app.doctor.finding import Finding, Severity, check, subject_of
from kueuelib.app.doctor.manager import no_manager
from kueuelib.app.doctor.snapshot import Snapshot
from kueuelib.app.explaining.subject import group_problem
from kueuelib.jobs.pods.reading import Stage, group_of, queue_of, stage_of
from kueuelib.workload.states import is_finished

PATIENCE = 60.0
"""Seconds after which a Workload should exist."""
_UNMADE = "no Workload represents it: is a manager running with the integration pod?"


@check("pod-gated", "Pod", "Workload")
def gated(snapshot: Snapshot) -> Iterator[Finding]:
    """Pods with our scheduling gate that nothing will remove; the first one of each group."""
    groups: dict[tuple[str, str], list[Obj]] = {}
    for pod in snapshot.all("Pod"):
        meta = pod["metadata"]
        groups.setdefault((meta["namespace"], group_of(pod) or f"/{meta['name']}"), []).append(pod)
    for pods in groups.values():
        held = [
            pod
            for pod in pods
            if stage_of(pod) is Stage.GATED
            and snapshot.age(pod["metadata"].get("creationTimestamp")) >= PATIENCE
        ]
        why = _why(snapshot, held[0], pods) if held else ""
        if why:
            meta = held[0]["metadata"]
            age = duration(snapshot.age(meta["creationTimestamp"]))
            fix = f"kueuelib explain pod/{meta['name']} -n {meta['namespace']}"
            problem = f"it has been gated for {age}, and {why}"
            follows = no_manager(snapshot) if why == _UNMADE else ()
            yield Finding(Severity.ERROR, subject_of("Pod", held[0]), problem, fix, follows)


def _why(snapshot: Snapshot, pod: Obj, group: Sequence[Obj]) -> str:
    """Why nothing will remove the gate of a pod; empty if a Workload may."""
    name = group_of(pod)
    if name:
        workload = snapshot.find("Workload", name, pod["metadata"]["namespace"])
        problem = group_problem(pod, group) if workload is None else ""
        if problem:
            return f"its group {name} has no Workload: {problem}"
    else:
        workload = snapshot.workload_of(pod)
    if workload is None:
        return _UNMADE
    if is_finished(workload):
        return f"its Workload {workload['metadata']['name']} has finished"
    return ""


@check("job-unqueued", "Job", "Workload")
def unqueued(snapshot: Snapshot) -> Iterator[Finding]:
    """Suspended Jobs with a queue name for which no Workload was made."""
    for job in snapshot.all("Job"):
        age = snapshot.age(job["metadata"].get("creationTimestamp"))
        if age < PATIENCE or not job["spec"].get("suspend") or not queue_of(job):
            continue
        if controller_of(job) is not None or snapshot.workload_of(job) is not None:
            continue
        problem = (
            f"it has been suspended for {duration(age)} and names the queue {queue_of(job)} "
            f"({QUEUE_LABEL}), and no Workload was made for it"
        )
        subject, meta = subject_of("Job", job), job["metadata"]
        wanted = labels_of(job).get(PRIORITY_CLASS_LABEL, "")
        if wanted and _is_missing(snapshot, wanted):
            text = f"{problem}: {WORKLOAD_PRIORITY_CLASSES.kind} {wanted} does not exist"
            fix = f"create it, or remove the label {PRIORITY_CLASS_LABEL}"
            yield Finding(Severity.ERROR, subject, text, fix)
            continue
        problem += ": is a manager running?"
        fix = f"kueuelib explain job/{meta['name']} -n {meta['namespace']}"
        yield Finding(Severity.ERROR, subject, problem, fix, no_manager(snapshot))


def _is_missing(snapshot: Snapshot, priority_class: str) -> bool:
    """Whether a WorkloadPriorityClass does not exist, as far as they were read."""
    known = snapshot.cluster.classes.workload
    return not snapshot.why_unseen(WORKLOAD_PRIORITY_CLASSES.kind) and priority_class not in known
