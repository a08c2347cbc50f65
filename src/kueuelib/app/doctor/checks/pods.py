"""Pods and Jobs that are held back although nothing will start them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

import attrs

from kueuelib.api.batch import has_ended
from kueuelib.api.kinds import JOBS, NAMESPACES, WORKLOAD_PRIORITY_CLASSES, WORKLOADS
from kueuelib.api.meta import Obj, annotations_of, controller_of, key_of, labels_of
from kueuelib.api.names import (
    FINISHED,
    PREBUILT_LABEL,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    REASON_FAILED_TO_START,
    REASON_OWNER_NOT_FOUND,
    WORKLOAD_ANNOTATION,
)
from kueuelib.api.phrases import duration, some
from kueuelib.api.workload_state import is_finished
from kueuelib.app.doctor.checks.managers import leads
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check, subject_of
from kueuelib.app.doctor.manager import (
    ANOTHER_WEBHOOK,
    DISABLED,
    explanations,
    gone,
    no_manager,
)
from kueuelib.app.doctor.snapshot import (
    BYPASSING,
    STARTED,
    WITHDRAWN,
    ClusterSnapshot,
    TriedStart,
    says_withdrawn,
)
from kueuelib.app.doctor.starts import PATIENCE, HeldBack, held_back, waited
from kueuelib.app.explaining.subject import group_problem, name_problem, own_workload_key
from kueuelib.app.part_settings import job_settings
from kueuelib.app.refusers import ago, remedy, said
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
from kueuelib.jobs.reconcile.steps import COMPOSE_ERROR, DELETED_WORKLOAD
from kueuelib.workload.states import condition, has_quota, is_deleted

GROUP_PATIENCE = 300.0
"""Seconds that pods of a group may wait for its other pods."""
_QUEUED_BY_POD = ("ReplicaSet", "StatefulSet")
"""Controllers whose pods are queued themselves."""
_TRY = {
    "Job": """--type=merge -p '{"spec":{"suspend":false}}' --dry-run=server """
    "-o jsonpath='{.spec.suspend}'",
    "Pod": """--type=merge -p '{"spec":{"schedulingGates":null}}' --dry-run=server """
    "-o jsonpath='{.spec.schedulingGates}'",
}
_JOB_NAME, _JOB_UID = "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"
_UNMADE = "no Workload represents it: is a manager running with the integration pod?"


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
            if stage_of(pod) is PodStage.GATED and waited(snapshot, pod) >= PATIENCE
        ]
        finding = _held(snapshot, held[0], pods) if held else None
        if finding is not None:
            yield finding


def _held(snapshot: ClusterSnapshot, pod: Obj, group: Sequence[Obj]) -> Finding | None:
    """Why nothing will remove the gate of a pod; None if a Workload may."""
    name, meta = group_of(pod), pod["metadata"]
    age = snapshot.age(meta["creationTimestamp"])
    gated = f"it has been gated for {duration(age)}, and"
    subject, where = subject_of("Pod", pod), f"-n {meta['namespace']}"
    fix = f"kueuelib explain pod/{meta['name']} {where}"
    if name:
        workload = snapshot.find("Workload", name, meta["namespace"])
        problem = group_problem(pod, group) if workload is None else None
        if problem is not None:
            text = f"{gated} its group {name} has no Workload: {problem.message}"
            if not problem.waits:
                return Finding(Severity.ERROR, subject, text, fix)
            fix = f"kubectl get pods {where}  # create the missing pods of {name}, or delete these"
            finding = Finding(Severity.HINT, subject, text, fix)
            return finding if age > GROUP_PATIENCE else None
    else:
        workload = snapshot.workload_of(pod)
    if workload is None:
        return Finding(Severity.ERROR, subject, f"{gated} {_UNMADE}", fix, no_manager(snapshot))
    if is_finished(workload):
        text = f"{gated} its Workload {workload['metadata']['name']} has finished"
        fix = f"kubectl delete pod {meta['name']} {where}  # and submit it again"
        return Finding(Severity.ERROR, subject, text, fix)
    return None


@check("pod-unqueued", "Pod", NAMESPACES.kind, WORKLOADS.kind)
def bypassed(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Pods with a queue name that were created without passing the webhook: they never wait. Pods
    of jobs that were deleted without them.
    """
    yield from _left_behind(snapshot)
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


def _left_behind(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """The pods of jobs that were deleted without them: they run, and hold no quota."""
    jobs: dict[tuple[str, str], list[Obj]] = {}
    for pod in snapshot.all(STARTED):
        namespace, name = key_of(pod)
        origin = annotations_of(pod).get(WORKLOAD_ANNOTATION, "")
        workload = snapshot.find(WORKLOADS.kind, origin, namespace) or {}
        lost = condition(workload, FINISHED).get("reason") == REASON_OWNER_NOT_FOUND
        alone = lost or controller_of(pod) is None
        counts = has_quota(workload) and not is_finished(workload)
        if alone and not counts and stage_of(pod) is PodStage.STARTED:
            uid = labels_of(pod).get(_JOB_UID)
            jobs.setdefault((namespace, uid or origin or name), []).append(pod)
    for (namespace, uid), pods in jobs.items():
        first, names = pods[0], [one["metadata"]["name"] for one in pods]
        kept, what = controller_of(first), f"pods {' '.join(names)}"
        subject = subject_of("Pod", first)
        if kept is not None:
            what = f"{kept['kind'].lower()} {kept['name']}"
        elif uid == labels_of(first).get(_JOB_UID):
            what = f"pods -l {_JOB_UID}={uid}"
            subject = Subject("Job", labels_of(first)[_JOB_NAME], namespace)
        problem = f"it was deleted without its pods, which run on without quota: {some(names)}"
        fix = f"kubectl delete -n {namespace} {what}  # or let them end"
        yield Finding(Severity.WARNING, subject, problem, fix)


@check("job-unqueued", "Job", "Workload", momentary=True)
def unqueued(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Suspended Jobs with a queue name for which no Workload was made, and those whose queue name
    was removed.
    """
    yield from _withdrawn(snapshot)
    for job in snapshot.all("Job"):
        age = snapshot.age(job["metadata"].get("creationTimestamp"))
        if waited(snapshot, job) < PATIENCE or not job["spec"].get("suspend") or not queue_of(job):
            continue
        if controller_of(job) is not None or snapshot.workload_of(job) is not None:
            continue
        if is_deleted(job):
            continue  # it gets none; see what keeps it
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
        failure = snapshot.last_event(COMPOSE_ERROR, job)
        if failure is not None:
            problem += f": {said(failure, snapshot.now)}"
            follows = (*gone(snapshot, WORKLOADS), *explanations(snapshot, failure["message"]))
            space = job["metadata"]["namespace"]
            fix = remedy(failure["message"], snapshot.webhook_configurations(), space)
            fix = fix or f"kubectl get {where} job {name} -o yaml  # correct what the message names"
        else:
            problem += (
                ", although a manager leads" if leads(snapshot) else ": is a manager running?"
            )
            fix = f"kueuelib explain job/{name} {where}"
        yield Finding(Severity.ERROR, subject_of("Job", job), problem, fix, follows)


def _withdrawn(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Jobs that had a Workload, and that nothing starts because they no longer name a queue."""
    for job in snapshot.all(WITHDRAWN):
        (namespace, name), workload = key_of(job), snapshot.workload_of(job)
        deletion = snapshot.last_event(DELETED_WORKLOAD, job)
        over = not job["spec"].get("suspend") or has_ended(job)
        if (
            over
            or queue_of(job)
            or (workload is None and not (deletion and says_withdrawn(deletion)))
        ):
            continue
        problem = f"its {QUEUE_LABEL} was removed while it waited, so nothing starts it"
        known = [one.name for one in snapshot.world.local_queues if one.namespace == namespace]
        named = "" if workload is None else workload["spec"].get("queueName") or ""
        if workload is not None:
            problem += f", even if Workload {workload['metadata']['name']} is admitted"
        queues = [named] if named else known
        fix = f"kubectl get -n {namespace} localqueues  # label Job {name} with {QUEUE_LABEL}"
        if len(queues) == 1:
            label = f"{QUEUE_LABEL}={queues[0]}"
            fix = f"kubectl label -n {namespace} job {name} {label}  # or delete it"
        subject, follows = subject_of("Job", job), no_manager(snapshot)
        yield Finding(Severity.WARNING, subject, problem, fix, follows)


@check("not-started", "Job", "Pod", "Workload", momentary=True)
def not_started(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Jobs and Pods that stay held back although their Workload was admitted a while ago; those
    with the same cause together.
    """
    alike: dict[tuple[str, str], list[tuple[HeldBack, Finding]]] = {}
    for held in held_back(snapshot):
        cause, finding = _not_started(snapshot, held)
        alike.setdefault((held.kind, cause), []).append((held, finding))
    for (kind, _), ((_, first), *others) in alike.items():
        more = ""
        if others:
            key = key_of(others[0][0].obj)
            more = f"; so are {len(others)} other {kind}s, for example {key}"
        yield attrs.evolve(first, problem=f"{first.problem}{more}")


def _not_started(snapshot: ClusterSnapshot, held: HeldBack) -> tuple[str, Finding]:
    """What is known about a start that is overdue, after what it has in common with others."""
    obj, workload, meta = held.obj, held.workload, held.obj["metadata"]
    problem = (
        f"its Workload {workload['metadata']['name']} was admitted {duration(held.age)} ago, and "
        "it is not started"
    )
    tried = _tried(snapshot, held)
    refusal = snapshot.last_event(REASON_FAILED_TO_START, obj, workload)
    why, when = ("", "") if tried is None else (tried.problem, " (in a dry run)")
    if not why and refusal is not None and refusal["message"].startswith(START_REFUSED):
        why, when = (
            refusal["message"].removeprefix(START_REFUSED),
            f" ({ago(refusal, snapshot.now)})",
        )
    problem += f": {why}{when}" if why else ""
    if tried is not None and not tried.problem:
        problem += ("; " if why else ": ") + "a dry run of its start succeeds"
    fix = remedy(why, snapshot.webhook_configurations(), meta["namespace"])
    if tried is not None and tried.is_changed_back:
        fix = " && ".join(f"kubectl get {kind} {name} -o yaml" for kind, name in tried.changers)
        one = "one of them" if len(tried.changers) > 1 else "it"
        fix += f"  # {one} changes the start back: exempt what has the label {QUEUE_LABEL}"
        fix = fix if tried.changers else ""
    shared = tried is not None and (tried.is_changed_back or not why)
    cause = fix or ("the same" if shared else meta["uid"])
    if not fix:
        fix = f"kubectl patch {held.kind.lower()} {meta['name']} -n {meta['namespace']} "
        fix += f"{_TRY[held.kind]}  # shows what refuses the start, or changes it back"
    follows = explanations(snapshot, why)
    if not (why if tried is None else tried.problem or tried.is_changed_back):
        follows = (*follows, *no_manager(snapshot), ANOTHER_WEBHOOK)
    return cause, Finding(Severity.ERROR, subject_of(held.kind, obj), problem, fix, follows)


def _tried(snapshot: ClusterSnapshot, held: HeldBack) -> TriedStart | None:
    """The dry run of a start, or of another one of the kind if this one was not tried."""
    known = [one for one in snapshot.starts if one.kind == held.kind]
    own = (one for one in known if one.uid == held.obj["metadata"]["uid"])
    return next(own, next(iter(known), None))


def _absent(snapshot: ClusterSnapshot, job: Obj) -> tuple[str, str]:
    """The object that a Job names and that does not exist, or the one that has the name of its
    Workload, and the fix; both empty if there is none.
    """
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
        own = own_workload_key(job, JOBS)
        taken = snapshot.find(WORKLOADS.kind, own.name, own.namespace)
        misnamed = name_problem(job, JOBS, taken)
        return ("", "") if misnamed is None else (misnamed.problem, misnamed.fix)
    key = where_named(job, PREBUILT_LABEL)
    fix = f"kubectl get {where} workloads  # create {prebuilt}, or submit Job {name} without it"
    return f"{WORKLOADS.kind} {prebuilt}, which its {key} names, does not exist", fix


def _is_missing(snapshot: ClusterSnapshot, priority_class: str) -> bool:
    """Whether a WorkloadPriorityClass does not exist, as far as they were read."""
    known = snapshot.cluster.classes.workload
    return not snapshot.why_unseen(WORKLOAD_PRIORITY_CLASSES.kind) and priority_class not in known
