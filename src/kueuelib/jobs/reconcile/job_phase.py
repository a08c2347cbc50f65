"""The phases of a job that stands for itself, and of its Workload (KEP-369)."""

from __future__ import annotations

import enum

import attrs

from kueuelib.api.meta import Obj
from kueuelib.jobs.contract.capabilities import ComposableJob, JobWithCustomStop, Matching
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.reconcile.situation import Situation
from kueuelib.workload import states


class JobPhase(enum.Enum):
    """The phase of a job that stands for itself, and of its Workload."""

    WORKLOAD_FINISHED = "the workload is finished"
    JOB_FINISHED = "the job is finished"
    WORKLOAD_DELETED = "the workload is being deleted"
    NO_WORKLOAD = "there is no workload"
    MISMATCH = "no workload matches the job"
    EVICTED = "the workload is evicted and holds quota"
    STOPPING = "an earlier stop is not complete"
    STARTING = "the workload is admitted, the job suspended"
    WAITING = "the workload is not admitted, the job suspended"
    NOT_ADMITTED = "the job runs without admission"
    RUNNING = "the job runs"


@attrs.frozen
class Case:
    """A job with its Workload."""

    situation: Situation
    job: GenericJob
    matching: Matching

    @property
    def workload(self) -> Obj:
        """The Workload; only in phases that have one."""
        assert self.matching.chosen is not None
        return self.matching.chosen

    @property
    def remembered(self) -> Obj | None:
        """The Workload that remembers the original templates, if there is only one candidate."""
        if self.matching.chosen is not None:
            return self.matching.chosen
        return self.matching.surplus[0] if len(self.matching.surplus) == 1 else None


def job_phase_of(case: Case) -> JobPhase:
    """The phase of the job and its Workload (KEP-369); the order of the tests counts."""
    job, workload = case.job, case.matching.chosen
    if workload is not None and states.is_finished(workload):
        return JobPhase.WORKLOAD_FINISHED
    if workload is not None and states.is_deleted(workload):
        return JobPhase.WORKLOAD_DELETED
    if job.finished():
        return JobPhase.JOB_FINISHED
    if workload is None:
        made = job.prebuilt_workload is None and case.matching.surplus
        return JobPhase.MISMATCH if made else JobPhase.NO_WORKLOAD
    if states.is_evicted(workload) and states.has_quota(workload):
        return JobPhase.EVICTED
    if isinstance(job, JobWithCustomStop) and job.is_stopping():
        return JobPhase.STOPPING
    if job.is_suspended() and states.is_admitted(workload) and _is_stopped_by_hand(case):
        return JobPhase.STOPPING
    if job.is_suspended():
        return JobPhase.STARTING if states.is_admitted(workload) else JobPhase.WAITING
    return JobPhase.RUNNING if states.is_admitted(workload) else JobPhase.NOT_ADMITTED


def _is_stopped_by_hand(case: Case) -> bool:
    """Whether somebody else suspended a job whose pods still use quota.

    Composable jobs and those with a stop of their own decide this themselves.
    """
    knows = isinstance(case.job, ComposableJob | JobWithCustomStop)
    return not knows and case.situation.uses_quota(case.job)
