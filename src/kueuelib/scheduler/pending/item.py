"""A waiting workload, and how far its flavors were tried."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

import attrs

from kueuelib.scheduler.pending.workload_info import WorkloadInfo
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.reasons import Reason
from kueuelib.scheduler.values import record

if TYPE_CHECKING:
    from kueuelib.scheduler.pending.lanes import Entry, Lane
    from kueuelib.scheduler.pending.queue import Group, PendingQueue


class PendingPlace(Enum):
    """Where a pending workload is."""

    HEAP = "heap"
    INADMISSIBLE = "inadmissible"
    IN_FLIGHT = "in flight"


class Requeue(Enum):
    """Why a head is requeued without quota.

    After `GENERIC`, StrictFIFO keeps its head and BestEffortFIFO parks it. After
    `FAILED_AFTER_NOMINATION` and `PENDING_PREEMPTION` either strategy keeps it, and after the
    latter nothing overtakes it in BestEffortFIFO. The last two park under either strategy,
    because no change of quota can help: only the namespace's labels, or the workload's own checks.
    """

    GENERIC = ""
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    PENDING_PREEMPTION = "PendingPreemption"
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    FAILED_CHECKS = "FailedChecks"


Progress = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
"""Which flavors were tried: pod set, resource, index of the last one; -1 to start over (5.6)."""


@record
class Promise:
    """The room that a preemptor gets when its victims are gone.

    Attributes:
        counts: pods per pod set.
        flavors: per pod set the flavor of each resource.
        usage: its charge.
        parallel: whether the next heads are decided meanwhile, beside that charge.
    """

    counts: tuple[int, ...]
    flavors: Mapping[str, Mapping[str, str]]
    usage: Mapping[FlavorResource, int] = attrs.field(factory=dict)
    parallel: bool = False


def is_unfinished(progress: Progress) -> bool:
    """Whether there are flavors left to try."""
    for _, indices in progress:
        for _, index in indices:
            if index != -1:
                return True
    return False


@record
class Pass:
    """One pass over the flavors of a workload, which may take several tries.

    Attributes:
        began: the instant of the first of them.
        has_news: whether anything happened in the scope after the try before that. A pass without
            news does not justify a cycle, or two heads would keep each other searching forever.
        seen: the progress after each try. The pass ends when one repeats, because several pod sets
            may never finish at the same time.
        lost: whether the workload lost its chosen flavor to another head.
    """

    began: int
    has_news: bool
    seen: tuple[Progress, ...] = ()
    lost: bool = False

    def goes_on(self, progress: Progress) -> bool:
        """Whether the pass continues after a try with this progress."""
        return is_unfinished(progress) and progress not in self.seen

    def after(self, progress: Progress, *, lost: bool) -> Pass:
        """The pass after one more try."""
        return Pass(self.began, self.has_news, (*self.seen, progress), self.lost or lost)


@lru_cache(maxsize=2)
def _new_pass(began: int, has_news: bool) -> Pass:
    return Pass(began, has_news)


@attrs.define(eq=False)
class Pending:
    """A waiting workload. If its requests change, it becomes a new one.

    Attributes:
        info: its computed form; replaced after irrelevant changes of the object.
        queue: the ClusterQueue in which it waits.
        group: the workloads that it waits with, or only itself; None while it is in flight.
        back_off: the end of its back-off, in seconds since the epoch, or None.
        search: its pass over the flavors, or None.
        tried: the instant when its last try began.
        promise: the room for which others were preempted; None without a preemption.
        looked: when it was last compared with its promise.
        reason: the last reported reason; None before the first one.
        preempting: the UIDs of those that it preempted last, except those whose eviction was
            refused.
        lane: its LocalQueue, if past usage may count (KEP-4136).
        entry: its sort key in its lane, and its name.
    """

    info: WorkloadInfo
    queue: PendingQueue
    group: Group | None = None
    back_off: float | None = None
    search: Pass | None = None
    tried: int = 0
    promise: Promise | None = None
    looked: int = 0
    reason: Reason | None = None
    preempting: frozenset[str] = frozenset()
    lane: Lane = attrs.field(init=False)
    entry: Entry = attrs.field(init=False)

    @lane.default
    def _lane(self) -> Lane:
        return self.info.local_queue if self.queue.in_lanes else None

    @entry.default
    def _entry(self) -> Entry:
        return (*self.info.order, self.info.key)

    @property
    def place(self) -> PendingPlace:
        """Where it is."""
        if self.in_flight:
            return PendingPlace.IN_FLIGHT
        parked = self.group is not None and self.group.verdict is not None
        return PendingPlace.INADMISSIBLE if parked else PendingPlace.HEAP

    @property
    def rests(self) -> bool:
        """Whether it is parked until something other than a cycle happens."""
        group, queue = self.group, self.queue
        if group is None or group.verdict is None or group.has_turn or queue.scope.turns_owed:
            return False
        return group.verdict.lasts(queue.scope.news, queue.spec)

    @property
    def is_promised(self) -> bool:
        """Whether it waits for its victims without a turn."""
        group = self.group
        return group is not None and group.verdict is None and not group.has_turn

    @property
    def in_flight(self) -> bool:
        """Whether it is a head of the running cycle."""
        return self.group is None

    @property
    def has_turn(self) -> bool:
        """Whether it gets a turn as soon as it is first."""
        return self.group is not None and self.group.has_turn

    @property
    def progress(self) -> Progress:
        """The flavors to skip in its next try."""
        search = self.search
        return search.seen[-1] if search is not None and search.seen else ()

    def begin_try(self, *, is_next: bool) -> None:
        """Make it a head of the cycle that begins.

        Its pass over the flavors continues, unless something that may help happened since its last
        try and another Workload of its ClusterQueue had the slot meanwhile.

        Args:
            is_next: whether it had the last slot of its ClusterQueue as well.
        """
        scope = self.queue.scope
        now = scope.queues.instant
        if not is_next and scope.news.changed_or_freed_since(self.tried):
            self.search = None
        if self.search is None:
            self.search = _new_pass(now, scope.touched > self.tried)
        self.tried = now

    @property
    def preemptions(self) -> int:
        """How often it preempted others since the last outside change of quota."""
        return self.queue.scope.preempted.get(self.info.key, 0)

    def preempts(self, victims: frozenset[str]) -> None:
        """Count a preemption by it."""
        self.preempting = victims
        self.queue.scope.preempted[self.info.key] = self.preemptions + 1

    def keeps(self, victim: str) -> None:
        """Note that a victim cannot be evicted; without any, the preemption does not count."""
        if self.preempting == {victim}:
            self.queue.scope.preempted[self.info.key] = max(0, self.preemptions - 1)
        self.preempting -= {victim}

    def begin_anew(self) -> None:
        """Forget its preemptions, because it changed or is gone."""
        self.queue.scope.preempted.pop(self.info.key, None)
