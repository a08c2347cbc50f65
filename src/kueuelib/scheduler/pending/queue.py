"""The Workloads that wait in one ClusterQueue, grouped by shape.

Equal shapes get equal verdicts, so only the first of each shape has to be in the heap, and a
refused shape is parked and woken as a whole.
"""

from __future__ import annotations

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.blockers import Blocker
from kueuelib.scheduler.pending.item import Pending
from kueuelib.scheduler.pending.lanes import Heap, Lane, Lanes, Usage
from kueuelib.scheduler.pending.scopes import Scope
from kueuelib.scheduler.pending.waking import Available, ShapeVerdict
from kueuelib.scheduler.pending.workload_info import Shape, WorkloadInfo
from kueuelib.scheduler.quota.queue_spec import QueueSpec
from kueuelib.scheduler.reasons import waits_alone

GroupKey = tuple[Shape, ObjectKey | None, Lane]
"""A shape, the name of a Workload that is alone in its group, and a LocalQueue if age counts,
because the oldest one of each group must come first.
"""


class Group(Lanes):
    """Workloads that wait in one ClusterQueue, and are parked and woken together.

    Attributes:
        key: their common key.
        members: the Workloads.
        verdict: the result of a try, while they are parked; otherwise None.
        has_turn: whether their first ones are in the heap, possibly for a turn while they are
            parked.
        untold: those without a report so far.
        told: the reported reasons that no change of usage ends.
    """

    def __init__(self, key: GroupKey) -> None:
        self.key = key
        self.members: dict[ObjectKey, Pending] = {}
        super().__init__(self.members, parked=True)
        self.verdict: ShapeVerdict | None = None
        self.has_turn = True
        self.untold: dict[ObjectKey, None] = {}
        self.told: dict[tuple[str, str], tuple[Blocker, ...]] = {}


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
        self.items: dict[ObjectKey, Pending] = {}
        self.in_flight: ObjectKey | None = None
        self.heap = Heap(self.items, usage)
        self.groups: dict[GroupKey, Group] = {}
        self.promised = 0
        self._available = available

    @property
    def can_be_overtaken(self) -> bool:
        """Whether another Workload could get ahead of a head that others leave for."""
        return not self.spec.strict or (self.spec.by_usage and self.in_lanes)

    def put(
        self, item: Pending, verdict: ShapeVerdict | None = None, *, alone: bool = False
    ) -> Group:
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
            group = self.groups[place] = Group(place)
        first = group.first(item.lane) if by_age else None
        if verdict is None:
            if first is not None and item.info.order.queued_at < first.info.order.queued_at:
                self.unpark(group)
        elif first is None or item.info.order.queued_at <= first.info.order.queued_at:
            group.verdict, group.has_turn = verdict, False
        self.items[key] = group.members[key] = item
        self.scope.waiting[self.name] = self
        item.group = group
        group.push(item)
        if item.reason is None:
            group.untold[key] = None
        if group.has_turn and group.first(item.lane) is item:
            self.heap.push(item)
        return group

    def take_out(self, key: ObjectKey) -> None:
        """Removes a Workload wherever it is, if it is here."""
        item = self.items.pop(key, None)
        if item is not None:
            if item.group is None:
                self.in_flight = None
            else:
                self._leave_group(item, item.group)
            if not self.items:
                del self.scope.waiting[self.name]

    def _leave_group(self, item: Pending, group: Group) -> None:
        item.group = None
        del group.members[item.info.key]
        group.untold.pop(item.info.key, None)
        self.heap.drop(item)
        if not group.members:
            del self.groups[group.key]
            return
        group.drop(item)
        if group.has_turn and (first := group.first(item.lane)) is not None:
            self.heap.push(first)

    def use_slot(self) -> Pending | None:
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

    def _is_to_try(self, group: Group) -> bool:
        news, verdict = self.scope.news, group.verdict
        if verdict is None:
            return group.has_turn
        return verdict.is_due_in_turn(news, self.spec, self._available)

    def _keeps_quota(self, group: Group) -> bool:
        return group.verdict is None or group.verdict.keeps_quota(self.spec, self._available)

    def _give_turn(self, group: Group) -> None:
        group.has_turn = True
        for item in group.firsts():
            self.heap.push(item)

    def parked(self) -> list[Group]:
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

    def unpark(self, group: Group) -> None:
        """Returns a shape to the heap."""
        if group.verdict is not None:
            group.verdict = None
            self._give_turn(group)

    def is_doubtful(self, group: Group) -> bool:
        """Whether the verdict of a parked group may not hold at rest."""
        return group.verdict is not None and group.verdict.is_doubtful(self.scope.news, self.spec)
