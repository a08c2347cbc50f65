"""The pending workloads of one ClusterQueue, workloads of equal shape kept together.

Equal shapes get equal verdicts, so only the first of each shape has to be in the heap, and a shape
that was tried in vain is parked and woken as a whole. The heads come out in the same order as if
every workload were in the heap on its own (spec/scheduling 3.2, 9.3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from heapq import heapify, heappop, heappush

import attrs

from kueuelib.api.kueue import ANY, NEVER
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.amounts import FlavorResource
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.pending import Aside, Counts, Pending, Place
from kueuelib.scheduler.reasons import Reason
from kueuelib.scheduler.shapes import (
    OPEN,
    STALE_KEPT,
    Asks,
    Passing,
    ShapeGroup,
    Verdict,
    what_is_asked,
)
from kueuelib.scheduler.workload_info import Shape, WorkloadInfo


@attrs.frozen
class Borrowed:
    """A ClusterQueue was charged, and uses more than its own quota.

    Attributes:
        by: the ClusterQueue.
        pairs: what it borrows; None: it may lose workloads whatever others ask for.
        lowest: the lowest priority that holds quota there.
        cycle: the cycle after which it was charged.
    """

    by: str
    pairs: frozenset[FlavorResource] | None
    lowest: int
    cycle: int


class PendingQueue:
    """What waits in one ClusterQueue; every workload is in one place.

    Attributes:
        name: the ClusterQueue.
        strict: whether its strategy is StrictFIFO.
        active: whether it offers heads.
        by_age: whether a verdict depends on the age of a workload: the older one has more victims
            (`LowerOrNewerEqualPriority`).
        preempts: whether its workloads may preempt anybody at all.
        reclaims: from whom its workloads may reclaim what the cohort lent (`reclaimWithinCohort`).
        pairs: the flavors and resources that it has quota of.
        groups: how many resource groups it has.
        most_flavors: how many flavors the largest of them has.
        items: all workloads that wait here.
        in_flight: the one that is being tried.
        sticky: the one for which others were told to leave last; it stays first until it leaves
            the queue, so that nothing overtakes it and takes what becomes free.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.strict = False
        self.active = True
        self.by_age = False
        self.preempts = False
        self.reclaims: str = NEVER
        self.pairs: Collection[FlavorResource] = ()
        self.groups = 0
        self.most_flavors = 0
        self.items: dict[ObjectKey, Pending] = {}
        self.in_flight: ObjectKey | None = None
        self.sticky: ObjectKey | None = None
        self._turns = 0
        self._heap: list[tuple[bool, QueueOrder, ObjectKey]] = []
        self._groups: dict[Shape, ShapeGroup] = {}
        self._verdicts: dict[Shape, Verdict] = {}
        self._open: dict[Shape, None] = {}
        self._passing = Passing()
        self._asides: dict[Aside, dict[ObjectKey, None]] = {aside: {} for aside in Aside}

    # --- in and out

    def join(self, item: Pending) -> bool:
        """Lets a workload wait with others of its shape; whether it is to be tried."""
        if self.hopeless(item.info) is None and item.info.shape in self._verdicts:
            self.go_alone(item)
            return True
        self._settle_in(item)
        group = self._groups.get(item.info.shape)
        if group is None:
            group = self._groups[item.info.shape] = ShapeGroup(
                active=item.info.shape not in self._verdicts
            )
        group.join(item)
        item.group = group
        if group.active:
            self._offer(group)
        return group.active

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
        group, key = item.group, item.info.key
        assert group is not None
        item.group = None
        group.leave(key)
        if not group:
            del self._groups[item.info.shape]
        elif group.active:
            self._offer(group)

    def _offer(self, group: ShapeGroup) -> None:
        first = group.first()
        if first is not None:
            self._push(*first)
        sticky = self.items.get(self.sticky) if self.sticky is not None else None
        if sticky is not None and sticky.group is group:
            self._push(sticky.info.order, sticky.info.key)

    @property
    def offers(self) -> bool:
        """Whether `pop` is worth a try."""
        return bool(self._heap) and self.active

    def first(self) -> Pending | None:
        """Who comes first of those that are to be tried; None when there is nobody."""
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
        if item is None or item.info.order != order or item.place is not Place.HEAP:
            return None
        return None if waits_its_turn is (key == self.sticky) else item

    def pop(self) -> Pending | None:
        """Takes the head in flight; None when there is none or one is under way already."""
        item = self.first() if self.in_flight is None else None
        if item is None:
            return None
        heappop(self._heap)
        if item.group is not None:
            self._leave_group(item)
        self._turns += 1
        item.overtaken = self._turns > item.turn + 1
        item.turn = self._turns
        item.in_flight, item.changed = True, False
        self.in_flight = item.info.key
        return item

    # --- turns that pass

    @property
    def has_passing(self) -> bool:
        """Whether shapes wait for their turn only to let it pass."""
        return bool(self._passing)

    def let_pass(self) -> bool:
        """Lets the turn of this ClusterQueue pass if it belongs to a shape that nothing can help.

        Returns:
            Whether it did: no head is to be popped in this cycle.
        """
        first = self.first()
        if first is not None and first.info.key == self.sticky:
            return False
        if not self._passing.take(None if first is None else first.info.order):
            return False
        self._turns += 1
        return True

    def forgo(self) -> None:
        """Nobody is there for whom it matters who has the turn."""
        self._passing.clear()

    # --- parking and waking

    def give_up(self, item: Pending, reason: Reason, began: int) -> tuple[ObjectKey, ...]:
        """Parks a workload and all of its shape, also those still to come, until something moves.

        Where age counts, older ones are to be tried themselves.

        Args:
            item: the workload.
            reason: why.
            began: the cycle in which its pass over the flavors began, or `OPEN`.

        Returns:
            Those about which nothing was told yet.
        """
        info = item.info
        group, known = self._groups.get(info.shape), self._verdicts.get(info.shape)
        if self.by_age and group is not None and group.active:
            first = group.first()
            if first is not None and first[0].queued_at < info.order.queued_at:
                self.set_aside(item, Aside.MOVE)
                return ()
        queued_at = info.order.queued_at
        if known is not None:
            queued_at = min(queued_at, known.queued_at)
        if began == OPEN:
            self._open[info.shape] = None
        else:
            self._open.pop(info.shape, None)
        self._verdicts[info.shape] = Verdict(reason, queued_at, self.asks(info), began)
        if group is not None:
            group.active = False
        self.join(item)
        if group is None:
            return ()
        untold = tuple(group.untold)
        group.untold.clear()
        for key in untold:
            self.items[key].reason = reason
        return untold

    def hopeless(self, info: WorkloadInfo) -> Reason | None:
        """Why one of its shape was tried in vain, which holds for this workload as well.

        None when none was, when something moved since, or when this one is older and age counts.
        """
        known = self._verdicts.get(info.shape)
        if known is None or (self.by_age and info.order.queued_at < known.queued_at):
            return None
        return known.reason

    def revive(self, shape: Shape) -> None:
        """Lets a shape be tried again."""
        self._verdicts.pop(shape, None)
        self._open.pop(shape, None)
        self._passing.drop(shape)
        group = self._groups.get(shape)
        if group is not None and not group.active:
            group.active = True
            self._offer(group)

    def move(
        self,
        freed: Collection[FlavorResource] | None,
        available: Callable[[str, FlavorResource], int],
    ) -> None:
        """Something moved: everything that it can help is to be tried again.

        The other shapes stay parked, but their turn comes once, and passes: who is behind them in
        the queue does not get ahead of other ClusterQueues because of what can't help the queue.

        Args:
            freed: what became free; None when something else moved, which may help all.
            available: what a ClusterQueue could use now of a flavor and resource.
        """
        room = None if freed is None else self._room(freed, available)
        for shape, known in tuple(self._verdicts.items()):
            if room is None or self._is_enough(room, known.asks):
                self.revive(shape)
            elif (group := self._groups.get(shape)) and (first := group.first()):
                self._passing.put(shape, first[0])
        self._rejoin()

    def _room(
        self,
        freed: Collection[FlavorResource],
        available: Callable[[str, FlavorResource], int],
    ) -> dict[str, int]:
        """The most that can be used now in one flavor, for each resource that became free."""
        room: dict[str, int] = {}
        for pair in freed:
            if pair in self.pairs:
                amount = available(self.name, pair)
                room[pair.resource] = max(amount, room.get(pair.resource, 0))
        return room

    def _is_enough(self, room: Mapping[str, int], asks: Asks) -> bool:
        """Whether what became free may be enough; where preemption may follow, a little is."""
        return any(
            self.preempts or amount >= asks.least[resource]
            for resource, amount in room.items()
            if resource in asks.least
        )

    @property
    def has_verdicts(self) -> bool:
        """Whether any shape is parked."""
        return bool(self._verdicts)

    def doubtful(self, may_differ: Callable[[Asks, int], bool]) -> list[Shape]:
        """The parked shapes whose verdict is not the last word.

        Args:
            may_differ: whether what is asked for may get more than in a pass that began in a cycle.
        """
        if self.reclaims == NEVER and self.most_flavors <= 1:
            return list(self._open)
        return [
            shape
            for shape, verdict in self._verdicts.items()
            if may_differ(verdict.asks, verdict.began)
        ]

    def asks(self, info: WorkloadInfo) -> Asks:
        """What a workload asks for here."""
        return what_is_asked(info, groups=self.groups, choosy=self.most_flavors > 1)

    def verdict(self, shape: Shape) -> Verdict | None:
        """What came of trying a shape in vain; None when it was not, or is to be tried again."""
        return self._verdicts.get(shape)

    def may_reclaim(self, borrowed: Borrowed, asks: Asks) -> bool:
        """Whether victims may be found in another ClusterQueue that borrows."""
        if self.reclaims == NEVER or borrowed.by == self.name:
            return False
        if self.reclaims != ANY and asks.priority <= borrowed.lowest:
            return False
        if borrowed.pairs is None:
            return True
        return not self._resources_in(borrowed.pairs).isdisjoint(asks.least)

    def _resources_in(self, pairs: Collection[FlavorResource]) -> set[str]:
        return {pair.resource for pair in pairs if pair in self.pairs}

    def _rejoin(self) -> None:
        for key in tuple(self._asides[Aside.MOVE]):
            self.join(self.items[key])

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
        parked = sum(len(found) for found in self._asides.values())
        parked += sum(len(group) for group in self._groups.values() if not group.active)
        return Counts(len(self.items) - parked, parked)

    def in_order(self) -> Iterator[Pending]:
        """All workloads that wait, wherever they are, in the order of the queue."""
        return iter(sorted(self.items.values(), key=lambda item: (item.info.order, item.info.key)))
