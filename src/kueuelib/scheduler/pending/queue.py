"""The pending workloads of one ClusterQueue, workloads of equal shape kept together.

Equal shapes get equal verdicts, so only the first of each shape has to be in the heap, and a shape
that was refused is parked and woken as a whole. The heads come out in the same order as if every
workload were in the heap on its own (spec/scheduling 3.2, 9.3): first the one for which others
leave, then the LocalQueues by past usage where that counts (KEP-4136), then priority and age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kueuelib.api.kueue import LOWER_OR_NEWER_EQUAL_PRIORITY
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.blockers import Blocker
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.pending.item import Counts, Pass, Pending, Place
from kueuelib.scheduler.pending.lanes import Lane, Lanes
from kueuelib.scheduler.pending.scopes import Scope
from kueuelib.scheduler.pending.waking import Available, Verdict
from kueuelib.scheduler.pending.workload_info import Shape
from kueuelib.scheduler.quota.decay import UNUSED, Value
from kueuelib.scheduler.quota.queue_spec import QueueSpec
from kueuelib.scheduler.reasons import NoFlavors, waits_alone

Usage = Callable[[ObjectKey], Value]
"""The past usage of a LocalQueue, now."""

GroupKey = tuple[Shape, ObjectKey | None, Lane]
"""A shape, a workload of it that is parked on its own, and where age counts a LocalQueue: in each
group the oldest one must come first."""


class Slot(NamedTuple):
    """What a ClusterQueue did with its slot of one cycle.

    Attributes:
        head: the workload that is tried, None if none is.
        needs_cycle: whether a turn passed before somebody who is to be tried in another cycle.
    """

    head: Pending | None = None
    needs_cycle: bool = False


class Group:
    """Workloads that wait in one ClusterQueue, and are parked and woken together.

    Attributes:
        key: what they have in common.
        members: the workloads.
        verdict: what a try came to, while they are parked; None while they are to be tried.
        awaits_turn: whether their turn is to come although they are parked.
        untold: those about which nothing was reported yet, or what quotas do not say any more.
    """

    def __init__(self, key: GroupKey) -> None:
        self.key = key
        self.members: dict[ObjectKey, Pending] = {}
        self.verdict: Verdict | None = None
        self.awaits_turn = False
        self.untold: dict[ObjectKey, None] = {}
        self._lasting: dict[tuple[str, str], tuple[Blocker, ...]] = {}
        self._lanes = Lanes(self._find)

    @property
    def has_turn(self) -> bool:
        """Whether the first one is to have a turn."""
        return self.verdict is None or self.awaits_turn

    def join(self, item: Pending) -> None:
        """Adds a workload."""
        key = item.info.key
        self.members[key] = item
        self._lanes.push((item.info.order, key, item.lane))
        if item.reason is None:
            self.untold[key] = None

    def leave(self, key: ObjectKey) -> None:
        """Takes a workload out."""
        del self.members[key]
        self.untold.pop(key, None)

    def refuse(self, verdict: Verdict) -> None:
        """Parks all of them.

        If what no usage changes is another than before, what was reported about them is wrong.
        """
        self.verdict, self.awaits_turn = verdict, False
        reason = verdict.reason
        found = reason.lasting if isinstance(reason, NoFlavors) else {}
        if any(self._lasting.get(place, now) != now for place, now in found.items()):
            self.untold.update(dict.fromkeys(self.members))
        self._lasting.update(found)

    def take_untold(self) -> tuple[Pending, ...]:
        """Those about which something is to be reported, which from now on is known."""
        untold = tuple(self.members[key] for key in self.untold)
        self.untold.clear()
        return untold

    def first(self) -> Pending | None:
        """The workload that comes first by priority and age, None when the group is empty."""
        return min(self.firsts(), key=lambda item: (item.info.order, item.info.key), default=None)

    def firsts(self) -> list[Pending]:
        """The first workload of every lane."""
        return self._lanes.firsts()

    def first_beside(self, item: Pending) -> Pending | None:
        """The first workload of the lane of one that is or was here, None when there is none."""
        return self._lanes.first(item.lane)

    def _find(self, entry: tuple[QueueOrder, ObjectKey, Lane]) -> Pending | None:
        order, key, lane = entry
        item = self.members.get(key)
        if item is None or item.info.order != order or item.lane != lane:
            return None
        return item


class PendingQueue:
    """What waits in one ClusterQueue; every workload is in one place.

    Args:
        available: what a ClusterQueue could use now of a flavor and resource.
        usage: the past usage of LocalQueues; None where it does not count.

    Attributes:
        spec: the ClusterQueue.
        in_lanes: whether LocalQueues are kept apart.
        scope: what happened to it, and to those that influence it.
        active: whether it offers heads.
        items: all workloads that wait here.
        asides: those of them that wait for something else than quota.
        in_flight: the one that is being tried.
        sticky: the one for which others were told to leave last; it stays first until it leaves
            the queue, so that nothing overtakes it and takes what becomes free.
    """

    def __init__(
        self, spec: QueueSpec, scope: Scope, available: Available, usage: Usage | None = None
    ) -> None:
        self.in_lanes = usage is not None
        self._usage = usage
        self.spec = spec
        self.scope = scope
        self.active = True
        self.items: dict[ObjectKey, Pending] = {}
        self.asides: dict[ObjectKey, None] = {}
        self.in_flight: ObjectKey | None = None
        self.sticky: ObjectKey | None = None
        self._last_in_slot: ObjectKey | None = None
        self._available = available
        self._lanes = Lanes(self._find)
        self._groups: dict[GroupKey, Group] = {}

    @property
    def name(self) -> str:
        """The ClusterQueue."""
        return self.spec.name

    # --- in and out

    def join(self, item: Pending) -> Group:
        """Lets a workload wait with others of its shape, in the heap or parked.

        Where age counts, an older one has more victims: their verdict does not hold for it.
        """
        self.take_out(item.info.key)
        group = self._group(item)
        if self._is_older(item, group.first()):
            self.unpark(group)
        return self._add(item, group)

    def park(self, item: Pending, verdict: Verdict) -> Group:
        """Parks a workload and all of its shape, also those still to come.

        Where age counts and one of them is older, this one stays with them as they are.
        """
        self.take_out(item.info.key)
        group = self._group(item, alone=waits_alone(verdict.reason))
        first = group.first()
        if first is None or not self._is_older(first, item):
            group.refuse(verdict)
        return self._add(item, group)

    def _group(self, item: Pending, *, alone: bool = False) -> Group:
        lane = item.lane if self._by_age else None
        key = item.info.shape, item.info.key if alone else None, lane
        return self._groups.setdefault(key, Group(key))

    def _is_older(self, item: Pending, other: Pending | None) -> bool:
        if other is None or not self._by_age:
            return False
        return item.info.order.queued_at < other.info.order.queued_at

    @property
    def _by_age(self) -> bool:
        return self.spec.preemption.within_cluster_queue == LOWER_OR_NEWER_EQUAL_PRIORITY

    def _add(self, item: Pending, group: Group) -> Group:
        self._settle(item)
        item.group = group
        group.join(item)
        self._offer(group, item)
        return group

    def go_alone(self, item: Pending) -> None:
        """Puts a workload into the heap on its own: its next try differs from its shape's."""
        self.take_out(item.info.key)
        self._settle(item)
        self._push(item)

    def set_aside(self, item: Pending) -> None:
        """Parks a workload on its own, until its namespace, time or a change of it wakes it."""
        self.take_out(item.info.key)
        self._settle(item)
        self.asides[item.info.key] = None

    def _settle(self, item: Pending) -> None:
        self.items[item.info.key] = item
        self.scope.waiting[self.name] = self

    def take_out(self, key: ObjectKey) -> None:
        """Removes a workload wherever it is; nothing happens when it is not here."""
        item = self.items.pop(key, None)
        if item is None:
            return
        self.asides.pop(key, None)
        if item.group is not None:
            self._leave_group(item)
        if self.in_flight == key:
            self.in_flight = None
        if not self.items:
            del self.scope.waiting[self.name]

    def _leave_group(self, item: Pending) -> None:
        group, item.group = item.group, None
        assert group is not None
        group.leave(item.info.key)
        if group.members:
            self._offer(group, item)
        else:
            del self._groups[group.key]

    # --- the heap

    def stick(self, key: ObjectKey | None) -> None:
        """Lets a workload be the first one, whatever its order; None for nobody."""
        before, self.sticky = self.sticky, key
        for changed in (before, key):
            item = self.items.get(changed) if changed is not None else None
            if item is not None:
                self._push(item)

    def _push(self, item: Pending) -> None:
        key = item.info.key
        self._lanes.push((key != self.sticky, item.info.order, key, item.lane))

    def _offer(self, group: Group, changed: Pending | None = None) -> None:
        """Puts the first ones of a group into the heap, if the group has a turn to come.

        Args:
            group: the group.
            changed: the workload that joined or left, if nothing else changed.
        """
        if not group.has_turn:
            return
        firsts = group.firsts() if changed is None else (group.first_beside(changed),)
        sticky = None if self.sticky is None else group.members.get(self.sticky)
        for item in (*firsts, sticky):
            if item is not None:
                self._push(item)

    def first(self) -> Pending | None:
        """The workload whose turn it is, or None."""
        firsts = self._lanes.firsts()
        return min(firsts, key=self._turn_of) if len(firsts) > 1 else next(iter(firsts), None)

    def _turn_of(self, item: Pending) -> tuple[bool, Value, QueueOrder, ObjectKey]:
        return item.info.key != self.sticky, *self._place_of(item)

    def _place_of(self, item: Pending) -> tuple[Value, QueueOrder, ObjectKey]:
        return self._usage_of(item), item.info.order, item.info.key

    def _usage_of(self, item: Pending) -> Value:
        return UNUSED if self._usage is None else self._usage(item.info.local_queue)

    def used_less(self, one: Pending, other: Pending) -> bool:
        """Whether the LocalQueue of one workload used less than that of another one."""
        return self._usage_of(one) < self._usage_of(other)

    @property
    def has_new_head(self) -> bool:
        """Whether another workload comes first than the one that had the last slot."""
        found = self.first()
        return found is not None and found.info.key != self._last_in_slot

    def _find(self, entry: tuple[bool, QueueOrder, ObjectKey, Lane]) -> Pending | None:
        waits_its_turn, order, key, lane = entry
        item = self.items.get(key)
        if item is None or item.info.order != order or item.lane != lane:
            return None
        if waits_its_turn is (key == self.sticky):
            return None
        if item.group is not None:
            return item if item.group.has_turn else None
        return item if item.place is Place.HEAP else None

    # --- turns

    def give_turns(self) -> None:
        """Gives everything that is parked a turn, as today's Kueue does after every change.

        Without the turns that pass, a change that cannot help a shape would let the workloads
        behind it get ahead of other ClusterQueues. Where nobody is left to try, nobody is behind.
        """
        parked = self.parked()
        if self.first() is not None or any(self._is_to_try(group) for group in parked):
            for group in parked:
                group.awaits_turn = True
                self._offer(group)

    def take_back_turns(self) -> None:
        """Lets all turns that are to come pass at once."""
        for group in self._groups.values():
            group.awaits_turn = False

    def use_slot(self, now: int) -> Slot:
        """Tries the workload whose turn it is, or lets its turn pass.

        The turn of a parked shape passes unless its verdict is due to be looked at again. When
        nobody is left to try, all turns pass at once. A head is in flight from now on.

        Args:
            now: the present instant.
        """
        item = self.first() if self.active and self.in_flight is None else None
        if item is None:
            return Slot()
        self._lanes.pop(item.lane)
        group, key = item.group, item.info.key
        is_next, self._last_in_slot = self._last_in_slot == key, key
        if group is not None:
            if not self._is_to_try(group):
                group.awaits_turn = False
                return self._pass_turn()
            self.unpark(group)
            self._leave_group(item)
        news = self.scope.news
        if item.search is not None and not is_next and news.changed_or_freed_since(item.tried):
            item.search = None
        if item.search is None:
            item.search = Pass(began=now, has_news=self.scope.touched > item.tried)
        item.tried, self.in_flight = now, key
        return Slot(item)

    def _pass_turn(self) -> Slot:
        if self._has_any_to_try:
            return Slot(needs_cycle=True)
        self.take_back_turns()
        return Slot()

    def _is_to_try(self, group: Group | None) -> bool:
        verdict = None if group is None else group.verdict
        return verdict is None or verdict.is_due_in_turn(
            self.scope.news, self.spec, self._available
        )

    @property
    def _has_any_to_try(self) -> bool:
        return any(self._is_to_try(item.group) for item in self._lanes)

    # --- what is parked

    def is_doubtful(self, group: Group) -> bool:
        """Whether a group is parked on a verdict that may not hold at rest."""
        return group.verdict is not None and group.verdict.is_doubtful(self.scope.news, self.spec)

    def unpark(self, group: Group) -> None:
        """Lets a shape be tried again."""
        if group.verdict is not None:
            group.verdict, group.awaits_turn = None, False
            self._offer(group)

    def parked(self) -> list[Group]:
        """What is parked."""
        return [group for group in self._groups.values() if group.verdict is not None]

    # --- reads

    def counts(self) -> Counts:
        """How many wait."""
        if not self.active:
            return Counts(0, len(self.items))
        parked = len(self.asides) + sum(len(group.members) for group in self.parked())
        return Counts(len(self.items) - parked, parked)

    def in_order(self) -> Iterator[Pending]:
        """All workloads that wait, wherever they are, in the order of the queue."""
        return iter(sorted(self.items.values(), key=self._place_of))
