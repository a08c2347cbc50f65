"""A workload that waits: where it is, how it came back, how far its flavors were tried."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import attrs

from kueuelib.scheduler.pending.workload_info import WorkloadInfo
from kueuelib.scheduler.quota.cluster_queue import Generation
from kueuelib.scheduler.reasons import Reason

if TYPE_CHECKING:
    from kueuelib.scheduler.pending.queue import PendingQueue, ShapeGroup


class Place(Enum):
    """Where a pending workload is."""

    HEAP = "heap"
    INADMISSIBLE = "inadmissible"
    IN_FLIGHT = "in flight"


class Requeue(Enum):
    """Why a head comes back without quota (spec/scheduling 3.3).

    `GENERIC` and `FAILED_AFTER_NOMINATION` are the two sides of the rule that StrictFIFO keeps its
    head while BestEffortFIFO parks it. After `PENDING_PREEMPTION` either strategy keeps it, and in
    BestEffortFIFO nothing overtakes it any more. The last two park under either strategy, because
    no change of quota can help: only the namespace's labels, or the workload's own checks.
    """

    GENERIC = ""
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    PENDING_PREEMPTION = "PendingPreemption"
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    FAILED_CHECKS = "FailedChecks"


class Aside(Enum):
    """What a parked workload waits for that its shape does not tell."""

    BACK_OFF = "back-off"
    """The end of its back-off."""
    OWN_CHANGE = "own change"
    """A change of the workload itself, of its checks or of its defaults."""
    NAMESPACE = "namespace"
    """Labels of its namespace or a selector of its ClusterQueue that let it in."""
    MOVE = "move"
    """Anything that moves in its scope."""


Progress = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
"""Which flavors were tried: pod set, resource, index of the last one; -1 to start over (5.6)."""


@attrs.frozen
class Promise:
    """What others leave for: the room that a preemptor gets when they are gone.

    Attributes:
        counts: pods per pod set.
        flavors: per pod set the flavor of each resource.
    """

    counts: tuple[int, ...]
    flavors: Mapping[str, Mapping[str, str]]


def is_unfinished(progress: Progress) -> bool:
    """Whether flavors are left to try."""
    return any(index != -1 for _, indices in progress for _, index in indices)


@attrs.define(eq=False)
class Pending:
    """A workload that waits.

    Attributes:
        info: what it asks for; replaced when the object changes.
        queue: the ClusterQueue in which it waits.
        group: the workloads of its shape that it waits with, None when it is on its own.
        aside: what it waits for when it is parked on its own.
        in_flight: whether it is a head of the cycle that runs.
        not_before: the end of its back-off in seconds since the epoch, or None.
        progress: how far the flavors were tried.
        turn: the turn of its ClusterQueue in which it was tried last.
        overtaken: whether others had a turn between its last two.
        generation: what its ClusterQueue and cohort were like when it was tried last.
        tried: the instant at which its last try began.
        began: the instant at which its pass over the flavors began; None when it is in none.
        seen: how far the flavors were tried at the end of each try of that pass. The pass is over
            when one comes again: several pod sets may never be through at the same time.
        lost: whether it lost the flavor that it had chosen to another head in that pass.
        ended: the instant of the last news of its scope when its last pass ended. Another one,
            while there are no news, is not worth a cycle: two heads would keep each other searching
            for ever.
        came_round: whether that pass ended although flavors were left to try.
        promise: what others were told to leave for, None when nobody was.
        reason: what was told about it last, None when nothing was.
        changed: whether it changed while in flight, so that the verdict is void.
    """

    info: WorkloadInfo
    queue: PendingQueue
    group: ShapeGroup | None = None
    aside: Aside | None = None
    in_flight: bool = False
    not_before: float | None = None
    progress: Progress = ()
    turn: int = 0
    overtaken: bool = False
    generation: Generation | None = None
    tried: int = 0
    began: int | None = None
    seen: tuple[Progress, ...] = ()
    lost: bool = False
    ended: int | None = None
    came_round: bool = False
    promise: Promise | None = None
    reason: Reason | None = None
    changed: bool = False

    @property
    def place(self) -> Place:
        """Where it is."""
        if self.in_flight:
            return Place.IN_FLIGHT
        parked = self.group is not None and self.group.verdict is not None
        return Place.INADMISSIBLE if parked or self.aside is not None else Place.HEAP

    def resume(self, generation: Generation) -> Progress:
        """The flavors to skip in the try that begins.

        What was tried in the turn before counts, whatever happened meanwhile, so that a busy
        ClusterQueue does not keep anybody from ever reaching the later flavors. What is older
        counts only while nothing happened (spec/scheduling 5.6).
        """
        if self.overtaken and generation != self.generation:
            self.start_over()
        self.generation = generation
        return self.progress

    def void(self) -> None:
        """Forgets what was tried, because the workload changed."""
        self.start_over()
        self.promise = None
        self.reason = None

    def start_over(self) -> None:
        """Lets the next try begin with the first flavor."""
        self.progress, self.began, self.seen, self.lost = (), None, (), False


class Counts(NamedTuple):
    """How many workloads wait in a ClusterQueue; one in flight counts as active."""

    active: int
    inadmissible: int
