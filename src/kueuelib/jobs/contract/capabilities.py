"""Optional capabilities of a kind of job, as base classes besides `GenericJob` (KEP-369).

The classes are nominal: a method that happens to have the same name means nothing. Methods return
commands instead of acting themselves. Called again after a crash, they return the remaining
commands.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj, annotations_of, copied, find_condition
from kueuelib.api.names import STOPPING_ANNOTATION
from kueuelib.jobs.contract.commands import Change, Command
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.paths import put, value
from kueuelib.jobs.contract.podset_info import PodSetInfo

# Stops a job in more than one write: the first suspends and marks it, the last restores it.
# After a crash, the mark shows that the last write is missing.
#
# A kind whose controller sets a condition once it has seen that a job is suspended keeps its quota
# until then. A controller that never looked between a start and its stop has left the condition of
# before the start, which is removed before the job is suspended.


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


# --------------------------------------------------------------------------------------------------


class StopReason(enum.StrEnum):
    """Why a job has to stop."""

    WORKLOAD_DELETED = "WorkloadDeleted"
    WORKLOAD_EVICTED = "WorkloadEvicted"
    NO_MATCHING_WORKLOAD = "NoMatchingWorkload"
    NOT_ADMITTED = "NotAdmitted"


@attrs.frozen
class Stop:
    """The remaining steps to stop a job.

    Attributes:
        commands: in order; empty when the job is stopped and restored.
        stops_now: whether the first command stops it (and does not only complete an earlier stop).
    """

    commands: tuple[Command, ...] = ()
    stops_now: bool = False


@attrs.frozen
class Matching:
    """The Workload of a job that consists of many objects.

    Attributes:
        chosen: the Workload that stands for the job, or None.
        surplus: Workloads to delete.
        commands: further commands of the job.
    """

    chosen: Obj | None = None
    surplus: tuple[Obj, ...] = ()
    commands: tuple[Command, ...] = ()


class JobWithReclaimablePods(abc.ABC):
    """Some pods may have finished while others still run."""

    @abc.abstractmethod
    def reclaimable_pods(self) -> Mapping[str, int]:
        """How many pods of each pod set no longer need quota; the numbers never decrease."""


class JobWithCustomStop(abc.ABC):
    """Stopping takes more than one patch."""

    @abc.abstractmethod
    def stop(
        self, infos: Sequence[PodSetInfo], reason: StopReason, message: str, now: float
    ) -> Stop:
        """The remaining steps to stop the job. While `is_ending` is True, no stop begins, but an
        earlier one is completed.

        Args:
            infos: how to restore the templates; empty if that is not known.
            reason: why it stops, for programs.
            message: why it stops, for people.
            now: seconds since the epoch.
        """

    @abc.abstractmethod
    def is_stopping(self) -> bool:
        """Whether an earlier stop was begun but not completed."""


class JobWithFinalize(abc.ABC):
    """The job puts finalizers on its objects, which must be removed at the end."""

    @abc.abstractmethod
    def finalize(self) -> tuple[Command, ...]:
        """The commands that remove the finalizers, if there are any."""


class JobWithSkip(abc.ABC):
    """Some objects of the kind are ignored, whatever their labels say."""

    @abc.abstractmethod
    def skip(self) -> bool:
        """Whether to leave the object alone. A waiting job then loses its Workload; a running one
        keeps it until its end or its eviction. Its children do not wait for it.
        """


def is_skipped(job: object) -> bool:
    """Whether the kind of a job leaves it alone."""
    return isinstance(job, JobWithSkip) and job.skip()


class JobWithPriorityClass(abc.ABC):
    """The priority class is not (only) in the pod templates."""

    @abc.abstractmethod
    def priority_class(self) -> str:
        """The name of the PriorityClass; empty for none."""


class JobWithEquivalence(abc.ABC):
    """A Workload has to match the job in more than its pod sets."""

    @abc.abstractmethod
    def is_equivalent(self, workload: Mapping[str, Any]) -> bool:
        """Whether a raw Workload that has the pod sets of the job matches it. This must be True for
        a Workload that was just made for the job; otherwise nothing is queued, and an event says
        so.
        """


class JobWithReplacements(abc.ABC):
    """A stopped job lacks pods until they are replaced."""

    @abc.abstractmethod
    def after_release(self, workload: Obj, now: float) -> Obj:
        """The raw Workload as it should be once its quota is free.

        Args:
            workload: the result of `states.release`.
            now: seconds since the epoch.
        """


class ComposableJob(abc.ABC):
    """A job that consists of many API objects."""

    @abc.abstractmethod
    def match_workloads(
        self, workloads: Sequence[Obj], flavors: Mapping[str, Mapping[str, object]]
    ) -> Matching:
        """The Workload that stands for the job, Workloads to delete, and further commands. While
        the job waits, return a Workload for which `same_templates` is False as one to delete: if
        none stands for the job, the first of these is updated instead.
        """

    @abc.abstractmethod
    def compose_workload(self) -> Obj | tuple[Command, ...]:
        """The Workload, or what to do if it cannot be made (yet). The framework adds what it lacks:
        the priority of the job, and the job as its controller, with the label and the finalizer
        that belong to it. No other object may be the controller.
        """

    @abc.abstractmethod
    def run_members(self, infos: Sequence[PodSetInfo], message: str) -> tuple[Command, ...]:
        """The commands that let every member run, with the events about it."""

    @abc.abstractmethod
    def stop_members(
        self, infos: Sequence[PodSetInfo], reason: StopReason, message: str, now: float
    ) -> tuple[Command, ...]:
        """The commands that stop every member, with the events about it; none if all have
        stopped.
        """

    @abc.abstractmethod
    def remove_members(self) -> tuple[Command, ...]:
        """The commands that delete every member for good, once the job is no longer wanted."""
