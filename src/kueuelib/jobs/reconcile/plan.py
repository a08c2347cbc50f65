"""Plans the next step of one job: the generic reconciler as a pure function (KEP-369).

`job_phase_of` finds the phase of a job and its Workload, `plan` returns one step. The process may
die after any write of a plan; the next plan starts from the stored state.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from kueuelib.api.kinds import PODS, WORKLOADS
from kueuelib.api.kueue import CHECK_RETRY
from kueuelib.api.meta import Obj, annotations_of
from kueuelib.api.missing_features import asked_by_keys
from kueuelib.api.names import PARENT_WORKLOAD, REASON_OUT_OF_SYNC, REASON_PENDING
from kueuelib.errors import InvalidJob, InvalidObject
from kueuelib.jobs.contract.capabilities import (
    ComposableJob,
    Matching,
    StopReason,
    is_skipped,
)
from kueuelib.jobs.contract.commands import WARNING, Change, Emit, Recheck, RequeueAfter
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.lookups.owners import Ancestor
from kueuelib.jobs.reconcile import reports
from kueuelib.jobs.reconcile.job_snapshot import Case, JobPhase, JobSnapshot, job_phase_of
from kueuelib.jobs.reconcile.matching import (
    is_controlled_by,
    is_equivalent,
    is_left_to_end,
    is_stop_begun,
    match,
    match_prebuilt,
    matching_of,
    own_workloads,
)
from kueuelib.jobs.reconcile.steps import (
    COMPOSE_ERROR,
    STEPS,
    SUSPENDED,
    UPDATED_WORKLOAD,
    Commands,
    delete_all,
    finalize,
    release,
    stop,
)
from kueuelib.jobs.reconcile.workload_build import adopt, with_requests
from kueuelib.workload import states
from kueuelib.workload.states import Phase

INVALID_RETRY = 300.0
"""Seconds between reports that a job's object does not describe its pods, while it is unchanged."""
NAMESPACE_RETRY = 1.0
"""Seconds between looks at a job whose namespace is not known yet."""
NOT_QUEUED = "the job is no longer queued"
_ASKING = (JobPhase.WAITING, JobPhase.STARTING, JobPhase.RUNNING)
"""The phases in which a Workload gets the requests of its job."""


def plan(situation: JobSnapshot) -> Commands:
    """The commands of the next step, in order; none if nothing is to be done."""
    released = tuple(command for workload in situation.orphans for command in release(workload))
    job = situation.job
    if job is None:
        return released
    try:
        return (*released, *_plan_object(situation, job))
    except InvalidObject:  # the object does not fit its class
        from kueuelib.jobs.contract.loose_objects import read_loosely

        return (*released, *_plan_object(situation, read_loosely(job)))


def _plan_object(situation: JobSnapshot, job: GenericJob) -> Commands:
    if job.is_deleted:
        return _plan_deleted(situation, job)
    skipped = is_skipped(job)
    if skipped and not situation.workloads:
        return ()
    if situation.namespace_labels is None:
        return (RequeueAfter("its namespace is not known yet", NAMESPACE_RETRY),)
    if situation.is_left_alone:
        deleted = filter(states.is_deleted, situation.workloads)
        return tuple(command for workload in deleted for command in release(workload))
    manages = situation.settings.manages
    try:
        if situation.ancestor is not None and not skipped:
            return _plan_child(situation, job, situation.ancestor)
        if skipped or not manages(job.queue_name, situation.namespace_labels):
            own = own_workloads(situation, job)
            if not _is_in_use(job, own):
                return _plan_leaving(situation, job, own, NOT_QUEUED)
        return _plan_managed(situation, job)
    except InvalidJob as error:
        return _plan_invalid(situation, job, error)


def _plan_deleted(situation: JobSnapshot, job: GenericJob) -> Commands:
    """Release the Workloads of a job that is being deleted, even if a finalizer keeps it.

    The job does not start, and is stopped like any other. A Workload that no pod needs is finished
    with the job, or deleted, so that a finalizer of somebody else does not block quota.
    """
    first: Commands = ()
    if job.resource != PODS and not situation.is_left_alone:
        case = Case(situation, job, matching_of(situation, job) if job.finished() else Matching())
        first = STEPS[job_phase_of(case)](case) if case.matching.chosen else _freed(situation, job)
    released = tuple(c for workload in situation.workloads for c in release(workload))
    rest = (*released, *finalize(job))
    return (*first, *(command for command in rest if command not in first))


def _freed(situation: JobSnapshot, job: GenericJob) -> Commands:
    """Stops a job that is being deleted, once it has lost its quota or no pod uses it, and deletes
    its Workloads.
    """
    live = [each for each in own_workloads(situation, job) if not states.is_deleted(each)]
    holder = next(filter(states.has_quota, live), next(iter(live), None))
    if holder is None or states.is_finished(holder):
        return ()
    if not job.is_suspended():
        evicted = states.is_evicted(holder)
        if states.is_admitted(holder) and not evicted and situation.uses_quota(job):
            return ()
        reason = StopReason.WORKLOAD_EVICTED if evicted else StopReason.NOT_ADMITTED
        left = stop(Case(situation, job, Matching(holder)), reason, "The job is being deleted")
        if left:
            return left
    return () if situation.uses_quota(job) else delete_all(job, live, "its job is being deleted")


def _is_in_use(job: GenericJob, own: Sequence[Obj]) -> bool:
    """Whether a job that has left its queue runs, stops or has ended with a Workload of its own."""
    if own and job.finished():
        return True
    goes_on = not job.is_suspended() or any(map(states.is_evicted, own))
    return goes_on and any(map(states.is_admitted, own))


def _plan_leaving(
    situation: JobSnapshot, job: GenericJob, own: Sequence[Obj], why: str, *, stops: bool = False
) -> Commands:
    """A job that is not queued loses its Workloads, once its stop is complete and no pod uses their
    quota; unless it `stops`, only a stop that its user or we have begun counts.
    """
    holder = next(filter(states.has_quota, own), next(iter(own), None))
    if holder is not None and (stops or is_stop_begun(job)):
        text = f"The workload is not needed: {why}"
        left = stop(Case(situation, job, Matching(holder)), StopReason.NOT_ADMITTED, text)
        if left or situation.uses_quota(job):
            return left
    return delete_all(job, own, why)


def _plan_invalid(situation: JobSnapshot, job: GenericJob, error: InvalidJob) -> Commands:
    """A job that does not describe its pods stops and waits, and an event on it says why.

    Once no pod uses its quota, it has no Workload, because nothing can be queued.
    """
    if job.finished():
        case = Case(situation, job, matching_of(situation, job))
        return STEPS[job_phase_of(case)](case)
    left: Commands = ()
    if not job.is_suspended():
        reason, text = StopReason.NO_MATCHING_WORKLOAD, "The pods of the job are unknown"
        left = stop(Case(situation, job, Matching()), reason, text)
    elif not situation.uses_quota(job):
        left = _without_workload(situation, job)
    event = Emit(job.raw, COMPOSE_ERROR, f"Nothing can be queued: {error}", WARNING)
    return (*left, event, RequeueAfter(str(error), INVALID_RETRY))


def _without_workload(situation: JobSnapshot, job: GenericJob) -> Commands:
    """Frees the quota of a stopped job whose pods are unknown.

    A Workload that gets no quota, because it is inactive or a check holds it, only loses the quota
    that it had: it is what the job has to wait for when it is corrected.
    """
    why, prebuilt = "the pods of the job are unknown", situation.prebuilt
    if job.prebuilt_workload is None:
        held = list(filter(_is_held, situation.workloads))
        free = [each for each in situation.workloads if each not in held]
        evicted = (each for each in held if states.phase_of(each) is Phase.EVICTING)
        given = (reports.give_back(situation, job, each) for each in evicted)
        return (*chain.from_iterable(given), *delete_all(job, free, why))
    if prebuilt is None or not is_controlled_by(prebuilt, job) or states.is_finished(prebuilt):
        return ()
    if states.is_deleted(prebuilt):
        return release(prebuilt)
    return (reports.finish(prebuilt, REASON_OUT_OF_SYNC, why, situation.now),)


def _is_held(workload: Obj) -> bool:
    if states.is_finished(workload) or states.is_deleted(workload):
        return False
    return not states.is_active(workload) or bool(states.checks_in(workload, CHECK_RETRY))


def _plan_child(situation: JobSnapshot, job: GenericJob, ancestor: Ancestor) -> Commands:
    """A child may not run before its ancestor is admitted, and gets no Workload.

    It may have one of before it was a child. Then it leaves its queue; nothing else restores what
    the start for that Workload has added.
    """
    own = own_workloads(situation, job)
    waits = not (ancestor.admitted or job.finished() or is_left_to_end(job))
    stops = waits and job.resource != PODS  # a gate cannot be restored
    if not stops and _is_in_use(job, own):
        return _plan_managed(situation, job)
    doubts: Commands = ()
    if waits and ancestor.doubt:
        text = f"The annotation {PARENT_WORKLOAD} names the {ancestor.name}, {ancestor.doubt}"
        doubts = (Emit(job.raw, COMPOSE_ERROR, text, WARNING),)
    if own:
        why = f"the job is a child of the {ancestor.name}"
        return (*doubts, *_plan_leaving(situation, job, own, why, stops=stops))
    if not stops or job.is_suspended():
        return doubts
    changed = job.copy()
    changed.suspend()
    if changed.raw == job.raw:
        return doubts
    return (
        *doubts,
        Change(job.resource, job.raw, changed.raw),
        Emit(job.raw, SUSPENDED, "The job that owns this one is not admitted"),
    )


def _plan_managed(situation: JobSnapshot, job: GenericJob) -> Commands:
    if job.prebuilt_workload is not None:
        first = _join(situation, job)
        if first is not None:
            return first
        matching = match_prebuilt(situation, job)
    else:
        matching = match(situation, job)
    taken_back = _take_back(job, matching.chosen)
    if taken_back:
        return taken_back
    case = Case(situation, job, matching)
    phase = job_phase_of(case)
    if phase in _ASKING and (requests := _ask(case)):
        return (*matching.commands, *requests)
    step = STEPS[phase](case)
    if matching.chosen is None:
        return (*matching.commands, *step)
    reported = reports.plan_reports(situation, job, matching.chosen)
    gone = delete_all(job, matching.surplus, "another workload matches the job")
    return (*matching.commands, *reported, *step, *gone)


def _take_back(job: GenericJob, workload: Obj | None) -> Commands:
    """Makes a job the controller of its Workload again, whose owner reference somebody removed."""
    if workload is None or isinstance(job, ComposableJob) or is_controlled_by(workload, job):
        return ()
    if states.is_finished(workload) or states.is_deleted(workload):
        return ()
    text = f"Updated Workload {workload['metadata']['name']}: its owner reference was missing"
    return (
        Recheck(job.resource, job.raw),
        Change(WORKLOADS, workload, adopt(job, workload)),
        Emit(job.raw, UPDATED_WORKLOAD, text, WARNING),
    )


def _ask(case: Case) -> Commands:
    """Writes the job's requests for missing features into its Workload, which then waits.

    A Workload that holds quota keeps it; `explain` and `doctor` name the missing feature.
    """
    job, workload = case.job, case.workload
    asking = with_requests(job, workload)
    if asking is workload:
        return ()
    text = f"Updated Workload {workload['metadata']['name']} with what its job asks for"
    return (Change(WORKLOADS, workload, asking), Emit(job.raw, UPDATED_WORKLOAD, text))


def _asks(workload: Obj) -> bool:
    return any(True for _ in asked_by_keys("", {}, annotations_of(workload)))


def _join(situation: JobSnapshot, job: GenericJob) -> Commands | None:
    """Adopts a prebuilt Workload, or refuses it; None if the job owns it already.

    Quota that it got before it knew of the job's requests for missing features is given back.
    """
    workload = situation.prebuilt
    if workload is None or states.is_finished(workload) or states.is_deleted(workload):
        return None
    if not is_controlled_by(workload, job):
        refs = workload["metadata"].get("ownerReferences") or ()
        if any(ref.get("controller") for ref in refs):
            return None
        asking = with_requests(job, workload)
        if asking is not workload:
            return (Change(WORKLOADS, workload, asking),)
        keeps = states.is_evicted(workload) or not job.is_suspended()
        if states.has_quota(workload) and not keeps and _asks(workload):
            why = "Its job asks for a feature that this version does not have"
            free = states.cancel(workload, REASON_PENDING, why, situation.now)
            return reports.status_commands(workload, free)
        return (Change(WORKLOADS, workload, adopt(job, workload)),)
    if job.finished() or is_equivalent(situation, job)(workload):
        return None
    message = "The prebuilt workload does not match the job"
    left = stop(Case(situation, job, Matching(workload)), StopReason.NO_MATCHING_WORKLOAD, message)
    if left or situation.uses_quota(job):
        return left
    return (reports.finish(workload, REASON_OUT_OF_SYNC, message, situation.now),)
