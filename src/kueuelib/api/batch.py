"""The slice of batch objects that kueuelib reads; what is not listed stays in `extra`."""

from __future__ import annotations

import attrs

from kueuelib.api.core import PodCondition, PodTemplateSpec
from kueuelib.api.kinds import JOBS
from kueuelib.api.meta import KubeObject, Obj, is_true
from kueuelib.api.struct import Struct, Time, frozen, wire

COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
ENDS = (COMPLETE, FAILED)
"""The conditions of a Job that has ended."""


def has_ended(job: Obj) -> bool:
    """Whether a raw Job has succeeded or failed."""
    return any(is_true(job, end) for end in ENDS)


@frozen
class JobSpec(Struct):
    """What a Job runs, how often and how widely.

    Attributes:
        parallelism: how many pods run at a time; absent means 1.
        completions: how many pods must succeed; absent means that one success ends the Job.
        completion_mode: NonIndexed or Indexed; empty means NonIndexed.
        backoff_limit: how many failed pods are replaced.
        suspend: no pods may run.
        template: what its pods are made from.
    """

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""
    backoff_limit: int | None = None
    suspend: bool = attrs.field(default=False, metadata=wire(always=True))
    template: PodTemplateSpec = attrs.field(
        factory=PodTemplateSpec, metadata=wire(required=True, always=True)
    )
    managed_by: str = ""
    active_deadline_seconds: int | None = None


@frozen
class JobStatus(Struct):
    """The state of a Job; counts are pods."""

    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: Time | None = None
    completion_time: Time | None = None
    conditions: tuple[PodCondition, ...] = ()


@frozen
class Job(KubeObject):
    """A Job."""

    resource = JOBS

    spec: JobSpec = attrs.field(factory=JobSpec)
    status: JobStatus = attrs.field(factory=JobStatus)
