"""The pending workloads of one ClusterQueue, workloads of equal shape kept together.

Equal shapes get equal verdicts, so only the first of each shape has to be in the heap, and a shape
that was refused is parked and woken as a whole. The heads come out in the same order as if every
workload were in the heap on its own (spec/scheduling 3.2, 9.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

import attrs

from kueuelib.api.kueue import LOWER_OR_NEWER_EQUAL_PRIORITY
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.pending.item import Aside, Counts, Pending, Place
from kueuelib.scheduler.pending.waking import NOWHERE, Available, ScopeState, Verdict
from kueuelib.scheduler.pending.workload_info import Shape, WorkloadInfo
from kueuelib.scheduler.quota.queue_spec import QueueSpec
from kueuelib.scheduler.reasons import Reason

STALE_KEPT = 64
"""Entries of a heap that may be out of date before it is cleared of them."""


class ShapeGroup:
    """The workloads of one shape that wait in one ClusterQueue.

    Attributes:
        verdict: what a try came to, while they are parked; None while they are to be tried.
        called: whether their turn is to come although they are parked.
        untold: those about which nothing was reported yet.
    """

    def __init__(self) -> None:
        self.verdict: Verdict | None = None
        self.called = False
        self.untold: dict[ObjectKey, None] = {}
        self._orders: dict[ObjectKey, QueueOrder] = {}
        self._heap: list[tuple[QueueOrder, ObjectKey]] = []

    def __len__(self) -> int:
        return len(self._orders)

    @property
    def has_turn(self) -> bool:
        """Whether the first one is to have a turn."""
        return self.verdict is None or self.called

    def join(self, item: Pending) -> None:
        """Adds a workload."""
        key = item.info.key
        self._orders[key] = item.info.order
        heappush(self._heap, (item.info.order, key))
        if len(self._heap) > 2 * len(self._orders) + STALE_KEPT:
            self._heap = [(order, each) for each, order in self._orders.items()]
            heapify(self._heap)
        if item.reason is None:
            self.untold[key] = None

    def leave(self, key: ObjectKey) -> None:
        """Takes a workload out."""
        del self._orders[key]
        self.untold.pop(key, None)

    def first(self) -> tuple[QueueOrder, ObjectKey] | None:
        """The workload that comes first, None when the group is empty."""
        while self._heap:
            order, key = self._heap[0]
            if self._orders.get(key) == order:
                return self._heap[0]
            heappop(self._heap)
        return None


class PendingQueue:
    """What waits in one ClusterQueue; every workload is in one place.

    Attributes:
        spec: the ClusterQueue.
        scope: what happened to it, and to those that influence it.
        active: whether it offers heads.
        items: all workloads that wait here.
        in_flight: the one that is being tried.
        sticky: the one for which others were told to leave last; it stays first until it leaves
            the queue, so that nothing overtakes it and takes what becomes free.
    """

    def __init__(self, spec: QueueSpec) -> None:
        self.spec = spec
        self.scope = ScopeState(NOWHERE)
        self.active = True
        self.items: dict[ObjectKey, Pending] = {}
        self.in_flight: ObjectKey | None = None
        self.sticky: ObjectKey | None = None
        self._turns = 0
        self._heap: list[tuple[bool, QueueOrder, ObjectKey]] = []
        self._groups: dict[Shape, ShapeGroup] = {}
        self._asides: dict[Aside, dict[ObjectKey, None]] = {aside: {} for aside in Aside}

    @property
    def name(self) -> str:
        """The ClusterQueue."""
        return self.spec.name

    @property
    def by_age(self) -> bool:
        """Whether a verdict depends on the age of a workload: the older one has more victims."""
        return self.spec.preemption.within_cluster_queue == LOWER_OR_NEWER_EQUAL_PRIORITY

    # --- in and out

    def join(self, item: Pending) -> bool:
        """Lets a workload wait with others of its shape; whether it is to be tried."""
        group = self._groups.get(item.info.shape)
        if group is not None and group.verdict is not None and self.refusal(item.info) is None:
            self.go_alone(item)
            return True
        self._settle_in(item)
        item.group = self._groups.setdefault(item.info.shape, group or ShapeGroup())
        item.group.join(item)
        self._offer(item.group)
        return item.group.verdict is None

    def go_alone(self, item: Pending) -> None:
        """Puts a workload into the heap on its own: its next try differs from its shape's."""
        self._settle_in(item)
        self._push(item.info.order, item.info.key)

    def stick(self, key: ObjectKey | None) -> None:
        """Lets a workload be the first one, whatever its order; None for nobody."""
        before, self.sticky = self.sticky, key
        for changed in (before, key):
            item = self.items.get(changed) if changed is not None else None
            if item is not None and item.place is Place.HEAP:
                self._push(item.info.order, item.info.key)

    def _push(self, order: QueueOrder, key: ObjectKey) -> None:
        heappush(self._heap, (key != self.sticky, order, key))

    def _tidy(self) -> None:
        """Clears the heap once most of it is out of date.

        Entries at its top are dropped by `first`, but nobody asks for heads of a ClusterQueue that
        is stopped, or in a replica that waits for the Lease.
        """
        if len(self._heap) > 2 * len(self.items) + STALE_KEPT:
            self._heap = [entry for entry in set(self._heap) if self._counts(entry) is not None]
            heapify(self._heap)

    def set_aside(self, item: Pending, aside: Aside) -> None:
        """Parks a workload on its own."""
        self._settle_in(item)
        item.aside = aside
        self._asides[aside][item.info.key] = None

    def _settle_in(self, item: Pending) -> None:
        self.take_out(item.info.key)
        self.items[item.info.key] = item

    def take_out(self, key: ObjectKey) -> Pending | None:
        """Removes a workload wherever it is; None when it is not here."""
        self._tidy()
        item = self.items.pop(key, None)
        if item is None:
            return None
        if item.group is not None:
            self._leave_group(item)
        if item.aside is not None:
            del self._asides[item.aside][key]
            item.aside = None
        if item.in_flight:
            item.in_flight, self.in_flight = False, None
        return item

    def _leave_group(self, item: Pending) -> None:
        group, item.group = item.group, None
        assert group is not None
        group.leave(item.info.key)
        if not group:
            del self._groups[item.info.shape]
        else:
            self._offer(group)

    def _offer(self, group: ShapeGroup) -> None:
        """Puts the first one of a group into the heap, if the group has a turn to come."""
        first = group.first()
        if first is None or not group.has_turn:
            return
        self._push(*first)
        sticky = self.items.get(self.sticky) if self.sticky is not None else None
        if sticky is not None and sticky.group is group:
            self._push(sticky.info.order, sticky.info.key)

    # --- turns

    def first(self) -> Pending | None:
        """The workload whose turn it is, or None."""
        while self._heap:
            item = self._counts(self._heap[0])
            if item is not None:
                return item
            heappop(self._heap)
        return None

    def _counts(self, entry: tuple[bool, QueueOrder, ObjectKey]) -> Pending | None:
        """The workload that an entry of the heap is for, None when the entry is out of date."""
        waits_its_turn, order, key = entry
        item = self.items.get(key)
        if item is None or item.info.order != order or waits_its_turn is (key == self.sticky):
            return None
        if item.group is not None:
            return item if item.group.has_turn else None
        return item if item.place is Place.HEAP else None

    def take_turn(self, available: Available, now: int) -> tuple[Pending | None, bool]:
        """Uses up one turn, if there is one.

        The turn of a parked shape passes unless something turned its verdict by now.

        Args:
            available: what a ClusterQueue could use more of a pair, now.
            now: the present instant.

        Returns:
            The head, which is in flight from now on, or None; and whether a turn passed.
        """
        item = self.first() if self.active and self.in_flight is None else None
        if item is None:
            return None, False
        heappop(self._heap)
        self._turns += 1
        if item.group is not None:
            if not self._is_to_try(item, available):
                item.group.called = False
                return None, True
            self.revive(item.info.shape)
            self._leave_group(item)
        item.overtaken = self._turns > item.turn + 1
        item.turn, item.tried = self._turns, now
        item.in_flight, item.changed = True, False
        self.in_flight = item.info.key
        return item, False

    def _is_to_try(self, item: Pending, available: Available) -> bool:
        verdict = None if item.group is None else item.group.verdict
        return verdict is None or verdict.turned_by_free(self.scope, self.spec, available)

    def any_to_try(self, available: Available) -> bool:
        """Whether any Workload is left to try: not all turns are going to pass."""
        return self.active and any(
            self._is_to_try(item, available)
            for item in map(self._counts, self._heap)
            if item is not None
        )

    def call(self) -> None:
        """Gives everything that is parked a turn, as today's Kueue does when something moved.

        Without the turns that pass, a change that cannot help a shape would let the workloads
        behind it get ahead of other ClusterQueues.
        """
        for group in self._groups.values():
            if group.verdict is not None:
                group.called = True
                self._offer(group)
        for key in tuple(self._asides[Aside.MOVE]):
            self.join(self.items[key])

    def dismiss(self) -> None:
        """Takes back the turns of what is parked."""
        for group in self._groups.values():
            group.called = False

    # --- parking and waking

    def park(self, item: Pending, verdict: Verdict) -> tuple[ObjectKey, ...]:
        """Parks a workload and all of its shape, also those still to come.

        Where age counts, older ones are to be tried themselves.

        Returns:
            Those about which nothing was reported yet.
        """
        shape, queued_at = item.info.shape, item.info.order.queued_at
        group = self._groups.get(shape)
        if self.by_age and group is not None and group.verdict is None:
            first = group.first()
            if first is not None and first[0].queued_at < queued_at:
                self.set_aside(item, Aside.MOVE)
                return ()
        if group is None:
            group = self._groups[shape] = ShapeGroup()
        if group.verdict is not None:
            queued_at = min(queued_at, group.verdict.queued_at)
        group.verdict, group.called = attrs.evolve(verdict, queued_at=queued_at), False
        self.join(item)
        untold = tuple(group.untold)
        group.untold.clear()
        for key in untold:
            self.items[key].reason = verdict.reason
        return untold

    def refusal(self, info: WorkloadInfo) -> Reason | None:
        """Why one of its shape was refused, which holds for this workload as well.

        None when none was, when it is to be tried again, or when this one is older and age counts.
        """
        group = self._groups.get(info.shape)
        known = None if group is None else group.verdict
        if known is None or (self.by_age and info.order.queued_at < known.queued_at):
            return None
        return known.reason

    def revive(self, shape: Shape) -> None:
        """Lets a shape be tried again."""
        group = self._groups.get(shape)
        if group is not None and group.verdict is not None:
            group.verdict, group.called = None, False
            self._offer(group)

    def verdicts(self) -> list[tuple[Shape, Verdict]]:
        """The parked shapes, and what trying them came to."""
        found = ((shape, group.verdict) for shape, group in self._groups.items())
        return [(shape, verdict) for shape, verdict in found if verdict is not None]

    def let_in(self, admits: Callable[[str], bool]) -> None:
        """A selector or a namespace changed: those that were shut out are to be tried again.

        Args:
            admits: whether the ClusterQueue lets a namespace in.
        """
        for key in tuple(self._asides[Aside.NAMESPACE]):
            if admits(key.namespace):
                self.join(self.items[key])

    # --- reads

    def counts(self) -> Counts:
        """How many wait."""
        if not self.active:
            return Counts(0, len(self.items))
        parked = sum(map(len, self._asides.values()))
        parked += sum(len(group) for group in self._groups.values() if group.verdict is not None)
        return Counts(len(self.items) - parked, parked)

    def in_order(self) -> Iterator[Pending]:
        """All workloads that wait, wherever they are, in the order of the queue."""
        return iter(sorted(self.items.values(), key=lambda item: (item.info.order, item.info.key)))
