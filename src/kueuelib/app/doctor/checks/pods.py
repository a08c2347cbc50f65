"""Pods and Jobs that are held back although nothing will start them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from kueuelib.api.kinds import CRDS, NAMESPACES, WORKLOAD_PRIORITY_CLASSES, WORKLOADS
from kueuelib.api.meta import Obj, controller_of, find_condition, labels_of
from kueuelib.api.names import (
    ADMITTED,
    PREBUILT_LABEL,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    REASON_FAILED_TO_START,
)
from kueuelib.api.phrases import duration
from kueuelib.api.workload_state import is_finished
from kueuelib.app.doctor.checks.managers import leads
from kueuelib.app.doctor.finding import Finding, Severity, check, subject_of
from kueuelib.app.doctor.manager import (
    ANOTHER_WEBHOOK,
    DISABLED,
    MISSING_PERMISSION,
    gone,
    no_manager,
)
from kueuelib.app.doctor.snapshot import BYPASSING, ClusterSnapshot
from kueuelib.app.explaining.subject import group_problem
from kueuelib.app.part_settings import job_settings
from kueuelib.app.refusers import ago, lacks_permission, remedy, said
from kueuelib.jobs.contract.field_rules import identifier, where_named
from kueuelib.jobs.pods.integration import POD
from kueuelib.jobs.pods.reading import (
    PodStage,
    group_of,
    has_finalizer,
    is_selected,
    queue_of,
    stage_of,
)
from kueuelib.jobs.reconcile.refusals import START_REFUSED
from kueuelib.jobs.reconcile.steps import COMPOSE_ERROR
from kueuelib.workload.states import Phase, condition, phase_of

PATIENCE = 60.0
"""Seconds after which a Workload should exist."""
GROUP_PATIENCE = 300.0
"""Seconds that pods of a group may wait for its other pods."""
_QUEUED_BY_POD = ("ReplicaSet", "StatefulSet")
"""Controllers whose pods are queued themselves."""
_UNSUSPEND = """--type=merge -p '{"spec":{"suspend":false}}'"""
_UNGATE = """--type=merge -p '{"spec":{"schedulingGates":null}}'"""
_UNMADE = "no Workload represents it: is a manager running with the integration pod?"


def _waited(snapshot: ClusterSnapshot, obj: Obj) -> float:
    """Seconds since an object could have a Workload: since it exists, and the kind is served."""
    crd = snapshot.find(CRDS.kind, f"{WORKLOADS.plural}.{WORKLOADS.group}") or {}
    served = find_condition((crd.get("status") or {}).get("conditions"), "Established")
    since = [obj["metadata"].get("creationTimestamp"), served.get("lastTransitionTime")]
    return min((snapshot.age(one) for one in since if one), default=0.0)


@check("pod-gated", "Pod", "Workload")
def gated(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Pods with our scheduling gate that nothing will remove; the first one of each group."""
    groups: dict[tuple[str, str], list[Obj]] = {}
    for pod in snapshot.all("Pod"):
        meta = pod["metadata"]
        groups.setdefault((meta["namespace"], group_of(pod) or f"/{meta['name']}"), []).append(pod)
    for pods in groups.values():
        held = [
            pod
            for pod in pods
            if stage_of(pod) is PodStage.GATED and _waited(snapshot, pod) >= PATIENCE
        ]
        finding = _held(snapshot, held[0], pods) if held else None
        if finding is not None:
            yield finding


def _held(snapshot: ClusterSnapshot, pod: Obj, group: Sequence[Obj]) -> Finding | None:
    """Why nothing will remove the gate of a pod; None if a Workload may."""
    name, meta = group_of(pod), pod["metadata"]
    age = snapshot.age(meta["creationTimestamp"])
    told = f"it has been gated for {duration(age)}, and"
    subject, where = subject_of("Pod", pod), f"-n {meta['namespace']}"
    fix = f"kueuelib explain pod/{meta['name']} {where}"
    if name:
        workload = snapshot.find("Workload", name, meta["namespace"])
        problem = group_problem(pod, group) if workload is None else None
        if problem is not None:
            text = f"{told} its group {name} has no Workload: {problem.message}"
            if not problem.waits:
                return Finding(Severity.ERROR, subject, text, fix)
            fix = f"kubectl get pods {where}  # create the missing pods of {name}, or delete these"
            finding = Finding(Severity.HINT, subject, text, fix)
            return finding if age > GROUP_PATIENCE else None
    else:
        workload = snapshot.workload_of(pod)
    if workload is None:
        return Finding(Severity.ERROR, subject, f"{told} {_UNMADE}", fix, no_manager(snapshot))
    if is_finished(workload):
        text = f"{told} its Workload {workload['metadata']['name']} has finished"
        fix = f"kubectl delete pod {meta['name']} {where}  # and submit it again"
        return Finding(Severity.ERROR, subject, text, fix)
    return None


@check("pod-unqueued", "Pod", NAMESPACES.kind)
def bypassed(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Pods with a queue name that were created without passing the webhook: they never wait."""
    settings = job_settings(snapshot.configuration)
    if POD.name not in settings.frameworks:
        return
    for pod in snapshot.all(BYPASSING):
        meta, owner = pod["metadata"], controller_of(pod)
        labels = snapshot.world.namespaces.get(meta["namespace"])
        if stage_of(pod) is not PodStage.STARTED or has_finalizer(pod) or labels is None:
            continue  # a manager marks it, or it is over
        if (owner is not None and owner["kind"] not in _QUEUED_BY_POD) or not is_selected(
            pod, settings, meta["namespace"], labels
        ):
            continue  # perhaps something above it is queued
        problem = (
            f"it names the queue {queue_of(pod)} ({QUEUE_LABEL}), and runs without quota: it was "
            "created without passing the webhook"
        )
        where, name = f"-n {meta['namespace']}", meta["name"]
        fix = (
            f"kubectl get {where} pod {name} -o yaml | sed '/^  nodeName:/d' | "
            "kubectl replace --force -f -  # starts it again, in the queue; or let it end"
        )
        if owner is not None:
            fix = f"kubectl delete {where} pod {name}  # {owner['kind']} {owner['name']} creates"
            fix += " another one, which is queued"
        yield Finding(Severity.WARNING, subject_of("Pod", pod), problem, fix)


@check("job-unqueued", "Job", "Workload", momentary=True)
def unqueued(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Suspended Jobs with a queue name for which no Workload was made."""
    for job in snapshot.all("Job"):
        age = snapshot.age(job["metadata"].get("creationTimestamp"))
        if _waited(snapshot, job) < PATIENCE or not job["spec"].get("suspend") or not queue_of(job):
            continue
        if controller_of(job) is not None or snapshot.workload_of(job) is not None:
            continue
        problem = (
            f"it has been suspended for {duration(age)} and names the queue {queue_of(job)} "
            f"({QUEUE_LABEL}), and no Workload was made for it"
        )
        why, fix = _absent(snapshot, job)
        if why:
            yield Finding(Severity.ERROR, subject_of("Job", job), f"{problem}: {why}", fix)
            continue
        name, where = job["metadata"]["name"], f"-n {job['metadata']['namespace']}"
        follows = (*gone(snapshot, WORKLOADS), *no_manager(snapshot), DISABLED, ANOTHER_WEBHOOK)
        told = snapshot.last_event(COMPOSE_ERROR, job)
        if told is not None:
            problem += f": {said(told, snapshot.now)}"
            if lacks_permission(told["message"]):
                follows = (MISSING_PERMISSION, *follows)
            space = job["metadata"]["namespace"]
            fix = remedy(told["message"], snapshot.webhook_configurations(), space)
            fix = fix or f"kubectl get {where} job {name} -o yaml  # correct what the message names"
        else:
            problem += (
                ", although a manager leads" if leads(snapshot) else ": is a manager running?"
            )
            fix = f"kueuelib explain job/{name} {where}"
        yield Finding(Severity.ERROR, subject_of("Job", job), problem, fix, follows)


@check("not-started", "Job", "Pod", "Workload", momentary=True)
def not_started(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Jobs and Pods that stay held back although their Workload was admitted a while ago."""
    held = [
        *(("Job", job, _UNSUSPEND) for job in snapshot.all("Job") if job["spec"].get("suspend")),
        *(("Pod", pod, _UNGATE) for pod in snapshot.all("Pod") if stage_of(pod) is PodStage.GATED),
    ]
    for kind, obj, try_it in held:
        workload, meta = snapshot.workload_of(obj), obj["metadata"]
        if workload is None or phase_of(workload) is not Phase.ADMITTED:
            continue
        if meta.get("deletionTimestamp"):
            continue
        age = snapshot.age(condition(workload, ADMITTED).get("lastTransitionTime"))
        if min(age, _waited(snapshot, obj)) < PATIENCE:  # a replacement is younger
            continue
        problem = (
            f"its Workload {workload['metadata']['name']} was admitted {duration(age)} ago, and it "
            "is not started"
        )
        fix = f"kubectl patch {kind.lower()} {meta['name']} -n {meta['namespace']} {try_it}"
        fix += " --dry-run=server  # shows what refuses the start, for example a webhook"
        denied, told = False, snapshot.last_event(REASON_FAILED_TO_START, obj, workload)
        if told is not None and told["message"].startswith(START_REFUSED):
            why = told["message"].removeprefix(START_REFUSED)
            problem += f": {why} ({ago(told, snapshot.now)})"
            denied = lacks_permission(told["message"])
            space = meta["namespace"]
            fix = remedy(told["message"], snapshot.webhook_configurations(), space) or fix
        follows = (*no_manager(snapshot), ANOTHER_WEBHOOK)
        follows = (MISSING_PERMISSION, *follows) if denied else follows
        yield Finding(Severity.ERROR, subject_of(kind, obj), problem, fix, follows)


def _absent(snapshot: ClusterSnapshot, job: Obj) -> tuple[str, str]:
    """The object that a Job names and that does not exist, and the fix; both empty if none is."""
    name, where = job["metadata"]["name"], f"-n {job['metadata']['namespace']}"
    wanted = labels_of(job).get(PRIORITY_CLASS_LABEL, "")
    if wanted and _is_missing(snapshot, wanted):
        one = f"{WORKLOAD_PRIORITY_CLASSES.kind} {wanted}"
        fix = f"kubectl get workloadpriorityclasses  # create {wanted}, or give Job {name} another"
        meant = get_close_matches(wanted, sorted(snapshot.cluster.classes.workload), n=1)
        if meant:
            label = f"{PRIORITY_CLASS_LABEL}={meant[0]}"
            fix = f"kubectl label {where} job {name} --overwrite {label}  # or create {wanted}"
        return f"{one} does not exist", fix
    prebuilt = identifier(job, PREBUILT_LABEL)
    if not prebuilt:
        return "", ""
    key = where_named(job, PREBUILT_LABEL)
    fix = f"kubectl get {where} workloads  # create {prebuilt}, or submit Job {name} without it"
    return f"{WORKLOADS.kind} {prebuilt}, which its {key} names, does not exist", fix


def _is_missing(snapshot: ClusterSnapshot, priority_class: str) -> bool:
    """Whether a WorkloadPriorityClass does not exist, as far as they were read."""
    known = snapshot.cluster.classes.workload
    return not snapshot.why_unseen(WORKLOAD_PRIORITY_CLASSES.kind) and priority_class not in known
