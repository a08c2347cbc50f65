"""Deletes jobs that were deactivated, after a time."""

from __future__ import annotations

from kueuelib.api.meta import parse_time
from kueuelib.api.names import EVICTED
from kueuelib.jobs.contract.capabilities import ComposableJob
from kueuelib.jobs.contract.commands import Command, Delete, Emit, RequeueAfter
from kueuelib.jobs.reconcile.job_phase import Case
from kueuelib.workload import evictions, states

DELETED = "Deleted"


def expiry(case: Case) -> tuple[Command, ...]:
    """Deletes a job that we deactivated, once its retention time is over."""
    after = case.situation.settings.delete_deactivated_after
    eviction = states.condition(case.workload, EVICTED)
    by_us = eviction.get("reason", "").startswith(evictions.DUE_TO)
    if after is None or states.is_active(case.workload) or not by_us:
        return ()
    if case.situation.uses_quota(case.job):
        return ()
    left = parse_time(eviction["lastTransitionTime"]) + after - case.situation.now
    if left > 0:
        return (RequeueAfter("it was deactivated and is kept for a while", left),)
    message = "Deleted: it was deactivated, and its retention period is over"
    told = Emit(case.job.raw, DELETED, message)
    if isinstance(case.job, ComposableJob):
        return (told, *case.job.remove_members())
    return (told, Delete(case.job.resource, case.job.raw))
