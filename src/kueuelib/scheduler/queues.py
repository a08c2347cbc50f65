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
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.workload_info import WorkloadInfo


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
        verdict: why it came back last, None before the first cycle.
        changed: whether it changed while in flight, so that the verdict is void.
    """

    info: WorkloadInfo
    place: Place = Place.HEAP
    not_before: float | None = None
    progress: Progress = ()
    since: int | None = None
    verdict: Requeue | None = None
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
        self._inadmissible: dict[ObjectKey, None] = {}

    def put(self, item: Pending, place: Place) -> None:
        """Puts a new or popped workload into the heap or parks it."""
        key = item.info.key
        if self.in_flight == key:
            self.in_flight = None
        self._inadmissible.pop(key, None)
        self.items[key] = item
        item.place = place
        if place is Place.HEAP:
            heappush(self._heap, (item.info.order, key))
        else:
            self._inadmissible[key] = None

    def take_out(self, key: ObjectKey) -> Pending | None:
        """Removes a workload wherever it is; None when it is not here."""
        item = self.items.pop(key, None)
        self._inadmissible.pop(key, None)
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
        self._deadlines: list[tuple[float, ObjectKey]] = []
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
            self._dirty[scope] = None

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
            for table in (self._dirty, self._woken, self._moved_in):
                table.pop(queue.scope, None)

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
                item.progress, item.since, item.verdict = (), None, None
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
        queue.put(item, Place.HEAP)
        self._dirty[queue.scope] = None

    def take_out(self, key: ObjectKey) -> Pending | None:
        """Removes a workload; None when it did not wait."""
        home = self._home.pop(key, None)
        if home is None:
            return None
        queue = self._queues[home]
        self._dirty[queue.scope] = None
        return queue.take_out(key)

    def requeue(self, key: ObjectKey, why: Requeue, progress: Progress, *, now: float) -> None:
        """Puts a head back after its cycle (spec/scheduling 3.3).

        It returns to the heap if it is to be tried again at once, or if something that could help
        moved since its pass over the flavors began; otherwise it is parked. Nothing happens when
        it left meanwhile.
        """
        home = self._home.get(key)
        queue = self._queues[home] if home is not None else None
        if queue is None or queue.in_flight != key:
            return
        item = queue.items[key]
        began = item.since if item.since is not None else self._cycle
        moved = self._moved_in.get(queue.scope, -1) >= began
        if item.changed:
            self._enter(queue, item, now)
            return
        item.verdict, item.progress = why, progress
        unfinished = is_unfinished(progress)
        item.since = began if unfinished else None
        if unfinished or moved:
            self._enter(queue, item, now)
        elif why is Requeue.FAILED_AFTER_NOMINATION or (why is Requeue.GENERIC and queue.strict):
            queue.put(item, Place.HEAP)
        else:
            queue.put(item, Place.INADMISSIBLE)
            self._dirty[queue.scope] = None

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

    def touch_all(self) -> None:
        """Something changed that matters everywhere."""
        self._dirty.update(dict.fromkeys(self._members))

    def _move(self, scope: Scope, now: float) -> None:
        self._dirty[scope] = None
        for name in self._members[scope]:
            queue = self._queues[name]
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
        return bool(self._woken or self._dirty)

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
                    heads.append((name, item))
        return tuple(sorted(heads, key=lambda head: head[0]))
