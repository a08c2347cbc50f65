"""Stops a job in more than one write: the first suspends and marks it, the last restores it.

After a crash, the mark shows that the last write is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.api.kinds import KUEUE
from kueuelib.api.meta import annotations_of, copied
from kueuelib.jobs.contract.commands import Change
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.podset_info import PodSetInfo

STOPPING_ANNOTATION = f"{KUEUE}/stopping"


def is_stop_begun(obj: Mapping[str, Any]) -> bool:
    """Whether a raw object has the mark of a stop."""
    return annotations_of(obj).get(STOPPING_ANNOTATION) == "true"


def begin_stop(job: GenericJob) -> Change:
    """Suspend and mark a job in place; returns the write for it."""
    before = copied(job.raw)
    job.suspend()
    annotations = {**annotations_of(job.raw), STOPPING_ANNOTATION: "true"}
    job.raw["metadata"]["annotations"] = annotations
    return Change(job.resource, before, copied(job.raw))


def end_stop(job: GenericJob, infos: Sequence[PodSetInfo]) -> tuple[Change, ...]:
    """Restore a job in place and remove the mark; returns the write for it, if anything changes."""
    before, begun = copied(job.raw), is_stop_begun(job.raw)
    if begun:
        del job.raw["metadata"]["annotations"][STOPPING_ANNOTATION]
    if job.restore_podsets_info(infos) or begun:
        return (Change(job.resource, before, job.raw),)
    return ()
