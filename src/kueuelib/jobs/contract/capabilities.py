"""What a kind of job can do beyond `GenericJob`: inherit from what applies (spec/jobs 1.2).

The classes are nominal: a method that only happens to have the same name means nothing. Methods
that act return commands and act on nothing themselves; called again after a crash, they return what
is still to be done, and nothing when all is done.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj
from kueuelib.jobs.contract.commands import Command
from kueuelib.jobs.contract.podset_info import PodSetInfo


class StopReason(enum.StrEnum):
    """Why a job has to stop."""

    WORKLOAD_DELETED = "WorkloadDeleted"
    WORKLOAD_EVICTED = "WorkloadEvicted"
    NO_MATCHING_WORKLOAD = "NoMatchingWorkload"
    NOT_ADMITTED = "NotAdmitted"


@attrs.frozen
class Stop:
    """What is left to do to stop a job.

    Attributes:
        commands: in order; empty when the job is stopped and restored.
        stops_now: whether the first command is what stops it (and not the end of an earlier stop).
    """

    commands: tuple[Command, ...] = ()
    stops_now: bool = False


@attrs.frozen
class Matching:
    """Which of the Workloads of a job of many objects stands for it.

    Attributes:
        chosen: the one, or None.
        surplus: those that have to go.
        commands: what the job wants done on the way.
    """

    chosen: Obj | None = None
    surplus: tuple[Obj, ...] = ()
    commands: tuple[Command, ...] = ()


class JobWithReclaimablePods(abc.ABC):
    """Some pods may be over while others still run."""

    @abc.abstractmethod
    def reclaimable_pods(self) -> Mapping[str, int]:
        """How many pods of each pod set no longer need quota; the numbers never decrease."""


class JobWithCustomStop(abc.ABC):
    """Stopping takes more than one patch."""

    @abc.abstractmethod
    def stop(
        self, infos: Sequence[PodSetInfo], reason: StopReason, message: str, now: float
    ) -> Stop:
        """What is left to do to stop the job.

        Args:
            infos: how to restore the templates; empty when that is not known.
            reason: why, for programs.
            message: why, for people.
            now: seconds since the epoch.
        """

    @abc.abstractmethod
    def is_stopping(self) -> bool:
        """Whether an earlier stop was begun and not completed."""


class JobWithFinalize(abc.ABC):
    """The job puts finalizers on its objects, which must go at the end."""

    @abc.abstractmethod
    def finalize(self) -> tuple[Command, ...]:
        """What takes the finalizers away; nothing when there are none."""


class JobWithSkip(abc.ABC):
    """Some objects of the kind are none of our business whatever their labels say."""

    @abc.abstractmethod
    def skip(self) -> bool:
        """Whether to leave the object alone."""


class JobWithPriorityClass(abc.ABC):
    """The priority class is found elsewhere than in the pod templates."""

    @abc.abstractmethod
    def priority_class(self) -> str:
        """The name of the PriorityClass; empty for none."""


class JobWithEquivalence(abc.ABC):
    """The kind, not its pod sets alone, decides whether a Workload stands for the job."""

    @abc.abstractmethod
    def is_equivalent(self, workload: Mapping[str, Any]) -> bool:
        """Whether a raw Workload still stands for the job."""


class JobWithReplacements(abc.ABC):
    """A stopped job lacks pods until somebody replaces them."""

    @abc.abstractmethod
    def after_release(self, workload: Obj, now: float) -> Obj:
        """The raw Workload as it has to be once its quota is free.

        Args:
            workload: as `states.release` left it.
            now: seconds since the epoch.
        """


class ComposableJob(abc.ABC):
    """One job that is made of many API objects."""

    @abc.abstractmethod
    def match_workloads(
        self, workloads: Sequence[Obj], flavors: Mapping[str, Mapping[str, object]]
    ) -> Matching:
        """Which Workload stands for the job."""

    @abc.abstractmethod
    def compose_workload(self) -> Obj | tuple[Command, ...]:
        """The Workload without its priority, or what to do when it cannot be made (yet)."""

    @abc.abstractmethod
    def run_members(self, infos: Sequence[PodSetInfo], message: str) -> tuple[Command, ...]:
        """What lets every member run, with the events about it."""

    @abc.abstractmethod
    def stop_members(
        self, infos: Sequence[PodSetInfo], reason: StopReason, message: str, now: float
    ) -> tuple[Command, ...]:
        """What stops every member, with the events about it; nothing when all have stopped."""

    @abc.abstractmethod
    def remove_members(self) -> tuple[Command, ...]:
        """What deletes every member for good, once the job is no longer wanted."""
