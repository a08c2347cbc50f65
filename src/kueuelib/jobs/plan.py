"""What to do about one job now: the generic reconciler as a pure function (spec/jobs 1.5-1.8).

`phase_of` names where a job and its Workload are, `plan` writes one step. Every write of a plan may
be the last one before the process dies: the next plan starts from what is stored.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import attrs

from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Obj, labels_of
from kueuelib.api.names import (
    EVICTED,
    IN_USE_FINALIZER,
    JOB_UID_LABEL,
    REASON_FAILED,
    REASON_FAILED_TO_START,
    REASON_OUT_OF_SYNC,
    REASON_SUCCEEDED,
)
from kueuelib.controllers import workload_state as states
from kueuelib.errors import PodSetError
from kueuelib.jobs import reports
from kueuelib.jobs.capabilities import (
    ComposableJob,
    JobWithCustomStop,
    JobWithFinalize,
    JobWithSkip,
    Matching,
    Stop,
    StopReason,
)
from kueuelib.jobs.commands import (
    WARNING,
    Change,
    Command,
    Create,
    Delete,
    DropFinalizer,
    Emit,
    Wait,
)
from kueuelib.jobs.generic_job import GenericJob, JobEnd
from kueuelib.jobs.matching import is_controlled_by, is_equivalent, match
from kueuelib.jobs.podset_info import FlavorNotFound, infos_for_restore, infos_for_start
from kueuelib.jobs.priority import PriorityClassNotFound, resolve
from kueuelib.jobs.situation import Situation
from kueuelib.jobs.workload_build import (
    adopt,
    build_workload,
    rebuilt,
    with_priority,
    with_queue,
)

MISSING_RETRY = 5.0
"""Seconds until something that is missing is looked for again."""

STARTED = "Started"
SUSPENDED = "Suspended"
STOPPED = "Stopped"
CREATED_WORKLOAD = "CreatedWorkload"
DELETED_WORKLOAD = "DeletedWorkload"
UPDATED_WORKLOAD = "UpdatedWorkload"
FINISHED_WORKLOAD = "FinishedWorkload"
COMPOSE_ERROR = "ErrWorkloadCompose"

Commands = tuple[Command, ...]


class Phase(enum.Enum):
    """Where a job that stands for itself and its Workload are."""

    WORKLOAD_FINISHED = "the workload is finished"
    JOB_FINISHED = "the job is finished"
    WORKLOAD_DELETED = "the workload is being deleted"
    NO_WORKLOAD = "there is no workload"
    MISMATCH = "no workload asks for what the job wants"
    EVICTED = "the workload is evicted and holds quota"
    STOPPING = "an earlier stop is not complete"
    STARTING = "the workload is admitted, the job suspended"
    WAITING = "the workload is not admitted, the job suspended"
    NOT_ADMITTED = "the job runs without admission"
    RUNNING = "the job runs"


@attrs.frozen
class Case:
    """A job with the Workload that stands for it."""

    situation: Situation
    job: GenericJob
    matching: Matching

    @property
    def workload(self) -> Obj:
        """The Workload, in the phases that have one."""
        assert self.matching.chosen is not None
        return self.matching.chosen

    @property
    def remembered(self) -> Obj | None:
        """The Workload that knows how the templates were, when there is only one candidate."""
        if self.matching.chosen is not None:
            return self.matching.chosen
        return self.matching.surplus[0] if len(self.matching.surplus) == 1 else None


def plan(situation: Situation) -> Commands:
    """What to do now, in order; nothing when all is as it should be."""
    released = tuple(command for workload in situation.orphans for command in _release(workload))
    job = situation.job
    if job is None:
        return released
    return (*released, *_plan_object(situation, job))


def _plan_object(situation: Situation, job: GenericJob) -> Commands:
    if job.is_deleted:
        gone = tuple(c for workload in situation.workloads for c in _release(workload))
        return (*gone, *_finalize(job))
    if isinstance(job, JobWithSkip) and job.skip():
        return ()
    if situation.ancestor is not None:
        return _plan_child(job, situation.ancestor.admitted)
    if not situation.settings.manages(job.queue_name, situation.namespace_labels):
        made = tuple(wl for wl in situation.workloads if _made_for(job, wl))
        if job.is_suspended() or not any(map(states.is_admitted, made)):
            return _delete_all(job, made, "the job is not queued any more")
    return _plan_managed(situation, job)


def _plan_child(job: GenericJob, admitted: bool) -> Commands:
    """A child never has a Workload of its own; it may not run before its ancestor is admitted."""
    if admitted or job.finished() or job.is_suspended():
        return ()
    changed = job.copy()
    changed.suspend()
    if changed.object == job.object:
        return ()
    return (
        Change(job.resource, job.object, changed.object),
        Emit(job.object, SUSPENDED, "The job that owns this one is not admitted"),
    )


def _plan_managed(situation: Situation, job: GenericJob) -> Commands:
    if job.prebuilt_workload is not None:
        matching = Matching(situation.prebuilt)
        first = _join(situation, job)
        if first is not None:
            return first
        if situation.prebuilt is not None and not is_controlled_by(situation.prebuilt, job):
            matching = Matching()
    else:
        matching = match(situation, job)
        if matching.chosen is not None and matching.surplus:
            message = "another workload of the job asks for what it wants"
            return (*matching.commands, *_delete_all(job, matching.surplus, message))
    case = Case(situation, job, matching)
    phase = phase_of(case)
    reported = reports.plan_reports(case.situation, job, matching.chosen) if matching.chosen else ()
    return (*matching.commands, *reported, *_STEPS[phase](case))


def phase_of(case: Case) -> Phase:
    """Where the job and its Workload are; the order of the questions is that of spec/jobs 1.5."""
    job, workload = case.job, case.matching.chosen
    if workload is not None and states.is_finished(workload):
        return Phase.WORKLOAD_FINISHED
    if workload is not None and states.is_deleted(workload):
        return Phase.WORKLOAD_DELETED
    if job.finished():
        return Phase.JOB_FINISHED
    if workload is None:
        return Phase.MISMATCH if case.matching.surplus else Phase.NO_WORKLOAD
    if states.is_evicted(workload) and states.has_quota(workload):
        return Phase.EVICTED
    if isinstance(job, JobWithCustomStop) and job.is_stopping():
        return Phase.STOPPING
    if job.is_suspended():
        return Phase.STARTING if states.is_admitted(workload) else Phase.WAITING
    return Phase.RUNNING if states.is_admitted(workload) else Phase.NOT_ADMITTED


# ---- the steps


def _workload_finished(case: Case) -> Commands:
    ended = _finalize(case.job)
    if not _has_finalizer(case.workload):
        return ended
    message = f"Workload {_name(case.workload)} is finished"
    return (
        *ended,
        Emit(case.job.object, FINISHED_WORKLOAD, message),
        *_release(case.workload),
    )


def _job_finished(case: Case) -> Commands:
    if case.matching.chosen is None:
        gone = tuple(c for workload in case.matching.surplus for c in _release(workload))
        return (*gone, *_finalize(case.job))
    end = case.job.finished()
    assert end is not None
    return (
        reports.finish(case.workload, _reason(end), end.message, case.situation.now),
        *_workload_finished(case),
    )


def _workload_deleted(case: Case) -> Commands:
    if not case.job.finished():
        message = "The workload is deleted"
        stop = _stop(case, StopReason.WORKLOAD_DELETED, message)
        if stop or case.job.is_active():
            return stop
    return _release(case.workload)


def _no_workload(case: Case) -> Commands:
    job, situation = case.job, case.situation
    if not job.is_suspended():
        return _stop(case, StopReason.NO_MATCHING_WORKLOAD, "The job has no workload")
    if job.is_active() or job.prebuilt_workload is not None:
        return ()
    if isinstance(job, ComposableJob):
        composed = job.compose_workload()
        if isinstance(composed, tuple):
            return composed
        return _create(job, composed)
    pod_sets = situation.pod_sets(job)
    try:
        priority = resolve(job, pod_sets, situation.classes)
    except PriorityClassNotFound as error:
        return _missing(job, error)
    return _create(job, build_workload(job, pod_sets, priority))


def _create(job: GenericJob, workload: Obj) -> Commands:
    meta = workload["metadata"]
    return (
        Create(WORKLOADS, workload),
        Emit(job.object, CREATED_WORKLOAD, f"Created Workload {meta['namespace']}/{meta['name']}"),
    )


def _mismatch(case: Case) -> Commands:
    job, situation = case.job, case.situation
    if not job.is_suspended():
        message = "No workload asks for what the job wants"
        return _stop(case, StopReason.NO_MATCHING_WORKLOAD, message)
    if job.is_active():
        return ()
    first, *others = case.matching.surplus
    message = "it does not ask for what the job wants"
    if states.has_quota(first) or states.is_finished(first) or states.is_deleted(first):
        return _delete_all(job, case.matching.surplus, message)
    try:
        changed = rebuilt(job, situation.pod_sets(job), first, situation.classes)
    except PriorityClassNotFound as error:
        return _missing(job, error)
    return (
        *_delete_all(job, others, message),
        Change(WORKLOADS, first, changed),
        Emit(
            job.object, UPDATED_WORKLOAD, f"Updated Workload {_name(first)} to what the job wants"
        ),
    )


def _evicted(case: Case) -> Commands:
    message = states.condition(case.workload, EVICTED).get("message", "")
    stop = _stop(case, StopReason.WORKLOAD_EVICTED, message)
    if stop or case.job.is_active():
        return stop
    released = states.release(case.workload, case.situation.now)
    return reports.status_commands(case.workload, released)


def _stopping(case: Case) -> Commands:
    return _stop(case, StopReason.NOT_ADMITTED, "Completing the last stop")


def _starting(case: Case) -> Commands:
    job, workload = case.job, case.workload
    queue = workload["status"].get("admission", {}).get("clusterQueue", "")
    message = f"Admitted by clusterQueue {queue}"
    changed = job.copy()
    try:
        infos = infos_for_start(workload, case.situation.flavors)
        if isinstance(changed, ComposableJob):
            return changed.run_members(infos, message)
        changed.run_with_podsets_info(infos)
    except FlavorNotFound as error:
        return _missing(job, error)
    except PodSetError as error:
        now = case.situation.now
        return (reports.finish(workload, REASON_FAILED_TO_START, str(error), now),)
    return (Change(job.resource, job.object, changed.object), Emit(job.object, STARTED, message))


def _waiting(case: Case) -> Commands:
    """The Workload follows the job's queue and priority class."""
    job, workload = case.job, case.workload
    if workload["spec"].get("queueName", "") == job.queue_name:
        return _follow_priority(case)
    if states.has_quota(workload):
        message = f'The job was moved to the queue "{job.queue_name}"'
        free = states.cancel(workload, states.PENDING_REASON, message, case.situation.now)
        return reports.status_commands(workload, free)
    return (Change(WORKLOADS, workload, with_queue(job, workload)),)


def _not_admitted(case: Case) -> Commands:
    return _stop(case, StopReason.NOT_ADMITTED, "The workload is not admitted")


def _follow_priority(case: Case) -> Commands:
    job, workload, situation = case.job, case.workload, case.situation
    try:
        changed = with_priority(job, situation.pod_sets(job), workload, situation.classes)
    except PriorityClassNotFound as error:
        return _missing(job, error)
    if changed is workload:
        return ()
    message = f"Updated the priority of Workload {_name(workload)}"
    return (
        Change(WORKLOADS, workload, changed),
        Emit(job.object, UPDATED_WORKLOAD, message),
    )


_STEPS: dict[Phase, Callable[[Case], Commands]] = {
    Phase.WORKLOAD_FINISHED: _workload_finished,
    Phase.JOB_FINISHED: _job_finished,
    Phase.WORKLOAD_DELETED: _workload_deleted,
    Phase.NO_WORKLOAD: _no_workload,
    Phase.MISMATCH: _mismatch,
    Phase.EVICTED: _evicted,
    Phase.STOPPING: _stopping,
    Phase.STARTING: _starting,
    Phase.WAITING: _waiting,
    Phase.NOT_ADMITTED: _not_admitted,
    Phase.RUNNING: _follow_priority,
}


# ---- the parts of a step


def _join(situation: Situation, job: GenericJob) -> Commands | None:
    """Makes a prebuilt Workload the job's own, or refuses it; None when it is."""
    workload = situation.prebuilt
    if workload is None or states.is_finished(workload) or states.is_deleted(workload):
        return None
    if not is_controlled_by(workload, job):
        refs = workload["metadata"].get("ownerReferences") or ()
        if any(ref.get("controller") for ref in refs):
            return None
        return (Change(WORKLOADS, workload, adopt(job, workload)),)
    if job.finished() or is_equivalent(situation, job)(workload):
        return None
    message = "The prebuilt workload does not ask for what the job wants"
    stop = _stop(Case(situation, job, Matching(workload)), StopReason.NO_MATCHING_WORKLOAD, message)
    if stop or job.is_active():
        return stop
    return (reports.finish(workload, REASON_OUT_OF_SYNC, message, situation.now),)


def _stop(case: Case, reason: StopReason, message: str) -> Commands:
    """What is left to do until the job is stopped and restored, with the event about it."""
    job = case.job
    infos = infos_for_restore(case.remembered)
    if isinstance(job, ComposableJob):
        return job.stop_members(infos, reason, message, case.situation.now)
    if isinstance(job, JobWithCustomStop):
        stop = job.stop(infos, reason, message, case.situation.now)
    else:
        stop = _plain_stop(job, case)
    if not stop.stops_now:
        return stop.commands
    return (stop.commands[0], Emit(job.object, STOPPED, message), *stop.commands[1:])


def _plain_stop(job: GenericJob, case: Case) -> Stop:
    if job.is_suspended():
        return Stop()
    changed = job.copy()
    changed.suspend()
    infos = infos_for_restore(case.remembered)
    if infos:
        changed.restore_podsets_info(infos)
    return Stop((Change(job.resource, job.object, changed.object),), stops_now=True)


def _delete_all(job: GenericJob, workloads: tuple[Obj, ...] | list[Obj], why: str) -> Commands:
    found: list[Command] = []
    for workload in workloads:
        found += _release(workload)
        if not states.is_deleted(workload):
            message = f"Deleted Workload {_name(workload)}: {why}"
            found += [Delete(WORKLOADS, workload), Emit(job.object, DELETED_WORKLOAD, message)]
    return tuple(found)


def _release(workload: Obj) -> Commands:
    if not _has_finalizer(workload):
        return ()
    return (DropFinalizer(WORKLOADS, workload, IN_USE_FINALIZER),)


def _finalize(job: GenericJob) -> Commands:
    return job.finalize() if isinstance(job, JobWithFinalize) else ()


def _missing(job: GenericJob, error: Exception) -> Commands:
    return (Emit(job.object, COMPOSE_ERROR, str(error), WARNING), Wait(str(error), MISSING_RETRY))


def _has_finalizer(workload: Obj) -> bool:
    return IN_USE_FINALIZER in (workload["metadata"].get("finalizers") or ())


def _made_for(job: GenericJob, workload: Obj) -> bool:
    return labels_of(workload).get(JOB_UID_LABEL) == job.uid and job.prebuilt_workload is None


def _reason(end: JobEnd) -> str:
    return REASON_SUCCEEDED if end.succeeded else REASON_FAILED


def _name(workload: Obj) -> str:
    meta = workload["metadata"]
    return f"{meta['namespace']}/{meta['name']}"
