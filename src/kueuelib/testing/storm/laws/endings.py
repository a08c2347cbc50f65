"""Laws at rest about jobs and pods: they run if they are admitted, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.laws.reading import (
    CHECKS,
    CLUSTER_QUEUES,
    FLAVORS,
    IN_USE,
    JOBS,
    POD_FINALIZER,
    PODS,
    WORKLOADS,
    admitted,
    finalizers,
    finished,
    gated,
    group_of,
    is_group,
    job_end,
    labels,
    leaving,
    may_run,
    meta,
    name,
    namespace,
    queue_of,
    reserving,
    spec,
    status,
    subject_of,
    suspended,
    terminal,
)
from kueuelib.testing.storm.laws.still import Finding, Rest, title


def _alive(pod: Obj) -> bool:
    return not terminal(pod) and not leaving(pod)


def _ours(pod: Obj) -> bool:
    """Whether the webhook saw the pod; only then it has a gate."""
    return labels(pod).get(POD_FINALIZER) == "true"


def admitted_runs(rest: Rest) -> Iterator[Finding]:
    """A job or pod whose Workload is admitted is not held back."""
    for job in rest.jobs:
        if may_run(rest.by_subject.get(subject_of(job))) and suspended(job) and not leaving(job):
            yield title(JOBS, job), "its Workload is admitted, but it is still suspended"
    for pod in rest.single_pods():
        if may_run(rest.by_subject.get(subject_of(pod))) and gated(pod) and _alive(pod):
            yield title(PODS, pod), "its Workload is admitted, but it still has its gate"


def done_jobs_end(rest: Rest) -> Iterator[Finding]:
    """A Job whose completions have all succeeded is over."""
    for job in rest.jobs:
        wanted, done = spec(job).get("completions"), status(job).get("succeeded")
        if wanted and done and done >= wanted and not job_end(job):
            yield title(JOBS, job), "all of its pods have succeeded, but it does not end"


def nothing_runs_unadmitted(rest: Rest) -> Iterator[Finding]:
    """Nothing that is queued runs without an admitted Workload."""
    for job in rest.jobs:
        runs = not suspended(job) and not job_end(job) and not leaving(job)
        if runs and not admitted(rest.by_subject.get(subject_of(job))):
            yield title(JOBS, job), "it runs, but no Workload of it is admitted"
    for pod in rest.single_pods():
        runs = not gated(pod) and _alive(pod) and _ours(pod)
        if runs and not admitted(rest.by_subject.get(subject_of(pod))):
            yield title(PODS, pod), "it may run, but no Workload of it is admitted"


def every_job_has_a_workload(rest: Rest) -> Iterator[Finding]:
    """Every queued job that has not ended has a Workload."""
    for job in rest.jobs:
        if not job_end(job) and not leaving(job) and subject_of(job) not in rest.by_subject:
            yield title(JOBS, job), "it has no Workload"
    for pod in rest.single_pods():
        if gated(pod) and _alive(pod) and subject_of(pod) not in rest.by_subject:
            yield title(PODS, pod), "it has no Workload"


def finished_jobs(rest: Rest) -> Iterator[Finding]:
    """The Workload of a job or pod that has ended is Finished."""
    for job in rest.jobs:
        workload = rest.by_subject.get(subject_of(job))
        if job_end(job) and workload is not None and not finished(workload):
            yield title(WORKLOADS, workload), f"its Job is {job_end(job)}, but it is not Finished"
    for pod in rest.single_pods():
        workload = rest.by_subject.get(subject_of(pod))
        if terminal(pod) and workload is not None and not finished(workload):
            yield title(WORKLOADS, workload), "its Pod has ended, but it is not Finished"


def no_orphans(rest: Rest) -> Iterator[Finding]:
    """No Workload outlives its owners, and none is stuck in its deletion."""
    for workload in rest.workloads:
        owners = meta(workload).get("ownerReferences") or ()
        known = [owner for owner in owners if owner.get("kind") in ("Job", "Pod")]
        if leaving(workload):
            yield title(WORKLOADS, workload), "it was deleted, but it is still there"
        elif known == list(owners) != [] and rest.uids.isdisjoint(one["uid"] for one in owners):
            yield title(WORKLOADS, workload), "none of its owners still exists"


def no_leaked_finalizers(rest: Rest) -> Iterator[Finding]:
    """A finalizer is removed as soon as the object that it protects is gone."""
    for workload in rest.workloads:
        if finished(workload) and IN_USE in finalizers(workload):
            yield title(WORKLOADS, workload), "it has finished, but it keeps its finalizer"
    for pod in rest.pods:
        if POD_FINALIZER in finalizers(pod) and not _alive(pod) and _explained(rest, pod):
            yield title(PODS, pod), "it has ended, but it keeps its finalizer"
    for resource, obj in _protected(rest):
        if leaving(obj) and finalizers(obj):
            yield title(resource, obj), "it was deleted and is unused, but it keeps its finalizer"


def _explained(rest: Rest, pod: Obj) -> bool:
    """Whether an ended pod may stay, because the rules for groups are looser."""
    group = group_of(pod)
    if not group:
        return True
    workload = rest.by_subject.get(subject_of(pod))
    if workload is not None:
        return finished(workload)
    return all(leaving(member) for member in rest.groups[namespace(pod), group])


def _protected(rest: Rest) -> Iterator[tuple[str, Obj]]:
    """Queues, flavors and checks that nothing uses."""
    used = {queue_of(workload) for workload in rest.workloads if reserving(workload)}
    for queue in rest.queues.values():
        if name(queue) not in used:
            yield CLUSTER_QUEUES, queue
    flavors = {pair[0] for queue in rest.ledger.queues.values() for pair in queue.quotas}
    for flavor in rest.flavors.values():
        if name(flavor) not in flavors:
            yield FLAVORS, flavor
    checks = {
        rule["name"]
        for queue in rest.queues.values()
        for rule in (spec(queue).get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    }
    for check in rest.checks.values():
        if name(check) not in checks:
            yield CHECKS, check


def groups_all_or_none(rest: Rest) -> Iterator[Finding]:
    """The pods of a group may all run, or none of them."""
    for (space, group), pods in sorted(rest.groups.items()):
        workload = rest.by_subject.get(f"group:{space}/{group}")
        if workload is not None and (finished(workload) or not is_group(workload)):
            continue
        alive = [pod for pod in pods if _alive(pod) and _ours(pod)]
        free = [name(pod) for pod in alive if not gated(pod)]
        held = [name(pod) for pod in alive if gated(pod)]
        if may_run(workload):
            if held:
                text = f"the group is admitted, but {', '.join(held)} still has the gate"
                yield f"{PODS} {space}/{group}", text
        elif free and not admitted(workload):
            yield f"{PODS} {space}/{group}", f"{', '.join(free)} may run without an admission"
