"""The Workloads that wait: one by one, in the order of LocalQueues, by ClusterQueue and scope.

Equal shapes get equal verdicts, so only the first of each shape has to be in the heap, and a
refused shape is parked and woken as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.flavor_reasons import FlavorReason
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.pending.tries import Pass, Promise, TriedFlavors, _new_pass
from kueuelib.scheduler.pending.waking import Available, ScopeChanges, ShapeVerdict, wants_room
from kueuelib.scheduler.pending.workload_info import Shape, WorkloadInfo
from kueuelib.scheduler.quota.amounts import FlavorResource, leaves_of
from kueuelib.scheduler.quota.decay import UNUSED, Value
from kueuelib.scheduler.quota.queue_spec import QueueSpec
from kueuelib.scheduler.reasons import Reason, waits_alone
from kueuelib.scheduler.topology.tree import Charges

Lacked = Callable[[Charges], bool]
"""Whether the leaves with newly freed room had too little room for these pods before."""

# ---- a waiting workload --------------------------------------------------------------------------


class PendingPlace(Enum):
    """Where a pending workload is."""

    HEAP = "heap"
    INADMISSIBLE = "inadmissible"
    IN_FLIGHT = "in flight"


@attrs.define(eq=False)
class PendingWorkload:
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
    group: PendingGroup | None = None
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

    def waits_for_room(self, lacked: Lacked) -> bool:
        """Whether it was tried, and the room that has just become free may be what it waits for.

        With a promise, this is so only if its own leaves lacked room until now.
        """
        if self.reason is None or not wants_room(self.info, self.reason):
            return False
        if self.promise is None:
            return True
        return lacked(leaves_of(self.promise.usage))

    @property
    def progress(self) -> TriedFlavors:
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


# The order of Workloads: a heap for each LocalQueue, so that LocalQueues can change places.
# Within a LocalQueue the order of Workloads is fixed. Past usage (KEP-4136) only changes the places
# of whole LocalQueues, so the next head is one of their first Workloads. If past usage does not
# count, all share one lane.

E = TypeVar("E", bound=tuple[Any, ...])

Lane = ObjectKey | None
"""A LocalQueue; None if all share one lane."""

Entry = tuple[int, float, str, ObjectKey]
"""A Workload in a lane: what `QueueOrder` has, and its name. Flat, because heaps compare often."""

Usage = Callable[[ObjectKey], Value]
"""The past usage of a LocalQueue, now."""

SPARE = 64
"""The maximum number of outdated entries before all of them are dropped."""


class Ranking(Generic[E]):
    """A heap of entries that may become outdated; these are dropped when they come first.

    Its methods receive a function that finds the Workload of an entry, None if the entry is out of
    date. Storing it here would leave its owner to the garbage collector.
    """

    def __init__(self) -> None:
        self._entries: list[E] = []
        self._kept = 0

    def push(self, entry: E, find: Callable[[E], PendingWorkload | None]) -> None:
        """Adds an entry."""
        if len(self._entries) > 2 * self._kept + SPARE:
            self._entries = sorted({each for each in self._entries if find(each) is not None})
            self._kept = len(self._entries)
        heappush(self._entries, entry)

    def drop(self, entry: E) -> None:
        """Removes an entry that became outdated, if it comes first."""
        entries = self._entries
        if entries and entries[0] is entry:
            heappop(entries)

    def first(self, find: Callable[[E], PendingWorkload | None]) -> PendingWorkload | None:
        """The first Workload, or None."""
        entries = self._entries
        while entries:
            item = find(entries[0])
            if item is not None:
                return item
            heappop(entries)
        return None


class Lanes:
    """Workloads by LocalQueue, then by priority and age.

    Args:
        items: those that may be here, by name. Only the caller changes it.
        parked: whether those without a turn belong here, too.
    """

    def __init__(self, items: Mapping[ObjectKey, PendingWorkload], *, parked: bool) -> None:
        self._items = items
        self._parked = parked
        self._rankings: dict[Lane, Ranking[Entry]] = {}

    def _current(self, entry: Entry) -> PendingWorkload | None:
        item = self._items.get(entry[-1])
        if item is None or item.entry is not entry:
            return None
        return item if self._parked or item.has_turn else None

    def push(self, item: PendingWorkload) -> None:
        """Adds a Workload; one that was added before may be added again."""
        ranking = self._rankings.get(item.lane)
        if ranking is None:
            ranking = self._rankings[item.lane] = Ranking()
        ranking.push(item.entry, self._current)

    def drop(self, item: PendingWorkload) -> None:
        """Notes that a Workload is no longer here."""
        ranking = self._rankings.get(item.lane)
        if ranking is not None:
            ranking.drop(item.entry)

    def first(self, lane: Lane) -> PendingWorkload | None:
        """The first Workload of a lane, or None."""
        ranking = self._rankings.get(lane)
        if ranking is None:
            return None
        item = ranking.first(self._current)
        if item is None:
            del self._rankings[lane]
        return item

    def firsts(self) -> list[PendingWorkload]:
        """The first Workload of each lane."""
        return list(filter(None, map(self.first, tuple(self._rankings))))


class Heap(Lanes):
    """The Workloads of one ClusterQueue that get a turn.

    Args:
        items: the Workloads of the ClusterQueue, by name. Only the caller changes it.
        usage: the past usage of LocalQueues; None if it does not count.

    Attributes:
        sticky: the last Workload for which others were preempted; it stays first until it is
            parked or leaves the ClusterQueue, so that no other takes the freed quota.
        last: the Workload that had the last turn.
    """

    def __init__(self, items: Mapping[ObjectKey, PendingWorkload], usage: Usage | None) -> None:
        super().__init__(items, parked=False)
        self._usage = usage
        self.sticky: ObjectKey | None = None
        self.last: ObjectKey | None = None

    def head(self) -> PendingWorkload | None:
        """The Workload whose turn it is: the sticky one, or by past usage, priority and age."""
        sticky = None if self.sticky is None else self._items.get(self.sticky)
        if sticky is not None and sticky.has_turn:
            return sticky
        if self._usage is None:  # all share one lane
            return self.first(None)
        return min(self.firsts(), key=self.place, default=None)

    @property
    def has_new_head(self) -> bool:
        """Whether the next turn belongs to another Workload than the last one."""
        head = self.head()
        return head is not None and head.info.key != self.last

    def place(self, item: PendingWorkload) -> tuple[Value, QueueOrder, ObjectKey]:
        """The sort key of a Workload; the least comes first."""
        return self.usage(item), item.info.order, item.info.key

    def usage(self, item: PendingWorkload) -> Value:
        """The past usage of a Workload's LocalQueue; the same for all if it does not count."""
        return UNUSED if self._usage is None else self._usage(item.info.local_queue)


# Scopes: ClusterQueues that can influence each other, with their events and rounds at rest.
# A scope is due if something happened in it since its last cycle. When no Workload is left to try,
# it is at rest, and doubtful shapes are tried again (docs/designs/0005-waking.md).

ROUNDS = ("doubtful", "all", "doubtful")
"""The parked shapes that each round at rest unparks, after a change of quotas or usage."""

Root = tuple[str, str]
"""The name of a scope: its topmost cohort and "", or "" and a ClusterQueue without a cohort."""


class Scopes(Protocol):
    """What a scope needs of `Queues`, where its attributes are described."""

    instant: int
    scopes: dict[Root, Scope]
    due: dict[Root, Scope]
    unsettled: dict[Root, Scope]


@attrs.define(eq=False)
class Scope:
    """One tree of cohorts, or one ClusterQueue alone.

    Attributes:
        root: its name.
        queues: all waiting Workloads, and the due scopes.
        news: the events in it.
        members: its ClusterQueues.
        waiting: those of them with waiting Workloads.
        touched: the instant of the last event of any kind.
        turns_owed: whether parked shapes have not had their turn after a change yet.
        doubtful_head: whether a head returned to its heap with a doubtful verdict.
        rounds: the number of rounds at rest since quotas or usage changed.
        helped: the instant of the last change or release not caused by a preemption.
        preempted: how often each Workload preempted others since the last change or release not
            caused by a preemption.
    """

    root: Root
    queues: Scopes
    news: ScopeChanges = attrs.field(factory=ScopeChanges)
    members: dict[str, PendingQueue] = attrs.field(factory=dict)
    waiting: dict[str, PendingQueue] = attrs.field(factory=dict)
    touched: int = 0
    turns_owed: bool = False
    doubtful_head: bool = False
    rounds: int = 0
    helped: int = 0
    preempted: dict[ObjectKey, int] = attrs.field(factory=dict)

    def add(self, queue: PendingQueue) -> None:
        """Add a ClusterQueue, which leaves its former scope."""
        if queue.scope is not self:
            queue.scope.remove(queue)
            queue.scope = self
        self.members[queue.name] = queue
        if queue.items:
            self.waiting[queue.name] = queue

    def remove(self, queue: PendingQueue) -> None:
        """Remove a ClusterQueue, after which the others may be able to borrow more or less."""
        del self.members[queue.name]
        self.waiting.pop(queue.name, None)
        self.note_changed()
        if not self.members:
            for table in (self.queues.scopes, self.queues.due, self.queues.unsettled):
                table.pop(self.root, None)

    def touch(self) -> int:
        """Record an event that may affect a head; returns its instant."""
        queues = self.queues
        queues.instant += 1
        self.touched = queues.instant
        queues.due[self.root] = self
        return self.touched

    def make_due(self) -> None:
        """Request a further cycle, even without an event."""
        self.queues.due[self.root] = self

    def note_changed(self, *, from_outside: bool = True) -> None:
        """Record an event that may help any parked Workload."""
        self.note_freed((), from_outside=from_outside)
        self.news = ScopeChanges(self.touched, charged=self.news.charged)
        self.rounds = 0

    def note_freed(self, freed: Collection[FlavorResource], *, from_outside: bool = True) -> None:
        """Record that a Workload holds less than before, by `freed`.

        If `freed` is empty, turns are owed, but no verdict is due.
        """
        self.turns_owed = True
        if from_outside:
            self.preempted.clear()
        now = self.touch()
        if from_outside:
            self.helped = now
        if freed:
            self.news.freed.update(dict.fromkeys(freed, now))
            self.news.last_freed = now
            self.rounds = 0

    def note_roomier(self, lacked: Lacked, *, from_outside: bool = True) -> None:
        """Record that leaves have more room, and retry Workloads that may wait for it."""
        self.queues.instant += 1
        self.news.roomier = self.queues.instant  # for the heads of a running cycle
        parked = (each.verdict for one in self.waiting.values() for each in one.groups.values())
        if any(verdict is not None and verdict.wants_room for verdict in parked):
            self.note_freed((), from_outside=from_outside)
            self.rounds = 0
        elif any(queue.waits_for_room(lacked) for queue in self.waiting.values()):
            self.touch()
            if from_outside:
                self.helped = self.touched

    def note_charged(
        self, borrower: str, borrowed: Iterable[FlavorResource | None], lowest_priority: int
    ) -> None:
        """Record that a ClusterQueue uses more than before; the other arguments are for
        `ScopeChanges.borrowed`.
        """
        now = self.news.charged = self.touch()
        self.rounds = 0
        for pair in borrowed:
            self.news.borrowed[borrower, pair] = now, lowest_priority

    def begin_round(self) -> None:
        """Begins a round at rest if a verdict is doubtful.

        If some verdicts remain doubtful, because heads kept competing for the same flavors, the
        scope acts like a new engine: it unparks all shapes, and then the doubtful ones once more.
        """
        parked = [(queue, group) for queue in self.waiting.values() for group in queue.parked()]
        doubtful = [(queue, group) for queue, group in parked if queue.is_doubtful(group)]
        if self.rounds == len(ROUNDS) or not (doubtful or self.doubtful_head):
            return
        for queue, group in parked if ROUNDS[self.rounds] == "all" else doubtful:
            queue.unpark(group)
        self.rounds += 1
        self.doubtful_head = False
        self.touch()


# --------------------------------------------------------------------------------------------------

GroupKey = tuple[Shape, ObjectKey | None, Lane]
"""A shape, the name of a Workload that is alone in its group, and a LocalQueue if age counts,
because the oldest one of each group must come first.
"""


class PendingGroup(Lanes):
    """Workloads that wait in one ClusterQueue, and are parked and woken together.

    Attributes:
        key: their common key.
        members: the Workloads.
        verdict: the result of a try, while they are parked; otherwise None.
        has_turn: whether their first ones are in the heap, possibly for a turn while they are
            parked.
        unreported: those without a report so far.
        reported: the reported reasons that no change of usage ends.
    """

    def __init__(self, key: GroupKey) -> None:
        self.key = key
        self.members: dict[ObjectKey, PendingWorkload] = {}
        super().__init__(self.members, parked=True)
        self.verdict: ShapeVerdict | None = None
        self.has_turn = True
        self.unreported: dict[ObjectKey, None] = {}
        self.reported: dict[tuple[str, str], tuple[FlavorReason, ...]] = {}


_BY_ORDER = attrgetter("info.order", "info.key")
"""The sort key of a Workload where past usage does not count."""


class PendingQueue:
    """The Workloads that wait in one ClusterQueue; each is in one group, or in flight.

    Attributes:
        in_lanes: whether LocalQueues are separate, because past usage orders them.
        active: whether it offers heads.
        items: all Workloads that wait here.
        in_flight: the Workload that is being tried.
        heap: the first Workloads of the groups with a turn.
        groups: the groups of waiting Workloads.
        promised: how many of them wait for victims, with a promise of the room.
    """

    def __init__(
        self, spec: QueueSpec, scope: Scope, available: Available, usage: Usage | None = None
    ) -> None:
        self.in_lanes = usage is not None
        self.name = spec.name
        self.spec = spec
        self.scope = scope
        self.active = True
        self.items: dict[ObjectKey, PendingWorkload] = {}
        self._ordered: tuple[PendingWorkload, ...] | None = None
        self.in_flight: ObjectKey | None = None
        self.heap = Heap(self.items, usage)
        self.groups: dict[GroupKey, PendingGroup] = {}
        self.promised = 0
        self._available = available

    def in_order(self) -> tuple[PendingWorkload, ...]:
        """All that wait here, in order; kept until that changes, for those who ask page by page."""
        if self.in_lanes:
            return tuple(sorted(self.items.values(), key=self.heap.place))
        if self._ordered is None:
            self._ordered = tuple(sorted(self.items.values(), key=_BY_ORDER))
        return self._ordered

    @property
    def can_be_overtaken(self) -> bool:
        """Whether another Workload could get ahead of a head that others leave for."""
        return not self.spec.strict or (self.spec.by_usage and self.in_lanes)

    def put(
        self, item: PendingWorkload, verdict: ShapeVerdict | None = None, *, alone: bool = False
    ) -> PendingGroup:
        """Adds a Workload to those of its shape, wherever it was before.

        A verdict parks the whole shape, including later Workloads. But if age counts, an older one
        has more victims, so a verdict on a younger one does not hold for it. A Workload waits alone
        if the verdict only concerns itself, or if its next try differs from that of its shape.

        Age counts as well while others have a promise, because those before them may take it.
        """
        key, alone = item.info.key, alone or (verdict is not None and waits_alone(verdict.reason))
        by_age = self.spec.preemption.compares_ages or bool(self.promised)
        self.take_out(key)
        place = item.info.shape, key if alone else None, item.lane if by_age else None
        group = self.groups.get(place)
        if group is None:
            group = self.groups[place] = PendingGroup(place)
        first = group.first(item.lane) if by_age else None
        if verdict is None:
            if first is not None and item.info.order.queued_at < first.info.order.queued_at:
                self.unpark(group)
        elif first is None or item.info.order.queued_at <= first.info.order.queued_at:
            group.verdict, group.has_turn = verdict, False
        self.items[key] = group.members[key] = item
        self._ordered = None
        self.scope.waiting[self.name] = self
        item.group = group
        group.push(item)
        if item.reason is None:
            group.unreported[key] = None
        if group.has_turn and group.first(item.lane) is item:
            self.heap.push(item)
        return group

    def take_out(self, key: ObjectKey) -> None:
        """Removes a Workload wherever it is, if it is here."""
        item = self.items.pop(key, None)
        if item is not None:
            self._ordered = None
            if item.group is None:
                self.in_flight = None
            else:
                self._leave_group(item, item.group)
            if not self.items:
                del self.scope.waiting[self.name]

    def _leave_group(self, item: PendingWorkload, group: PendingGroup) -> None:
        item.group = None
        del group.members[item.info.key]
        group.unreported.pop(item.info.key, None)
        self.heap.drop(item)
        if not group.members:
            del self.groups[group.key]
            return
        group.drop(item)
        if group.has_turn and (first := group.first(item.lane)) is not None:
            self.heap.push(first)

    def use_slot(self) -> PendingWorkload | None:
        """The next head, which is then in flight; None if a turn is skipped or there is none.

        After a change, all parked Workloads get a turn, as long as any is worth a try.
        """
        if self.scope.turns_owed and self._has_any_to_try:
            for parked in self.parked():
                self._give_turn(parked)
        item = self.heap.head() if self.active and self.in_flight is None else None
        group = None if item is None else item.group
        if item is None or group is None:
            return None
        is_next, self.heap.last = self.heap.last == item.info.key, item.info.key
        is_parked = group.verdict is not None
        if not is_parked or self._is_to_try(group) or self._keeps_quota(group):
            if is_parked:
                self.unpark(group)
            self._leave_group(item, group)
            item.begin_try(is_next=is_next)
            self.in_flight = item.info.key
            return item
        group.has_turn = False
        if self._has_any_to_try:
            self.scope.make_due()
        else:
            for each in self.groups.values():
                each.has_turn = False
        return None

    @property
    def _has_any_to_try(self) -> bool:
        return any(self._is_to_try(group) for group in self.groups.values())

    def _is_to_try(self, group: PendingGroup) -> bool:
        news, verdict = self.scope.news, group.verdict
        if verdict is None:
            return group.has_turn
        return verdict.is_due_in_turn(news, self.spec, self._available)

    def waits_for_room(self, lacked: Lacked) -> bool:
        """Whether a Workload that was tried and is not parked may wait for the freed room."""
        return any(
            item.waits_for_room(lacked)
            for group in self.groups.values()
            if group.verdict is None
            for item in group.firsts()
        )

    def _keeps_quota(self, group: PendingGroup) -> bool:
        return group.verdict is None or group.verdict.keeps_quota(self.spec, self._available)

    def _give_turn(self, group: PendingGroup) -> None:
        group.has_turn = True
        for item in group.firsts():
            self.heap.push(item)

    def parked(self) -> list[PendingGroup]:
        """The Workloads that are parked for lack of quota."""
        groups = self.groups.values()
        return [group for group in groups if group.verdict and group.verdict.is_about_quota]

    def owners(self) -> list[tuple[WorkloadInfo, int]]:
        """Those that wait for quota: one Workload of each shape, and how many there are."""
        shapes = [
            (next(iter(group.members.values())).info, len(group.members))
            for group in self.groups.values()
            if (group.verdict is None and group.has_turn)
            or (group.verdict is not None and group.verdict.is_about_quota)
        ]
        item = None if self.in_flight is None else self.items.get(self.in_flight)
        return shapes if item is None else [*shapes, (item.info, 1)]

    def unpark(self, group: PendingGroup) -> None:
        """Returns a shape to the heap."""
        if group.verdict is not None:
            group.verdict = None
            self._give_turn(group)

    def is_doubtful(self, group: PendingGroup) -> bool:
        """Whether the verdict of a parked group may not hold at rest."""
        return group.verdict is not None and group.verdict.is_doubtful(self.scope.news, self.spec)
