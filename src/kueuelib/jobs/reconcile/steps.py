"""One step per phase of a job, and the parts of steps (KEP-369)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from kueuelib.api.kinds import PODS, WORKLOADS
from kueuelib.api.meta import Obj, controller_of, parse_time
from kueuelib.api.names import (
    EVICTED,
    FINISHED,
    IN_USE_FINALIZER,
    PREBUILT_LABEL,
    REASON_FAILED,
    REASON_FAILED_TO_START,
    REASON_OUT_OF_SYNC,
    REASON_OWNER_NOT_FOUND,
    REASON_SUCCEEDED,
)
from kueuelib.errors import PodSetError
from kueuelib.jobs.contract.capabilities import ComposableJob, JobWithFinalize, StopReason
from kueuelib.jobs.contract.commands import (
    MISSED,
    WARNING,
    Change,
    Command,
    Count,
    Create,
    Delete,
    DropFinalizer,
    Emit,
    Recheck,
    RequeueAfter,
)
from kueuelib.jobs.contract.field_rules import where_named
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.podset_info import FlavorNotFound
from kueuelib.jobs.reconcile import reports
from kueuelib.jobs.reconcile.job_snapshot import Case, JobPhase
from kueuelib.jobs.reconcile.matching import (
    accepted,
    is_left_to_end,
    left_of_stop,
    refuse_repetition,
)
from kueuelib.jobs.reconcile.priority import PriorityClassNotFound, resolve
from kueuelib.jobs.reconcile.workload_build import (
    as_own,
    build_workload,
    rebuilt,
    with_gates,
    with_limit,
    with_priority,
    with_queue,
    with_taken_over,
)
from kueuelib.jobs.reconcile.written import forgetting, infos_left, noted, remembered, started
from kueuelib.workload import states
from kueuelib.workload.phases import DUE_TO

# ---- deletes jobs that were deactivated, after a time --------------------------------------------

DELETED = "Deleted"


def expiry(case: Case) -> tuple[Command, ...]:
    """Deletes a job that we deactivated, once its retention time is over."""
    after = case.situation.settings.delete_deactivated_after
    eviction = states.condition(case.workload, EVICTED)
    by_us = eviction.get("reason", "").startswith(DUE_TO)
    if after is None or states.is_active(case.workload) or not by_us:
        return ()
    if case.situation.uses_quota(case.job):
        return ()
    left = parse_time(eviction["lastTransitionTime"]) + after - case.situation.now
    if left > 0:
        return (RequeueAfter("it was deactivated and is kept for a while", left),)
    message = "Deleted: it was deactivated, and its retention period is over"
    event = Emit(case.job.raw, DELETED, message)
    if isinstance(case.job, ComposableJob):
        return (event, *case.job.remove_members())
    return (event, Delete(case.job.resource, case.job.raw))


# --------------------------------------------------------------------------------------------------

MISSING_RETRY = 5.0
"""Seconds until the next look for a missing object."""

SUSPENDED_JOB = "suspended"
STARTED = "Started"
SUSPENDED = "Suspended"
STOPPED = "Stopped"
CREATED_WORKLOAD = "CreatedWorkload"
DELETED_WORKLOAD = "DeletedWorkload"
UPDATED_WORKLOAD = "UpdatedWorkload"
FINISHED_WORKLOAD = "FinishedWorkload"
COMPOSE_ERROR = "ErrWorkloadCompose"

_NEVER_RUN = (REASON_FAILED_TO_START, REASON_OUT_OF_SYNC)

Commands = tuple[Command, ...]


# ---- the steps


def _workload_finished(case: Case) -> Commands:
    reason = states.condition(case.workload, FINISHED).get("reason")
    if reason in _NEVER_RUN and not case.job.is_suspended() and not case.job.finished():
        message = f"Workload {_name(case.workload)} is finished: the job must not run"
        left = stop(case, StopReason.NOT_ADMITTED, message)
        if left:
            return left
    made = case.job.prebuilt_workload is None and case.job.resource != PODS
    if reason == REASON_OWNER_NOT_FOUND and made and not case.job.finished():
        message = "The workload was taken for one without a job"
        left = stop(case, StopReason.NO_MATCHING_WORKLOAD, message)
        if left or case.situation.uses_quota(case.job):
            return left
        return delete_all(case.job, [case.workload], "it was taken for one without a job")
    ended = finalize(case.job) if case.job.finished() or case.job.resource == PODS else ()
    if not _has_finalizer(case.workload):
        return ended
    message = f"Workload {_name(case.workload)} is finished"
    return (
        *ended,
        Emit(case.job.raw, FINISHED_WORKLOAD, message),
        *release(case.workload),
    )


def _job_finished(case: Case) -> Commands:
    if case.matching.chosen is None:
        gone = tuple(c for workload in case.matching.surplus for c in release(workload))
        return (*gone, *finalize(case.job))
    end = case.job.finished()
    assert end is not None
    reason = REASON_SUCCEEDED if end.succeeded else REASON_FAILED
    return (
        reports.finish(case.workload, reason, end.message, case.situation.now),
        *_workload_finished(case),
    )


def _workload_deleted(case: Case) -> Commands:
    if not case.job.finished():
        message = "The workload is deleted"
        left = stop(case, StopReason.WORKLOAD_DELETED, message)
        if left or case.situation.uses_quota(case.job):
            return left
    return release(case.workload)


def _no_workload(case: Case) -> Commands:
    job, situation = case.job, case.situation
    if not job.is_suspended():
        left = stop(case, StopReason.NO_MATCHING_WORKLOAD, "The job has no workload")
        if not left or job.resource == PODS:
            return left
        # The webhook suspends every queued job, so this one bypassed it.
        return (left[0], Count(MISSED, (job.resource.kind, SUSPENDED_JOB)), *left[1:])
    left = _leftovers(case)
    if left or situation.uses_quota(job):
        return left
    if job.prebuilt_workload is not None:
        return _missing_prebuilt(case)
    composed = job.compose_workload() if isinstance(job, ComposableJob) else None
    if isinstance(composed, tuple):
        return composed
    if composed is not None and "priority" in composed["spec"]:
        return _create(case, composed)
    pod_sets = situation.pod_sets(job)
    try:
        priority = resolve(job, pod_sets, situation.classes)
    except PriorityClassNotFound as error:
        return _missing(job, error)
    if composed is not None:
        return _create(case, {**composed, "spec": {**composed["spec"], **priority.spec()}})
    taken_over = situation.settings.taken_over
    return _create(case, accepted(job, build_workload(job, pod_sets, priority, taken_over)))


def _missing_prebuilt(case: Case) -> Commands:
    job, prebuilt, name = case.job, case.situation.prebuilt, case.job.prebuilt_workload
    text = f'{where_named(job.raw, PREBUILT_LABEL)} names the Workload "{name}", which '
    if prebuilt is None:
        text += "does not exist"
    elif controller_of(prebuilt) is not None:
        text += "belongs to another object"
    else:  # otherwise the job would have adopted it
        text += "is being deleted" if states.is_deleted(prebuilt) else "is finished"
    gone = delete_all(job, case.matching.surplus, "the job names another one")
    return (Emit(job.raw, COMPOSE_ERROR, text, WARNING), *gone)


def _create(case: Case, workload: Obj) -> Commands:
    job, meta, again = case.job, workload["metadata"], case.situation.again
    if again is not None and again.wait:
        return (RequeueAfter("its workload vanished several times", again.wait),)
    return (
        *(() if again is None else (Recheck(job.resource, job.raw),)),
        Create(WORKLOADS, with_gates(job, as_own(job, workload))),
        Emit(job.raw, CREATED_WORKLOAD, f"Created Workload {meta['namespace']}/{meta['name']}"),
    )


def _mismatch(case: Case) -> Commands:
    job, situation = case.job, case.situation
    if not job.is_suspended():
        message = "No workload matches the job"
        return stop(case, StopReason.NO_MATCHING_WORKLOAD, message)
    left = _leftovers(case)
    if left or situation.uses_quota(job):
        return left
    message, surplus = "it does not match the job", case.matching.surplus
    live = (each for each in surplus if not (states.is_finished(each) or states.is_deleted(each)))
    first = next(live, None)
    gone = delete_all(job, [each for each in surplus if each is not first], message)
    if first is None:
        return gone
    if states.has_quota(first):
        return (*reports.give_back(situation, job, first), *gone)
    try:
        taken_over, pod_sets = situation.settings.taken_over, situation.pod_sets(job)
        changed = rebuilt(job, pod_sets, first, situation.classes, taken_over)
    except PriorityClassNotFound as error:
        return _missing(job, error)
    refuse_repetition(job, first, accepted(job, changed))
    return (
        *reports.take_back(first, situation.now),
        Change(WORKLOADS, first, changed),
        Emit(job.raw, UPDATED_WORKLOAD, f"Updated Workload {_name(first)} to match the job"),
        *gone,
    )


def _evicted(case: Case) -> Commands:
    message = states.condition(case.workload, EVICTED).get("message", "")
    left = stop(case, StopReason.WORKLOAD_EVICTED, message)
    if left or case.job.is_ending() or case.situation.uses_quota(case.job):
        return left
    return reports.give_back(case.situation, case.job, case.workload)


def _stopping(case: Case) -> Commands:
    return stop(case, StopReason.NOT_ADMITTED, "Completing the last stop")


def _starting(case: Case) -> Commands:
    job, workload = case.job, case.workload
    queue = workload["status"].get("admission", {}).get("clusterQueue", "")
    message = f"Admitted by clusterQueue {queue}"
    try:
        infos = case.situation.settings.origin.infos_for_start(workload, case.situation.flavors)
        if isinstance(job, ComposableJob):
            return job.copy().run_members(infos, message)
        changed = started(job, workload, infos)
    except FlavorNotFound as error:
        return _missing(job, error)
    except PodSetError as error:
        now, text = case.situation.now, str(error)
        return (
            reports.finish(workload, REASON_FAILED_TO_START, text, now),
            Emit(job.raw, REASON_FAILED_TO_START, text, WARNING),
        )
    remembering = noted(workload, job, changed)
    return (
        *(() if remembering is workload else (Change(WORKLOADS, workload, remembering),)),
        Change(job.resource, job.raw, changed),
        Emit(job.raw, STARTED, message),
    )


def _start(case: Case) -> Commands:
    """Starts the job as long as no newer state of the Workload is known."""
    return tuple(
        attrs.evolve(command, given=case.workload) if isinstance(command, Change) else command
        for command in _starting(case)
    )


def _waiting(case: Case) -> Commands:
    """Updates the Workload, also while a deactivated job is kept."""
    kept = expiry(case)
    if kept and not isinstance(kept[0], RequeueAfter):
        return kept
    return (*_updated(case), *kept)


def _updated(case: Case) -> Commands:
    """Updates the Workload with the job's queue, labels, time limit, gates and priority class."""
    job, workload = case.job, case.workload
    first = _leftovers(case)
    if first:
        return first
    moved = _moved(case)
    if moved:
        return moved
    followed = with_taken_over(job, workload, case.situation.settings.taken_over)
    if not states.has_quota(workload):
        followed = with_gates(job, followed)
    if followed is workload:
        return _follow_priority(case) or reports.queued_again(case.situation, job, workload)
    message = f"Updated Workload {_name(workload)} to match labels and annotations of the job"
    return (Change(WORKLOADS, workload, followed), Emit(job.raw, UPDATED_WORKLOAD, message))


def _moved(case: Case) -> Commands:
    """Lets the Workload follow the job's queue and time limit, which no reservation survives."""
    job, workload = case.job, case.workload
    queued = with_queue(job, workload)
    moved = with_limit(job, queued)
    if moved is workload:
        return ()
    if not states.has_quota(workload):
        return (Change(WORKLOADS, workload, moved),)
    why = "The time limit of the job was changed"
    if queued is not workload:
        why = f'The job was moved to the queue "{job.queue_name}"'
    return reports.take_out(case.situation, job, workload, why)


def _not_admitted(case: Case) -> Commands:
    return stop(case, StopReason.NOT_ADMITTED, "The workload is not admitted")


def _follow_priority(case: Case) -> Commands:
    job, workload, situation = case.job, case.workload, case.situation
    try:
        changed = with_priority(job, situation.pod_sets(job), workload, situation.classes)
    except PriorityClassNotFound as error:
        return _missing(job, error)
    if changed is workload:
        return ()
    message = f"Updated the priority of Workload {_name(workload)}"
    return (Change(WORKLOADS, workload, changed), Emit(job.raw, UPDATED_WORKLOAD, message))


STEPS: dict[JobPhase, Callable[[Case], Commands]] = {
    JobPhase.WORKLOAD_FINISHED: _workload_finished,
    JobPhase.JOB_FINISHED: _job_finished,
    JobPhase.WORKLOAD_DELETED: _workload_deleted,
    JobPhase.NO_WORKLOAD: _no_workload,
    JobPhase.MISMATCH: _mismatch,
    JobPhase.EVICTED: _evicted,
    JobPhase.STOPPING: _stopping,
    JobPhase.STARTING: _start,
    JobPhase.WAITING: _waiting,
    JobPhase.NOT_ADMITTED: _not_admitted,
    JobPhase.RUNNING: _follow_priority,
}


# ---- the parts of a step


def stop(case: Case, reason: StopReason, message: str) -> Commands:
    """The remaining commands until the job is stopped and restored, with the event about it."""
    job, now = case.job, case.situation.now
    doubts: Commands = ()
    if is_left_to_end(job):
        return ()
    if isinstance(job, ComposableJob):
        infos = infos_left(job, case.remembered, case.situation.flavors)
        return job.stop_members(infos, reason, message, now)
    try:
        infos = infos_left(job, case.remembered, case.situation.flavors)
        left = left_of_stop(job, infos, reason, message, now)
    except Exception as error:  # noqa: BLE001 - whatever its templates are: pods must not run
        infos, left = (), left_of_stop(job, (), reason, message, now)
        text = f"The pod templates cannot be restored and stay as they are; correct them: {error!r}"
        doubts = (Emit(job.raw, COMPOSE_ERROR, text, WARNING),)
    first, *others = forgetting(job, infos, left.commands, case.remembered) or (None,)
    if first is None:
        return ()
    event = (Emit(job.raw, STOPPED, message),) if left.stops_now else ()
    return (first, *event, *doubts, *others)


def _leftovers(case: Case) -> Commands:
    """Restores a job that another client has suspended after its start."""
    if remembered(case.job) is None:
        return ()
    return stop(case, StopReason.NOT_ADMITTED, "Completing the last stop")


def delete_all(job: GenericJob, workloads: Sequence[Obj], why: str) -> Commands:
    """Deletes Workloads that do not, or no longer, stand for the job.

    Other writes come first, so that they do not wait if the server refuses the deletion.
    """
    commands: list[Command] = []
    for workload in workloads:
        commands += release(workload)
        if not states.is_deleted(workload):
            message = f"Deleted Workload {_name(workload)}: {why}"
            commands += [Delete(WORKLOADS, workload), Emit(job.raw, DELETED_WORKLOAD, message)]
    return tuple(commands)


def release(workload: Obj) -> Commands:
    """Permits the deletion of a Workload."""
    if not _has_finalizer(workload):
        return ()
    return (DropFinalizer(WORKLOADS, workload, IN_USE_FINALIZER),)


def finalize(job: GenericJob) -> Commands:
    """Removes the kind's own finalizers."""
    return job.finalize() if isinstance(job, JobWithFinalize) else ()


def _missing(job: GenericJob, error: Exception) -> Commands:
    return (
        Emit(job.raw, COMPOSE_ERROR, str(error), WARNING),
        RequeueAfter(str(error), MISSING_RETRY),
    )


def _has_finalizer(workload: Obj) -> bool:
    return IN_USE_FINALIZER in (workload["metadata"].get("finalizers") or ())


def _name(workload: Obj) -> str:
    meta = workload["metadata"]
    return f"{meta['namespace']}/{meta['name']}"
