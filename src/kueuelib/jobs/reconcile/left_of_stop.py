"""What is missing until one job is stopped, by its own way to stop or by one patch."""

from __future__ import annotations

from collections.abc import Sequence

from kueuelib.jobs.contract.capabilities import JobWithCustomStop, Stop, StopReason
from kueuelib.jobs.contract.commands import Change
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.podset_info import PodSetInfo


def is_left_to_end(job: GenericJob) -> bool:
    """Whether a job is about to end and therefore not stopped. A stop that was begun is completed:
    a Job of Kubernetes cannot end without it.
    """
    return job.is_ending() and not is_stop_begun(job)


def is_stop_begun(job: GenericJob) -> bool:
    """Whether a job is suspended, by whomever, or its stop is incomplete."""
    return job.is_suspended() or (isinstance(job, JobWithCustomStop) and job.is_stopping())


def left_of_stop(
    job: GenericJob, infos: Sequence[PodSetInfo], reason: StopReason, message: str, now: float
) -> Stop:
    """The remaining steps; see `JobWithCustomStop.stop`."""
    if isinstance(job, JobWithCustomStop):
        return job.stop(infos, reason, message, now)
    changed, runs = job.copy(), not job.is_suspended()
    if job.is_ending():
        return Stop()
    if runs:
        changed.suspend()
    restored = changed.restore_podsets_info(infos) if infos else False
    if not runs and not restored:
        return Stop()
    return Stop((Change(job.resource, job.raw, changed.raw),), stops_now=runs)
