"""Laws that hold at rest, and their table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import ceil

import attrs

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.laws import admissible
from kueuelib.testing.storm.laws.law import REST, Law
from kueuelib.testing.storm.laws.ledger import ZERO, Usage, quantity, usage_by_queue
from kueuelib.testing.storm.laws.reading import (
    CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    IN_USE,
    JOBS,
    LOCAL_QUEUES,
    POD_FINALIZER,
    PODS,
    WORKLOADS,
    active,
    admitted,
    condition,
    denied,
    finalizers,
    finished,
    gated,
    group_of,
    holds,
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
from kueuelib.testing.storm.laws.state_at_rest import QUEUE, Finding, StateAtRest, title

__all__ = [
    "REST_LAWS",
    "RestLaw",
    "StateAtRest",
]


PRIORITY = "kueue.x-k8s.io/priority-class"
TIME_LIMIT = "kueue.x-k8s.io/max-exec-time-seconds"


# ---- laws at rest about waiting Workloads, and about those that should wait ----------------------

_NOTHING_TO_WAIT_FOR = ("Preempted", "AdmissionCheck", "Deactivated")
"""Reasons of evictions after which an active Workload has only quota to wait for."""


def waiting_says_why(rest: StateAtRest) -> Iterator[Finding]:
    """Every Workload that waits for quota has a reason."""
    for workload in rest.pending():
        reservation = condition(workload, "QuotaReserved")
        if denied(workload, "Requeued") and condition(workload, "Requeued").get("message"):
            continue  # it is kept out of its queue, for example because pods of its group are gone
        if not denied(workload, "QuotaReserved"):
            yield title(WORKLOADS, workload), "it waits, but has no condition QuotaReserved=False"
        elif not reservation.get("reason") or not reservation.get("message"):
            yield title(WORKLOADS, workload), "it waits, but QuotaReserved=False gives no reason"


def no_unfinished_eviction(rest: StateAtRest) -> Iterator[Finding]:
    """An eviction or a deactivation ends with quota released, and with a place in the queue."""
    for workload in rest.workloads:
        if not reserving(workload):
            continue
        if holds(workload, "Evicted"):
            reason = condition(workload, "Evicted").get("reason")
            yield title(WORKLOADS, workload), f"it was evicted ({reason}), but holds its quota"
        elif not active(workload):
            yield title(WORKLOADS, workload), "it is not active, but holds its quota"
    for workload in rest.pending():
        reason = str(condition(workload, "Requeued").get("reason"))
        if denied(workload, "Requeued") and reason.startswith(_NOTHING_TO_WAIT_FOR):
            yield title(WORKLOADS, workload), f"it is active, but not queued again ({reason})"


def no_reservation_in_vain(rest: StateAtRest) -> Iterator[Finding]:
    """A Workload with quota is admitted when its checks are Ready, and loses it if one fails."""
    for workload in rest.workloads:
        if not reserving(workload) or not active(workload):
            continue
        states = [entry.get("state") for entry in status(workload).get("admissionChecks") or ()]
        if any(state in ("Retry", "Rejected") for state in states):
            yield title(WORKLOADS, workload), "a check of it failed, but it holds its quota"
        elif not admitted(workload) and all(state == "Ready" for state in states):
            yield title(WORKLOADS, workload), "it holds quota and all checks are Ready: admit it"


def stopped_queues(rest: StateAtRest) -> Iterator[Finding]:
    """A stopped queue keeps only admitted Workloads, a drained one none."""
    for workload in rest.workloads:
        if not reserving(workload):
            continue
        for queue in (rest.queues.get(queue_of(workload)), rest.local_queue(workload)):
            policy = _policy(queue)
            if policy == "HoldAndDrain" or (policy == "Hold" and not admitted(workload)):
                text = f"it holds quota, but its queue has the stop policy {policy}"
                yield title(WORKLOADS, workload), text
                break


def _policy(queue: Obj | None) -> str:
    return str(spec(queue or {}).get("stopPolicy") or "None")


# ---- laws at rest about the statuses of queues: they equal the sums over the objects -------------

LARGEST = 2**63 - 1
"""The share of a borrower with weight 0."""
FIELDS = (("flavorsReservation", reserving), ("flavorsUsage", admitted))


def cluster_queue_status(rest: StateAtRest) -> Iterator[Finding]:
    """Counts and usage in the status of a ClusterQueue equal those of its Workloads."""
    for queue in rest.queues.values():
        if leaving(queue):
            continue
        mine = [one for one in rest.workloads if queue_of(one) == name(queue)]
        waiting = [one for one in rest.pending() if _waits_in(rest, one, queue)]
        for text in (*_counts(queue, mine, waiting), *_usage(queue, mine)):
            yield title(CLUSTER_QUEUES, queue), text
        model = rest.ledger.queues[name(queue)]
        shown = _shown(queue, "flavorsReservation", "borrowed")
        for pair, amount in shown.items():
            used = rest.ledger.used(model, pair)
            nominal = model.quota(pair).nominal
            borrowed = max(ZERO, used - nominal) if model.parent else ZERO
            if amount != borrowed:
                text = f"{_pair(pair)}: borrowed is {float(amount):g}, not {float(borrowed):g}"
                yield title(CLUSTER_QUEUES, queue), text


def local_queue_status(rest: StateAtRest) -> Iterator[Finding]:
    """Counts and usage in the status of a LocalQueue equal those of its Workloads."""
    for key, queue in sorted(rest.local_queues.items()):
        target = spec(queue).get("clusterQueue")
        if leaving(queue) or target not in rest.queues:
            continue
        here = [
            one for one in rest.workloads if (namespace(one), spec(one).get("queueName")) == key
        ]
        mine = [one for one in here if reserving(one)]
        if any(queue_of(one) != target for one in mine):
            continue  # they hold quota of a queue that the LocalQueue no longer leads to
        waiting = [one for one in rest.pending() if one in here]
        for text in (*_counts(queue, mine, waiting), *_usage(queue, mine)):
            yield title(LOCAL_QUEUES, queue), text


def queues_say_if_they_admit(rest: StateAtRest) -> Iterator[Finding]:
    """A ClusterQueue is reported as active if and only if it can admit something."""
    for queue in rest.queues.values():
        can = rest.can_admit(queue)
        if not leaving(queue) and holds(queue, "Active") is not can:
            shown = condition(queue, "Active").get("message")
            text = f"it can{'' if can else 'not'} admit anything, but its status says: {shown}"
            yield title(CLUSTER_QUEUES, queue), text


def shares(rest: StateAtRest) -> Iterator[Finding]:
    """The share of a ClusterQueue or Cohort is what it borrowed of what its parent could lend."""
    ledger = rest.ledger
    nodes = [
        *((CLUSTER_QUEUES, raw, ledger.queues[key]) for key, raw in rest.queues.items()),
        *((COHORTS, raw, ledger.cohorts[key]) for key, raw in rest.cohorts.items()),
    ]
    if not any("fairSharing" in status(raw) for _, raw, _ in nodes):
        return  # nothing is shared
    for resource, raw, node in nodes:
        if leaving(raw) or ledger.endless(node):
            continue
        shown = (status(raw).get("fairSharing") or {}).get("weightedShare")
        share = ledger.share(node)
        if shown not in _rounded_up(share):
            yield title(resource, raw), f"its share is {shown}, not {share}"


def _rounded_up(share: Fraction | None) -> set[int]:
    """A share in the form of a status; a product of floats may miss a whole number."""
    if share is None:
        return {LARGEST}
    slack = share / 10**9
    return {ceil(share - slack), ceil(share), ceil(share + slack)}


def _waits_in(rest: StateAtRest, workload: Obj, queue: Obj) -> bool:
    target = rest.queue(workload)
    return target is not None and name(target) == name(queue)


def _counts(queue: Obj, mine: list[Obj], waiting: list[Obj]) -> Iterator[str]:
    shown = status(queue)
    expected = {
        "reservingWorkloads": sum(map(reserving, mine)),
        "admittedWorkloads": sum(map(admitted, mine)),
    }
    for field, count in expected.items():
        if shown.get(field, 0) != count:
            yield f"{field} is {shown.get(field, 0)}, not {count}"
    most = len(waiting)
    least = sum(not denied(one, "Requeued") for one in waiting)
    pending = shown.get("pendingWorkloads", 0)
    if not least <= pending <= most:
        yield f"pendingWorkloads is {pending}, not {most}"


def _usage(queue: Obj, mine: list[Obj]) -> Iterator[str]:
    for field, counts in FIELDS:
        expected: Usage = {}
        for usage in usage_by_queue([one for one in mine if counts(one)]).values():
            expected.update(usage)
        shown = _shown(queue, field, "total")
        for pair, amount in sorted(shown.items()):
            right = expected.get(pair, ZERO)
            if amount != right:
                yield f"{field}: {_pair(pair)} is {float(amount):g}, not {float(right):g}"


def _shown(queue: Obj, field: str, part: str) -> Usage:
    return {
        (flavor["name"], resource["name"]): quantity(resource.get(part, 0))
        for flavor in status(queue).get(field) or ()
        for resource in flavor.get("resources") or ()
    }


def _pair(pair: tuple[str, str]) -> str:
    return f"{pair[1]} in flavor {pair[0]}"


# Laws at rest about jobs and pods: they run if they are admitted, and leave nothing behind.


def _alive(pod: Obj) -> bool:
    return not terminal(pod) and not leaving(pod)


def _ours(pod: Obj) -> bool:
    """Whether the webhook saw the pod; only then it has a gate."""
    return labels(pod).get(POD_FINALIZER) == "true"


def admitted_runs(rest: StateAtRest) -> Iterator[Finding]:
    """A job or pod whose Workload is admitted is not held back."""
    for job in rest.jobs:
        if may_run(rest.by_subject.get(subject_of(job))) and suspended(job) and not leaving(job):
            yield title(JOBS, job), "its Workload is admitted, but it is still suspended"
    for pod in rest.single_pods():
        if may_run(rest.by_subject.get(subject_of(pod))) and gated(pod) and _alive(pod):
            yield title(PODS, pod), "its Workload is admitted, but it still has its gate"


def done_jobs_end(rest: StateAtRest) -> Iterator[Finding]:
    """A Job whose completions have all succeeded is over."""
    for job in rest.jobs:
        wanted, done = spec(job).get("completions"), status(job).get("succeeded")
        if wanted and done and done >= wanted and not job_end(job):
            yield title(JOBS, job), "all of its pods have succeeded, but it does not end"


def nothing_runs_unadmitted(rest: StateAtRest) -> Iterator[Finding]:
    """Nothing that is queued runs without an admitted Workload."""
    for job in rest.jobs:
        runs = not suspended(job) and not job_end(job) and not leaving(job)
        if runs and not admitted(rest.by_subject.get(subject_of(job))):
            yield title(JOBS, job), "it runs, but no Workload of it is admitted"
    for pod in rest.single_pods():
        runs = not gated(pod) and _alive(pod) and _ours(pod)
        if runs and not admitted(rest.by_subject.get(subject_of(pod))):
            yield title(PODS, pod), "it may run, but no Workload of it is admitted"


def every_job_has_a_workload(rest: StateAtRest) -> Iterator[Finding]:
    """Every queued job that has not ended has a Workload."""
    for job in rest.jobs:
        if not job_end(job) and not leaving(job) and subject_of(job) not in rest.by_subject:
            yield title(JOBS, job), "it has no Workload"
    for pod in rest.single_pods():
        if gated(pod) and _alive(pod) and subject_of(pod) not in rest.by_subject:
            yield title(PODS, pod), "it has no Workload"


def workloads_follow_their_jobs(rest: StateAtRest) -> Iterator[Finding]:
    """A waiting Workload has the same queue, priority class and time limit as its job."""
    for subject in (*rest.jobs, *rest.single_pods()):
        workload = rest.by_subject.get(subject_of(subject))
        if workload is None or reserving(workload) or finished(workload):
            continue
        asked, has = labels(subject), spec(workload)
        wanted = {
            "queueName": asked.get(QUEUE, ""),
            "priorityClassRef": asked.get(PRIORITY, ""),
            "maximumExecutionTimeSeconds": asked.get(TIME_LIMIT, ""),
        }
        shown = {
            "queueName": has.get("queueName") or "",
            "priorityClassRef": (has.get("priorityClassRef") or {}).get("name") or "",
            "maximumExecutionTimeSeconds": str(has.get("maximumExecutionTimeSeconds") or ""),
        }
        for field, text in wanted.items():
            if text != shown[field]:
                yield title(WORKLOADS, workload), f"{field} is {shown[field]!r}, not {text!r}"


def finished_jobs(rest: StateAtRest) -> Iterator[Finding]:
    """The Workload of a job or pod that has ended is Finished."""
    for job in rest.jobs:
        workload = rest.by_subject.get(subject_of(job))
        if job_end(job) and workload is not None and not finished(workload):
            yield title(WORKLOADS, workload), f"its Job is {job_end(job)}, but it is not Finished"
    for pod in rest.single_pods():
        workload = rest.by_subject.get(subject_of(pod))
        if terminal(pod) and workload is not None and not finished(workload):
            yield title(WORKLOADS, workload), "its Pod has ended, but it is not Finished"


def no_orphans(rest: StateAtRest) -> Iterator[Finding]:
    """No Workload outlives its owners, and none is stuck in its deletion."""
    for workload in rest.workloads:
        owners = meta(workload).get("ownerReferences") or ()
        known = [owner for owner in owners if owner.get("kind") in ("Job", "Pod")]
        if leaving(workload):
            yield title(WORKLOADS, workload), "it was deleted, but it is still there"
        elif known == list(owners) != [] and rest.uids.isdisjoint(one["uid"] for one in owners):
            yield title(WORKLOADS, workload), "none of its owners still exists"


def no_leaked_finalizers(rest: StateAtRest) -> Iterator[Finding]:
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


def _explained(rest: StateAtRest, pod: Obj) -> bool:
    """Whether an ended pod may stay, because the rules for groups are looser."""
    group = group_of(pod)
    if not group:
        return True
    workload = rest.by_subject.get(subject_of(pod))
    if workload is not None:
        return finished(workload)
    return all(leaving(member) for member in rest.groups[namespace(pod), group])


def _protected(rest: StateAtRest) -> Iterator[tuple[str, Obj]]:
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


def groups_all_or_none(rest: StateAtRest) -> Iterator[Finding]:
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


# --------------------------------------------------------------------------------------------------

Check = Callable[[StateAtRest], Iterator[Finding]]


@attrs.frozen
class RestLaw:
    """A law with the function that finds violations."""

    law: Law
    check: Check


def _law(name: str, check: Check) -> RestLaw:
    """Makes a law whose sentence is the first line of the function's docstring."""
    sentence = (check.__doc__ or "").partition("\n")[0]
    return RestLaw(Law(name, REST, sentence), check)


REST_LAWS = (
    _law("admissible-runs", admissible.admissible_runs),
    _law("admitted-runs", admitted_runs),
    _law("done-jobs-end", done_jobs_end),
    _law("nothing-runs-unadmitted", nothing_runs_unadmitted),
    _law("every-job-has-a-workload", every_job_has_a_workload),
    _law("finished-jobs-have-finished-workloads", finished_jobs),
    _law("workloads-follow-their-jobs", workloads_follow_their_jobs),
    _law("no-orphans", no_orphans),
    _law("no-leaked-finalizers", no_leaked_finalizers),
    _law("groups-all-or-none", groups_all_or_none),
    _law("waiting-says-why", waiting_says_why),
    _law("no-unfinished-eviction", no_unfinished_eviction),
    _law("no-reservation-in-vain", no_reservation_in_vain),
    _law("stopped-queues-are-respected", stopped_queues),
    _law("cluster-queue-status", cluster_queue_status),
    _law("local-queue-status", local_queue_status),
    _law("queues-say-if-they-admit", queues_say_if_they_admit),
    _law("shares-are-right", shares),
)
"""The laws in the order they are checked."""
