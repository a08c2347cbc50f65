"""What waits: every pending workload in exactly one place.

A pending workload is in the heap of its ClusterQueue, parked as inadmissible, or in flight (a head
of the cycle that runs). Nothing is tried twice without a reason: a scope (a cohort, or a
ClusterQueue without one) gets a cycle only when something in it changed since its last one
(spec/scheduling 3, 4.7, 9.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from heapq import heappop, heappush
from typing import NamedTuple

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.grouping import Grouping
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.reasons import NoFlavors, Reason
from kueuelib.scheduler.workload_info import Shape, WorkloadInfo


class Scope(NamedTuple):
    """The ClusterQueues that can influence each other: one cohort, or one ClusterQueue alone."""

    cohort: str
    cluster_queue: str


def scope_of(cohort: str, cluster_queue: str) -> Scope:
    """The scope of a ClusterQueue."""
    return Scope(cohort, "") if cohort else Scope("", cluster_queue)


class Place(Enum):
    """Where a pending workload is."""

    HEAP = "heap"
    INADMISSIBLE = "inadmissible"
    IN_FLIGHT = "in flight"


class Requeue(Enum):
    """Why a head comes back without quota (spec/scheduling 3.3).

    `GENERIC` and `FAILED_AFTER_NOMINATION` are the two sides of the rule that StrictFIFO keeps its
    head while BestEffortFIFO parks it. The last two park under either strategy, because no change
    of quota can help: only the namespace's labels, or the workload's own checks.
    """

    GENERIC = ""
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    FAILED_CHECKS = "FailedChecks"


Progress = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
"""Which flavors were tried: pod set -> resource -> index of the last one, -1 to start over (5.6).
"""


def is_unfinished(progress: Progress) -> bool:
    """Whether flavors are left to try."""
    return any(index != -1 for _, indices in progress for _, index in indices)


@attrs.define(eq=False)
class Pending:
    """A workload that waits.

    Attributes:
        info: what it asks for; replaced when the object changes.
        place: where it is.
        not_before: the end of its back-off in seconds since the epoch, or None.
        progress: how far the flavors were tried.
        since: the cycle in which the current pass over the flavors began.
        version: the version of its scope when it was popped.
        held_at: that version when a blocked head kept it from quota that nobody used; None if none
            did in the current pass.
        verdict: why it came back last, None before the first cycle.
        reason: the reason that went with it, or that of another workload of its shape.
        changed: whether it changed while in flight, so that the verdict is void.
    """

    info: WorkloadInfo
    place: Place = Place.HEAP
    not_before: float | None = None
    progress: Progress = ()
    since: int | None = None
    version: int = 0
    held_at: int | None = None
    verdict: Requeue | None = None
    reason: Reason | None = None
    changed: bool = False


class Counts(NamedTuple):
    """How many workloads wait in a ClusterQueue; one in flight counts as active."""

    active: int
    inadmissible: int


class ClusterQueueHeap:
    """The pending workloads of one ClusterQueue."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.strict = False
        self.active = True
        self.scope = scope_of("", name)
        self.items: dict[ObjectKey, Pending] = {}
        self.in_flight: ObjectKey | None = None
        self._heap: list[tuple[QueueOrder, ObjectKey]] = []
        self._in_heap: Grouping[ObjectKey, Shape] = Grouping()
        self._inadmissible: dict[ObjectKey, None] = {}
        self._hopeless: dict[Shape, Reason] = {}

    def put(self, item: Pending, place: Place) -> None:
        """Puts a new or popped workload into the heap or parks it."""
        key = item.info.key
        if self.in_flight == key:
            self.in_flight = None
        self._inadmissible.pop(key, None)
        self._in_heap.drop(key)
        self.items[key] = item
        item.place = place
        if place is Place.HEAP:
            heappush(self._heap, (item.info.order, key))
            self._in_heap.put(key, item.info.shape)
        else:
            self._inadmissible[key] = None

    def give_up(self, shape: Shape, reason: Reason) -> tuple[ObjectKey, ...]:
        """Parks all workloads of a shape that was tried in vain, and those still to come.

        They would get the same verdict until something in the scope moves.

        Returns:
            The workloads that were in the heap.
        """
        self._hopeless[shape] = reason
        alike = self._in_heap.members(shape)
        for key in alike:
            self.items[key].reason = reason
            self.put(self.items[key], Place.INADMISSIBLE)
        return alike

    def hopeless(self, shape: Shape) -> Reason | None:
        """Why the shape was tried in vain, None when it was not, or when something moved since."""
        return self._hopeless.get(shape)

    def hope(self) -> None:
        """Something moved: every shape is worth a try again."""
        self._hopeless.clear()

    def take_out(self, key: ObjectKey) -> Pending | None:
        """Removes a workload wherever it is; None when it is not here."""
        item = self.items.pop(key, None)
        self._inadmissible.pop(key, None)
        self._in_heap.drop(key)
        if self.in_flight == key:
            self.in_flight = None
        return item

    def parked(self) -> tuple[ObjectKey, ...]:
        """The workloads that are parked, in the order in which they were parked."""
        return tuple(self._inadmissible)

    def pop(self) -> Pending | None:
        """Takes the head out of the heap and in flight; None when there is none or one is under
        way.
        """
        if self.in_flight is not None:
            return None
        while self._heap:
            order, key = heappop(self._heap)
            item = self.items.get(key)
            if item is not None and item.place is Place.HEAP and item.info.order == order:
                item.place, item.changed = Place.IN_FLIGHT, False
                self._in_heap.drop(key)
                self.in_flight = key
                return item
        return None

    def counts(self) -> Counts:
        """How many wait."""
        parked = len(self._inadmissible)
        if not self.active:
            return Counts(0, len(self.items))
        return Counts(len(self.items) - parked, parked)

    def in_order(self) -> Iterator[Pending]:
        """All workloads that wait, wherever they are, in the order of the queue."""
        return iter(sorted(self.items.values(), key=lambda item: (item.info.order, item.info.key)))


class Queues:
    """The pending workloads of all ClusterQueues.

    Args:
        admits: whether a ClusterQueue takes a workload's namespace; parked workloads for which it
            says no are not woken.
    """

    def __init__(self, admits: Callable[[str, WorkloadInfo], bool]) -> None:
        self._admits = admits
        self._queues: dict[str, ClusterQueueHeap] = {}
        self._members: dict[Scope, dict[str, None]] = {}
        self._home: dict[ObjectKey, str] = {}
        self._dirty: dict[Scope, None] = {}
        self._woken: dict[Scope, None] = {}
        self._moved_in: dict[Scope, int] = {}
        self._version: dict[Scope, int] = {}
        self._deadlines: list[tuple[float, ObjectKey]] = []
        self._untold: dict[ObjectKey, None] = {}
        self._cycle = 0

    # --- ClusterQueues

    def set_queue(self, name: str, *, cohort: str, strict: bool, active: bool) -> None:
        """Takes over a new or changed ClusterQueue. Waking is the caller's decision."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = ClusterQueueHeap(name)
            self._members.setdefault(queue.scope, {})[name] = None
        scope = scope_of(cohort, name)
        if scope != queue.scope:
            self._leave(queue)
            queue.scope = scope
            self._members.setdefault(scope, {})[name] = None
        if (queue.strict, queue.active) != (strict, active):
            queue.strict, queue.active = strict, active
            self.touch(scope)

    def remove_queue(self, name: str) -> tuple[ObjectKey, ...]:
        """Forgets a ClusterQueue; the workloads that waited in it."""
        queue = self._queues.pop(name, None)
        if queue is None:
            return ()
        self._leave(queue)
        for key in queue.items:
            del self._home[key]
        return tuple(queue.items)

    def _leave(self, queue: ClusterQueueHeap) -> None:
        members = self._members[queue.scope]
        del members[queue.name]
        if not members:
            del self._members[queue.scope]
            self._dirty.pop(queue.scope, None)
            self._woken.pop(queue.scope, None)
            self._moved_in.pop(queue.scope, None)
            self._version.pop(queue.scope, None)

    def queue(self, name: str) -> ClusterQueueHeap | None:
        """The pending workloads of a ClusterQueue, or None. Not to be changed by the caller."""
        return self._queues.get(name)

    # --- workloads

    def get(self, key: ObjectKey) -> Pending | None:
        """The workload if it waits in a ClusterQueue."""
        home = self._home.get(key)
        return self._queues[home].items[key] if home is not None else None

    def home(self, key: ObjectKey) -> str | None:
        """The ClusterQueue in which the workload waits."""
        return self._home.get(key)

    def push(self, name: str, info: WorkloadInfo, *, now: float, retry: bool = False) -> None:
        """Takes over a new or changed pending workload (spec/scheduling 3.4).

        A change that can't alter the verdict leaves it where it is, for example the status patch
        that says why it waits. One in flight stays in flight; its verdict is void if the change
        matters.

        Args:
            name: the ClusterQueue, which exists.
            info: what the workload asks for.
            now: seconds since the epoch.
            retry: treat the workload as changed, whatever it looks like.
        """
        if self._home.get(info.key, name) != name:
            self.take_out(info.key)
        queue = self._queues[name]
        item = queue.items.get(info.key)
        if item is None:
            item = Pending(info, not_before=info.not_before)
            self._home[info.key] = name
        else:
            same = not retry and item.info.asks_the_same(info)
            reordered = item.info.order != info.order
            item.info, item.not_before = info, info.not_before
            if not same:
                item.progress, item.since, item.held_at = (), None, None
                item.verdict = item.reason = None
            if item.place is Place.IN_FLIGHT:
                item.changed = item.changed or not same
                return
            if same and not (reordered and item.place is Place.HEAP):
                return
        self._enter(queue, item, now)

    def _enter(self, queue: ClusterQueueHeap, item: Pending, now: float) -> None:
        if item.not_before is not None and now < item.not_before:
            queue.put(item, Place.INADMISSIBLE)
            heappush(self._deadlines, (item.not_before, item.info.key))
            return
        known = None if queue.strict or item.verdict else queue.hopeless(item.info.shape)
        if known is not None:
            item.reason = known
            queue.put(item, Place.INADMISSIBLE)
            self._untold[item.info.key] = None
            return
        queue.put(item, Place.HEAP)
        self.touch(queue.scope)

    def take_out(self, key: ObjectKey) -> Pending | None:
        """Removes a workload; None when it did not wait."""
        home = self._home.pop(key, None)
        if home is None:
            return None
        queue = self._queues[home]
        self.touch(queue.scope)
        return queue.take_out(key)

    def requeue(
        self,
        key: ObjectKey,
        why: Requeue,
        reason: Reason,
        progress: Progress = (),
        *,
        now: float,
        held_back: bool = False,
    ) -> tuple[ObjectKey, ...]:
        """Puts a head back after its cycle (spec/scheduling 3.3).

        It returns to the heap if flavors are left to try, or if something that could help moved
        since its pass over the flavors began; otherwise its strategy and `why` decide.

        Args:
            key: the head; nothing happens when it left meanwhile.
            why: why it comes back.
            reason: what to tell about it; one about flavors holds for all workloads of its shape.
            progress: the flavors that were tried.
            now: seconds since the epoch.
            held_back: whether it would have got quota, had a blocked head not kept it.

        Returns:
            Workloads that were parked together with it, because they ask for the same.
        """
        home = self._home.get(key)
        queue = self._queues[home] if home is not None else None
        if queue is None or queue.in_flight != key:
            return ()
        item = queue.items[key]
        if item.changed:
            self._enter(queue, item, now)
            return ()
        resumed, began = item.since is not None, self._cycle if item.since is None else item.since
        if held_back and item.held_at is None:
            item.held_at = item.version
        item.verdict, item.reason = why, reason
        item.progress, item.since = progress, None
        if is_unfinished(progress):
            item.since = began
            queue.put(item, Place.HEAP)
            self._dirty[queue.scope] = None
        elif self._moved_in.get(queue.scope, -1) >= began:
            item.held_at = None
            self._enter(queue, item, now)
        elif why is Requeue.FAILED_AFTER_NOMINATION or item.held_at is not None:
            self._hold_on(queue, item)
        elif why is Requeue.GENERIC and queue.strict:
            queue.put(item, Place.HEAP)
        else:
            queue.put(item, Place.INADMISSIBLE)
            self.touch(queue.scope)
            if isinstance(reason, NoFlavors) and not resumed:
                return queue.give_up(item.info.shape, reason)
        return ()

    def _hold_on(self, queue: ClusterQueueHeap, item: Pending) -> None:
        """Back to the heap for a fresh pass, as soon as anything in the scope differs."""
        queue.put(item, Place.HEAP)
        if item.held_at is not None and self._version.get(queue.scope, 0) != item.held_at:
            self._dirty[queue.scope] = None
        item.held_at = None

    def retry(self, key: ObjectKey, *, now: float) -> None:
        """Puts a head back to be tried again at once, because its verdict is void."""
        item = self.get(key)
        if item is not None and item.place is Place.IN_FLIGHT:
            self._enter(self._queues[self._home[key]], item, now)

    # --- waking

    def wake(self, scope: Scope) -> None:
        """Something in the scope may help its parked workloads: they are moved before the next
        cycle.
        """
        if scope in self._members:
            self._woken[scope] = None
            self._moved_in[scope] = self._cycle

    def touch(self, scope: Scope) -> None:
        """Something in the scope may change what its heads get."""
        if scope in self._members:
            self._dirty[scope] = None
            self._version[scope] = self._version.get(scope, 0) + 1

    def touch_all(self) -> None:
        """Something changed that matters everywhere."""
        for scope in self._members:
            self.touch(scope)

    def _move(self, scope: Scope, now: float) -> None:
        self.touch(scope)
        for name in self._members[scope]:
            queue = self._queues[name]
            queue.hope()
            for key in queue.parked():
                item = queue.items[key]
                if item.not_before is not None and now < item.not_before:
                    continue
                if item.verdict is Requeue.FAILED_CHECKS:
                    continue
                if self._admits(name, item.info):
                    queue.put(item, Place.HEAP)

    def _expire(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, key = heappop(self._deadlines)
            item = self.get(key)
            if item is None or item.not_before != deadline or item.place is not Place.INADMISSIBLE:
                continue
            item.not_before = None
            self._enter(self._queues[self._home[key]], item, now)

    def next_deadline(self) -> float | None:
        """When the next back-off ends, in seconds since the epoch; None when none is under way."""
        while self._deadlines:
            deadline, key = self._deadlines[0]
            item = self.get(key)
            if item is not None and item.not_before == deadline:
                return deadline
            heappop(self._deadlines)
        return None

    # --- cycles

    def has_work(self, now: float) -> bool:
        """Whether a cycle could find a head."""
        self._expire(now)
        return bool(self._woken or self._dirty or self._untold)

    @property
    def has_untold(self) -> bool:
        """Whether `take_untold` may have something."""
        return bool(self._untold)

    def take_untold(self) -> tuple[Pending, ...]:
        """Workloads parked without a cycle, because one of their shape was tried in vain."""
        found = (self.get(key) for key in self._untold)
        told = tuple(
            item for item in found if item is not None and item.place is Place.INADMISSIBLE
        )
        self._untold.clear()
        return told

    def pop_heads(self, now: float) -> tuple[tuple[str, Pending], ...]:
        """The heads of the next cycle, one per active ClusterQueue, in the order of their names.

        Only scopes in which something changed since their last cycle take part, but all their
        queues do: a blocked head of a StrictFIFO queue keeps others of its cohort from borrowing
        what is its own.
        """
        self._expire(now)
        for scope in sorted(self._woken):
            self._move(scope, now)
        self._woken.clear()
        scopes = sorted(self._dirty)
        self._dirty.clear()
        self._cycle += 1
        heads = []
        for scope in scopes:
            for name in self._members.get(scope, ()):
                queue = self._queues[name]
                item = queue.pop() if queue.active else None
                if item is not None:
                    item.version = self._version.get(scope, 0)
                    heads.append((name, item))
        return tuple(sorted(heads, key=lambda head: head[0]))
