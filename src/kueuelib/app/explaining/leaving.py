"""What an evicted Workload waits for before its quota is released."""

from __future__ import annotations

from kueuelib.api.meta import Obj, annotations_of
from kueuelib.api.names import IS_GROUP_WORKLOAD
from kueuelib.jobs.contract.settings import JobSettings, QuotaReleaseStrategy
from kueuelib.workload import states

_UNTIL = {
    QuotaReleaseStrategy.ON_TERMINATION: "none of its pods runs, except pods being deleted",
    QuotaReleaseStrategy.ON_TERMINAL: "its pods have ended",
}


def leaving_note(workload: Obj, jobs: JobSettings) -> tuple[str, ...]:
    """When the quota of a raw Workload is released; nothing if it is not being evicted."""
    if not states.is_evicted(workload) or not states.has_quota(workload):
        return ()
    strategy = jobs.release_of(group=annotations_of(workload).get(IS_GROUP_WORKLOAD) == "true")
    until = f"{_UNTIL[strategy]} ({strategy}, see quotaReleaseStrategy in the configuration)"
    return (f"it is being evicted; its quota is released as soon as {until}",)
