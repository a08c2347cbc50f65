"""Chooses the Workload that stands for a job (KEP-369)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import Obj, controller_of, labels_of
from kueuelib.api.names import IN_USE_FINALIZER, JOB_UID_LABEL
from kueuelib.errors import InvalidJob
from kueuelib.jobs.contract.capabilities import ComposableJob, JobWithEquivalence, Matching
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.reconcile.equivalence import (
    as_started,
    is_made_from,
    same_parameters,
    same_pod_sets,
    same_requests,
    same_templates,
    with_least_of,
)
from kueuelib.jobs.reconcile.left_of_stop import is_left_to_end
from kueuelib.jobs.reconcile.situation import Situation
from kueuelib.jobs.reconcile.written import as_written
from kueuelib.workload import states


def controlled_by(workload: Mapping[str, Any], uid: str) -> bool:
    """Whether the controller reference of a Workload holds the UID."""
    ref = controller_of(workload)
    return ref is not None and ref.get("uid") == uid


def by_age(workloads: Iterable[Obj]) -> tuple[Obj, ...]:
    """The sort key: oldest first, then by name."""
    return tuple(
        sorted(
            workloads,
            key=lambda wl: (wl["metadata"].get("creationTimestamp", ""), wl["metadata"]["name"]),
        )
    )


def is_equivalent(situation: Situation, job: GenericJob) -> Callable[[Obj], bool]:
    """Whether a Workload matches the job, by its pod sets and by what the kind adds.

    A pod compares itself: it runs once, with what admission and a resize in place have added.
    """
    if not isinstance(job, JobWithEquivalence):
        return _has_its_pod_sets(situation, job)
    if job.resource == PODS:
        return job.is_equivalent
    compared = _has_its_pod_sets(situation, job)
    return lambda workload: compared(workload) and job.is_equivalent(workload)


def _has_its_pod_sets(situation: Situation, job: GenericJob) -> Callable[[Obj], bool]:
    if job.is_suspended():
        pod_sets = situation.pod_sets(as_written(job))
        if job.prebuilt_workload is None:
            return lambda workload: (
                same_parameters(job, workload) and same_templates(pod_sets, workload)
            )
        return lambda workload: same_requests(pod_sets, workload)

    def stands_for(workload: Obj) -> bool:
        written = as_written(job, workload)
        if written is job:
            return as_started(situation.pod_sets(job), workload)
        pod_sets, stored = situation.pod_sets(written), workload["spec"]["podSets"]
        least = with_least_of(pod_sets, stored)
        return same_pod_sets(pod_sets, stored) or is_made_from(least, workload)

    return stands_for


def match(situation: Situation, job: GenericJob) -> Matching:
    """The Workload that stands for the job, and those to be deleted.

    The equivalent one that holds quota and has not finished is chosen, or else the oldest. A job
    that has finished or is left to end keeps one whatever it asks for: its pod sets are not read. A
    Workload that is being deleted is chosen if it is the only one, so that the job waits for its
    end.

    Raises:
        InvalidJob: the job does not describe its pods.
    """
    if not isinstance(job, ComposableJob):
        return matching_of(situation, job)
    try:
        return job.match_workloads(situation.workloads, situation.flavors)
    except (LookupError, TypeError, AttributeError) as error:  # a field that is not there
        where = f"{type(job).__name__}.match_workloads()"
        raise InvalidJob(where, f"raised {error!r}") from error


def matching_of(situation: Situation, job: GenericJob) -> Matching:
    """The same for a job that consists of one object."""
    workloads = by_age(situation.workloads)
    live = [wl for wl in workloads if not states.is_deleted(wl)]
    live.sort(key=lambda wl: states.is_finished(wl) or not states.has_quota(wl))
    ends = job.finished() or is_left_to_end(job)
    chosen = next(iter(live) if ends else filter(is_equivalent(situation, job), live), None)
    if chosen is None and not live:
        chosen = next(iter(workloads), None)
    return Matching(chosen, tuple(wl for wl in workloads if wl is not chosen))


def accepted(job: GenericJob, workload: Obj) -> Obj:
    """A Workload that was made for a job, if its kind takes it for one.

    Raises:
        InvalidJob: it does not, so it would want another one again and again.
    """
    if (
        isinstance(job, JobWithEquivalence)
        and job.resource != PODS
        and not job.is_equivalent(workload)
    ):
        problem = "is False for the Workload that is made for the job"
        raise InvalidJob(f"{type(job).__name__}.is_equivalent()", problem)
    return workload


def refuse_repetition(job: GenericJob, workload: Obj, changed: Obj) -> None:
    """Refuses to write the same Workload again, because its kind rejects what was stored.

    Raises:
        InvalidJob: nothing would change.
    """
    spec = {**changed["spec"], "podSets": workload["spec"]["podSets"]}
    if job.resource == PODS or {**changed, "spec": spec} != workload:
        return
    method = "match_workloads" if isinstance(job, ComposableJob) else "is_equivalent"
    name = workload["metadata"]["name"]
    problem = f"rejects the Workload {name}, which is what the job asks for"
    raise InvalidJob(f"{type(job).__name__}.{method}()", problem)


def match_prebuilt(situation: Situation, job: GenericJob) -> Matching:
    """The prebuilt Workload of a job, if the job owns it, and others of the job to be deleted."""
    named = situation.prebuilt
    chosen = named if named is not None and is_controlled_by(named, job) else None
    name = job.prebuilt_workload
    others = [wl for wl in own_workloads(situation, job) if wl["metadata"]["name"] != name]
    return Matching(chosen, tuple(others))


def own_workloads(situation: Situation, job: GenericJob) -> tuple[Obj, ...]:
    """The Workloads that were made for a job, and the prebuilt one that it has adopted.

    The job may be the controller of others, too: for example those of a program that queues it.
    One that only others keep, with their finalizers, is no longer ours.
    """
    return tuple(wl for wl in situation.workloads if _is_own(job, wl) and not _is_let_go(wl))


def _is_let_go(workload: Mapping[str, Any]) -> bool:
    kept = IN_USE_FINALIZER in (workload["metadata"].get("finalizers") or ())
    return states.is_deleted(workload) and not kept


def _is_own(job: GenericJob, workload: Obj) -> bool:
    if labels_of(workload).get(JOB_UID_LABEL) == job.uid:
        return True
    named = job.prebuilt_workload == workload["metadata"]["name"]
    return is_controlled_by(workload, job) and (named or isinstance(job, ComposableJob))


def is_controlled_by(workload: Mapping[str, Any], job: GenericJob) -> bool:
    """Whether the job is the controller of a Workload."""
    return controlled_by(workload, job.uid)
