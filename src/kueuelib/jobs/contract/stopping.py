"""Stops a job in more than one write: the first suspends and marks it, the last restores it.

After a crash, the mark shows that the last write is missing.

A kind whose controller sets a condition once it has seen that a job is suspended keeps its quota
until then. A controller that never looked between a start and its stop has left the condition of
before the start, which is removed before the job is suspended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.api.kinds import KUEUE
from kueuelib.api.meta import Obj, annotations_of, copied, find_condition
from kueuelib.jobs.contract.commands import Change
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.paths import put, value
from kueuelib.jobs.contract.podset_info import PodSetInfo

STOPPING_ANNOTATION = f"{KUEUE}/stopping"


def is_stop_begun(obj: Mapping[str, Any]) -> bool:
    """Whether a raw object has the mark of a stop."""
    return annotations_of(obj).get(STOPPING_ANNOTATION) == "true"


def is_unseen(obj: Mapping[str, Any], conditions: Sequence[Obj] | None, type: str) -> bool:
    """Whether the stop of a suspended raw object was begun, and its controller has not seen it.

    Args:
        obj: the object.
        conditions: those of its status.
        type: the condition that shows that its controller has seen that it is suspended.
    """
    return is_stop_begun(obj) and find_condition(conditions, type).get("status") != "True"


def forget_condition(job: GenericJob, path: str, type: str) -> tuple[Change, ...]:
    """Remove a condition that is True from a job in place; returns the write for it, if any.

    Args:
        job: the job.
        path: of the conditions, in the status.
        type: of the condition.
    """
    before = copied(job.raw)
    conditions = value(before, path)
    if find_condition(conditions, type).get("status") != "True":
        return ()
    put(job.raw, path, [each for each in conditions if each["type"] != type])
    return (Change(job.resource, before, copied(job.raw), subresource="status"),)


def begin_stop(job: GenericJob, infos: Sequence[PodSetInfo] = ()) -> Change:
    """Suspend and mark a job in place, and restore it if infos are given; returns the write."""
    before = copied(job.raw)
    job.suspend()
    if infos:
        job.restore_podsets_info(infos)
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
