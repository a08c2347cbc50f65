"""The parts of a Workload's status that the job's reconciler writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Obj, parse_time, raw_condition
from kueuelib.api.names import (
    FINISHED,
    JOB_MANAGER_PREFIX,
    PODS_READY,
    REASON_OUT_OF_SYNC,
    REASON_PENDING,
    RECLAIMABLE_PODS_MANAGER,
)
from kueuelib.errors import ConfigError
from kueuelib.jobs.contract.capabilities import JobWithReclaimablePods, JobWithReplacements
from kueuelib.jobs.contract.commands import WARNING, Command, Emit, PatchStatus
from kueuelib.jobs.contract.generic_job import GenericJob, PodSet
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.jobs.reconcile.matching import same_templates
from kueuelib.jobs.reconcile.written import as_written
from kueuelib.workload import states
from kueuelib.workload.phases import WAIT_FOR_RECOVERY, WAIT_FOR_START
from kueuelib.workload.states import status_writes

READY_STARTED = "Started"
READY_RECOVERED = "Recovered"
_CAME_BACK = (WAIT_FOR_RECOVERY, READY_RECOVERED)


def plan_reports(situation: JobSnapshot, job: GenericJob, workload: Obj) -> tuple[Command, ...]:
    """The updates of the Workload that follow from the job's pods (KEP-369)."""
    if states.is_finished(workload) or states.is_deleted(workload) or job.finished():
        return ()
    return (
        *_reclaimable(situation, job, workload),
        *_pods_ready(situation, job, workload),
        *_differences(situation, job, workload),
    )


def status_commands(old: Obj, new: Obj) -> tuple[Command, ...]:
    """The commands that bring the status of a Workload to the result of `transitions`."""
    return tuple(
        PatchStatus(
            WORKLOADS,
            old,
            write.style,
            write.body["status"],
            write.field_manager,
            versioned="resourceVersion" in write.body["metadata"],
            force=write.style == "apply",
        )
        for write in status_writes(old, new)
    )


def finish(workload: Obj, reason: str, message: str, now: float) -> Command:
    """Writes Finished; fields of other managers are not touched."""
    changed = states.finish(workload, reason, message, now)
    status = {"conditions": [dict(states.condition(changed, FINISHED))]}
    return PatchStatus(WORKLOADS, changed, "apply", status, f"{JOB_MANAGER_PREFIX}{FINISHED}")


def _differences(situation: JobSnapshot, job: GenericJob, workload: Obj) -> tuple[Command, ...]:
    """Reports a waiting job with other templates than its prebuilt Workload, which is not ours."""
    if job.prebuilt_workload is None or not job.is_suspended():
        return ()
    if same_templates(situation.pod_sets(as_written(job)), workload):
        return ()
    meta = workload["metadata"]
    prebuilt = f'the prebuilt Workload "{meta["name"]}"'
    text = f"The pod templates differ from those of {prebuilt}; make them equal"
    return (Emit(job.raw, REASON_OUT_OF_SYNC, text, WARNING),)


def _reclaimable(situation: JobSnapshot, job: GenericJob, workload: Obj) -> tuple[Command, ...]:
    """Reports which pods no longer need quota; never fewer while quota is reserved."""
    if job.is_ending() and states.is_evicted(workload) and not situation.uses_quota(job):
        wanted = _asked(workload)
    elif isinstance(job, JobWithReclaimablePods):
        wanted = reclaimable_counts(job.reclaimable_pods(), situation.pod_sets(job), workload)
    else:
        return ()
    stored = _reclaimed(workload)
    if states.has_quota(workload):
        wanted = {name: max(wanted.get(name, 0), stored.get(name, 0)) for name in wanted | stored}
    if wanted == stored:
        return ()
    listed = [{"name": name, "count": count} for name, count in sorted(wanted.items())]
    return (
        PatchStatus(
            WORKLOADS, workload, "apply", {"reclaimablePods": listed}, RECLAIMABLE_PODS_MANAGER
        ),
    )


def _reclaimed(workload: Mapping[str, Any]) -> dict[str, int]:
    entries = states.status_of(workload).get("reclaimablePods") or ()
    return {entry["name"]: entry["count"] for entry in entries}


def take_back(workload: Obj, now: float) -> tuple[Command, ...]:
    """Takes back what the status says about the pods of a Workload that are about to change.

    The server would refuse other names or smaller counts beside it.
    """
    commands = status_commands(workload, states.change_pods(workload, now))
    if not _reclaimed(workload):
        return commands
    nothing = {"reclaimablePods": None}
    manager = RECLAIMABLE_PODS_MANAGER
    return (*commands, PatchStatus(WORKLOADS, workload, "merge", nothing, manager, versioned=True))


def give_back(situation: JobSnapshot, job: GenericJob, workload: Obj) -> tuple[Command, ...]:
    """Frees the quota of a stopped job that is evicted, or was changed since the reservation."""
    if not states.is_evicted(workload):
        why = "The job was changed after its quota was reserved"
        return take_out(situation, job, workload, why)
    free = states.release(workload, situation.now)
    if isinstance(job, JobWithReplacements):
        free = job.after_release(free, situation.now)
    return status_commands(workload, free)


def take_out(
    situation: JobSnapshot, job: GenericJob, workload: Obj, why: str
) -> tuple[Command, ...]:
    """Cancels a reservation, and keeps the Workload out of its queue until it matches its job: if
    the server refuses the update, no quota is reserved again and again.
    """
    free = states.cancel(workload, REASON_PENDING, why, situation.now)
    if not isinstance(job, JobWithReplacements):
        free = states.hold_back(free, why, situation.now)
    return status_commands(workload, free)


def queued_again(situation: JobSnapshot, job: GenericJob, workload: Obj) -> tuple[Command, ...]:
    """Returns a Workload that matches its job to its queue, unless the job decides on that."""
    if isinstance(job, JobWithReplacements) or not states.is_held_back(workload):
        return ()
    return status_commands(workload, states.requeue(workload, situation.now))


def reclaimable_counts(
    spare: Mapping[str, int], pod_sets: Sequence[PodSet], workload: Mapping[str, Any]
) -> dict[str, int]:
    """How many pods of each pod set of a Workload no longer need quota.

    The number that is still needed counts: if a job was admitted with fewer pods than its Workload
    asks for, the others are released as well (KEP-369). As at a start, pod sets are matched by
    their order, because names may differ.

    Args:
        spare: the pods, of the present pod sets, that the job no longer needs.
        pod_sets: these pods.
        workload: the raw Workload.
    """
    present = {entry.name: entry.count for entry in pod_sets}
    if unknown := ", ".join(sorted(spare.keys() - present.keys())):
        known = ", ".join(present)
        raise ConfigError("reclaimable_pods()", f"no pod set is called {unknown}", f"use {known}")
    asked = _asked(workload)
    if len(asked) != len(present):  # a job that is about to end may have been edited
        return {}
    counts = {
        name: count - max(0, present[own] - spare[own])
        for (name, count), own in zip(asked.items(), present, strict=True)
        if spare.get(own, 0) > 0
    }
    return {name: count for name, count in counts.items() if count > 0}


def _asked(workload: Mapping[str, Any]) -> dict[str, int]:
    return {entry["name"]: entry.get("count", 1) for entry in workload["spec"]["podSets"]}


def _pods_ready(situation: JobSnapshot, job: GenericJob, workload: Obj) -> tuple[Command, ...]:
    """Reports whether the pods are ready, if that is waited for.

    Otherwise only an existing condition is kept up to date. The Go manager writes it by default,
    under the names of two field managers.
    """
    recovery = situation.settings.pods_ready_recovery
    old = states.condition(workload, PODS_READY)
    if not old and not situation.settings.wait_for_pods_ready:
        return ()
    status, reason, message = pods_ready_state(
        old if _is_of_this_turn(workload, old) else {},
        admitted=states.is_admitted(workload),
        ready=states.is_admitted(workload) and job.pods_ready(),
        recovery=recovery,
    )
    if (old.get("status"), old.get("reason")) == (status, reason):
        return ()
    ready, now = status == "True", situation.now
    condition = raw_condition(old, PODS_READY, ready, reason, message, now=now)
    return (
        PatchStatus(
            WORKLOADS,
            workload,
            "apply",
            {"conditions": [condition]},
            f"{JOB_MANAGER_PREFIX}{PODS_READY}",
            force=True,
        ),
    )


def _is_of_this_turn(workload: Obj, condition: Mapping[str, str]) -> bool:
    """Whether PodsReady was written after the Workload was admitted."""
    if not condition or not states.is_admitted(workload):
        return True
    return parse_time(condition["lastTransitionTime"]) >= states.admitted_since(workload)


def pods_ready_state(
    old: Mapping[str, str], *, admitted: bool, ready: bool, recovery: bool
) -> tuple[str, str, str]:
    """Status, reason and message of PodsReady (KEP-369).

    Args:
        old: the raw condition, empty when there is none.
        admitted: whether the Workload is admitted.
        ready: whether all pods are ready or have succeeded.
        recovery: whether True turns False again while the Workload is admitted.
    """
    waiting = ("False", WAIT_FOR_START, "Not all pods are ready or have succeeded yet")
    if not admitted:
        return waiting
    was_ready = old.get("status") == "True"
    if ready or (was_ready and not recovery):
        if was_ready:
            return "True", old["reason"], old.get("message", "")
        back = old.get("reason") in _CAME_BACK
        reason = READY_RECOVERED if back else READY_STARTED
        return "True", reason, "All pods are ready or have succeeded"
    if was_ready or old.get("reason") == WAIT_FOR_RECOVERY:
        return "False", WAIT_FOR_RECOVERY, "A pod that was ready no longer is"
    return waiting
