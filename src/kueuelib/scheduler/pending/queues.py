"""Places Workloads that arrive, change or were refused, and decides when to report them.

A pending Workload is in the heap of its ClusterQueue, parked as inadmissible, or in flight (a head
of the running cycle). A parked one is also in the heap while it has a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.object_reasons import SHUT_OUT, BackingOff, NamespaceUnknown
from kueuelib.scheduler.pending.queue import (
    PendingPlace,
    PendingQueue,
    PendingWorkload,
    Ranking,
    Root,
    Scope,
    Usage,
)
from kueuelib.scheduler.pending.tries import Promise, Requeue, TriedFlavors
from kueuelib.scheduler.pending.waking import Available, ShapeVerdict, wants_room
from kueuelib.scheduler.pending.workload_info import WorkloadInfo, has_verdict, is_outdated
from kueuelib.scheduler.quota.amounts import Amounts
from kueuelib.scheduler.quota.queue_spec import QueueSpec
from kueuelib.scheduler.reasons import BehindHead, NoFlavors, Reason

if TYPE_CHECKING:
    from kueuelib.scheduler.pending.queue import PendingGroup

MOST_HEADS = 100
"""ClusterQueues that take part in one cycle, unless a single tree of cohorts has more that wait. So
a change that concerns all of them does not hold other tasks up for long.
"""


# ---- decides when to report Workloads that do not get their own cycle ----------------------------
# A workload behind a blocked head is never a head itself, so no cycle says why it waits. And when a
# stopped ClusterQueue resumes, its workloads still say that it is stopped. After a while at rest
# they are reported anyway, at a limited rate and only when no cycle is due, so that the writes
# never delay an admission. A workload that joins refused ones is reported at once.

PATIENCE = 1.0
"""Seconds that a workload waits for a cycle to report its verdict."""
AT_ONCE = 20
"""How many workloads are reported at once."""
PAUSE = 0.1
"""Seconds between two such groups."""


class UnreportedWorkloads:
    """The workloads without a report, oldest first. Instants are in seconds.

    Args:
        find: the workload of a name if it waits.
    """

    def __init__(self, find: Callable[[ObjectKey], PendingWorkload | None]) -> None:
        self._find = find
        self._since: dict[ObjectKey, float] = {}
        self._over: dict[ObjectKey, None] = {}
        self._not_before = float("-inf")

    def __len__(self) -> int:
        return len(self._since)

    def add(self, key: ObjectKey, now: float) -> None:
        """The report about a workload no longer holds."""
        self._since.setdefault(key, now)

    def refused(self, group: PendingGroup, now: float) -> None:
        """Reports the verdict of a group that was just parked.

        Those without a report are reported at once. If there is a new reason that no change of
        usage removes, the others are reported at rest.
        """
        reason = None if group.verdict is None else group.verdict.reason
        if isinstance(reason, NoFlavors):
            lasting = reason.lasting
            if any(
                group.reported.get(place, verdict) != verdict for place, verdict in lasting.items()
            ):
                for key, item in group.members.items():
                    if item.reason is not None and item.reason is not reason:
                        item.reason = reason
                        self.add(key, now)
            group.reported.update(lasting)
        self.report(group)

    def report(self, group: PendingGroup) -> None:
        """Reports the verdict of a parked group at once, for Workloads without a report."""
        if group.verdict is None:
            return
        for key in group.unreported:
            group.members[key].reason = group.verdict.reason
            self._since.pop(key, None)
            self._over[key] = None
        group.unreported.clear()

    def forget(self, key: ObjectKey) -> None:
        """A workload left its queue, or its verdict was reported."""
        self._since.pop(key, None)

    def deadline(self) -> float | None:
        """When a report becomes due by time alone, or None."""
        first = next(iter(self._since.values()), None)
        return None if first is None else max(first + PATIENCE, self._not_before)

    @property
    def is_over(self) -> bool:
        """Whether any report is due."""
        return bool(self._over)

    def end(self, now: float) -> bool:
        """Ends the silence about those that waited long enough, a limited number at a time.

        Those that a cycle will report are removed as well.

        Args:
            now: the present.

        Returns:
            Whether any report is due.
        """
        deadline = self.deadline()
        if deadline is None or deadline > now:
            return self.is_over
        count = 0
        for key, since in tuple(self._since.items()):
            if since + PATIENCE > now or count == AT_ONCE:
                break
            del self._since[key]
            if self._reason(key) is not None:
                count += 1
                self._over[key] = None
        if count:
            self._not_before = now + PAUSE
        return self.is_over

    def take(self) -> Iterator[tuple[PendingWorkload, Reason]]:
        """The workloads to report, each with the reason; they are removed.

        They are parked because their shape was refused, or wait behind a blocked head.
        """
        taken = tuple(self._over)
        self._over.clear()
        for key in taken:
            item = self._find(key)
            reason = None if item is None else reason_to_report(item)
            if item is not None and reason is not None:
                yield item, reason

    def _reason(self, key: ObjectKey) -> Reason | None:
        item = self._find(key)
        return None if item is None else reason_to_report(item)


def reason_to_report(item: PendingWorkload) -> Reason | None:
    """Why a workload waits at rest; None if a cycle will try it."""
    if not item.queue.active:
        return None
    if item.place is PendingPlace.INADMISSIBLE or item.is_promised or says_otherwise(item):
        return item.reason
    if has_verdict(item.info.workload):
        return None  # from before a restart, perhaps: better than the name of a head
    first = item.queue.heap.head() if item.place is PendingPlace.HEAP else None
    if first is None or first is item:
        return None
    usage = item.queue.heap.usage
    used_less = first.lane if usage(first) < usage(item) else None
    return BehindHead(first.info.key, item.queue.name, used_less)


def says_otherwise(item: PendingWorkload) -> bool:
    """Whether the object contradicts the last verdict.

    This happens if an older report was stored late: its answer was lost, and the newer one was not
    written because it seemed to be stored already.
    """
    reason = item.reason
    if reason is None or isinstance(reason, NamespaceUnknown):
        return False
    has_turn = item.place is PendingPlace.HEAP and not item.is_promised
    tried = not has_turn or item.queue.heap.head() is item
    return is_outdated(item.info.workload, reason, tried=tried)


# --------------------------------------------------------------------------------------------------


class Queues:
    """The pending Workloads of all ClusterQueues. Times are seconds since the epoch.

    Args:
        admits: whether a ClusterQueue accepts a namespace.
        available: how much of a flavor and resource a ClusterQueue could use now.
        usage: the past usage of LocalQueues; None if it does not count.
        protects_nominal: whether nominal quota is kept for waiting Workloads of its owner.

    Attributes:
        instant: the present instant, a counter of events and cycles.
        cluster_queues: the queue of each ClusterQueue. Do not change it.
        scopes: groups of ClusterQueues that influence each other.
        due: the scopes that get a cycle.
        unsettled: those that had a cycle and may begin a round at rest.
        promised: the Workloads whose victims are leaving. They get no turn: every cycle of their
            scope looks at them.
        silence: the Workloads to report without their own cycle.
    """

    def __init__(
        self,
        admits: Callable[[str, str], bool],
        available: Available,
        usage: Usage | None = None,
        *,
        protects_nominal: bool = False,
    ) -> None:
        self._protects_nominal = protects_nominal
        self._admits = admits
        self._available = available
        self._usage = usage
        self.cluster_queues: dict[str, PendingQueue] = {}
        self._items: dict[ObjectKey, PendingWorkload] = {}
        self._back_offs: Ranking[tuple[float, ObjectKey]] = Ranking()
        self.instant = 0
        self.scopes: dict[Root, Scope] = {}
        self.due: dict[Root, Scope] = {}
        self._trying: dict[Root, Scope] = {}
        self.unsettled: dict[Root, Scope] = {}
        self.promised: dict[ObjectKey, PendingWorkload] = {}
        self.silence = UnreportedWorkloads(self.get)

    # --- ClusterQueues

    def set_queue(self, spec: QueueSpec, root: Root, *, active: bool, now: float) -> None:
        """Takes over a new ClusterQueue, or a change of it or of what it depends on.

        When it becomes `active` again, its waiting Workloads are reported again, because the last
        report was about its inactivity.
        """
        scope = self.scopes.setdefault(root, Scope(root, self))
        queue = self.cluster_queues.get(spec.name)
        if queue is None:
            queue = PendingQueue(spec, scope, self._available, self._usage)
            self.cluster_queues[spec.name] = queue
        scope.add(queue)
        if active and not queue.active:
            for key in queue.items:
                self.silence.add(key, now)
        queue.spec, queue.active = spec, active
        if not queue.can_be_overtaken:
            queue.heap.sticky = None
        self.let_in(spec.name, now=now)
        scope.note_changed()
        for key in [key for key, item in self.promised.items() if item.queue.scope is scope]:
            self.break_promise(key)

    def remove_queue(self, name: str) -> tuple[ObjectKey, ...]:
        """Forgets an existing ClusterQueue; returns the Workloads that waited in it."""
        queue = self.cluster_queues.pop(name)
        keys = tuple(queue.items)
        for key in keys:
            self.take_out(key)
        queue.scope.remove(queue)
        return keys

    # --- Workloads

    def get(self, key: ObjectKey) -> PendingWorkload | None:
        """The Workload if it waits in a ClusterQueue."""
        return self._items.get(key)

    def push(self, name: str, info: WorkloadInfo, *, now: float) -> None:
        """Takes over a new or changed Workload of a ClusterQueue.

        A change that cannot affect the verdict leaves it where it is, for example the status patch
        with its reason. If that reason differs from the verdict, it is reported again. Any other
        change makes it a new Workload, even during a try.
        """
        queue, known = self.cluster_queues[name], self._items.get(info.key)
        if known is not None:
            if known.queue is queue and known.info.asks_the_same(info):
                known.info = info
                if known.reason is None or says_otherwise(known):
                    self.silence.add(info.key, now)
                return
            known.begin_anew()
            self.take_out(info.key)
        item = self._items[info.key] = PendingWorkload(info, queue)
        self._enter(item, now)

    def _enter(self, item: PendingWorkload, now: float) -> None:
        """Adds a Workload to those of its shape, as soon as its back-off is over."""
        key, end = item.info.key, item.info.not_before
        item.search = None
        item.back_off = end if end is not None and now < end else None
        if item.back_off is not None:
            item.queue.put(
                item, ShapeVerdict(item.info, BackingOff(item.back_off), item.info.least(), False)
            )
            self._back_offs.push((item.back_off, key), self._find_back_off)
            return
        group = item.queue.put(item)
        if group.verdict is None:
            item.queue.scope.touch()
            if item.reason is None:
                self.silence.add(key, now)
        self.silence.report(group)

    def take_out(self, key: ObjectKey) -> PendingWorkload | None:
        """Removes a Workload; None if it did not wait."""
        item = self._items.pop(key, None)
        if item is not None:
            self.silence.forget(key)
            item.queue.scope.touch()
            spec = item.queue.spec
            if self._protects_nominal and spec.cohort:
                # What was kept for it is free, unless it takes just that.
                item.queue.scope.note_freed(tuple(spec.limits), from_outside=False)
            if key in self.promised:
                self._forget_promise(item)
            if item.queue.heap.sticky == key:
                item.queue.heap.sticky = None
            item.queue.take_out(key)
        return item

    def requeue(
        self,
        key: ObjectKey,
        why: Requeue,
        reason: Reason,
        progress: TriedFlavors = (),
        *,
        now: float,
        promise: Promise | None = None,
    ) -> None:
        """Requeues a head after its cycle, if it still exists.

        It returns to the heap if, according to `progress`, its pass over the flavors is not over,
        or if quota changed during the try. Otherwise the strategy of its ClusterQueue and `why`
        decide. A reason about flavors then parks all Workloads of its shape.
        """
        item = self._items.get(key)
        if item is None or not item.in_flight or item.search is None:
            return
        queue, scope, search = item.queue, item.queue.scope, item.search
        goes_on, lost = search.goes_on(progress), why is Requeue.FAILED_AFTER_NOMINATION
        room = wants_room(item.info, reason)
        if room and scope.news.roomier > item.tried:
            scope.touch()
        self.silence.forget(key)
        item.reason, item.search = reason, None
        if why is not Requeue.PENDING_PREEMPTION:
            item.promise = None
        if goes_on and search.has_news:
            item.search = search.after(progress, lost=lost)
            scope.make_due()
        elif why is Requeue.PENDING_PREEMPTION and not goes_on:
            item.promise = promise or item.promise
            if promise is not None and promise.parallel:
                queue.put(item, alone=True).has_turn = False
                self.promised[key] = item
                queue.promised += 1
                item.looked = scope.touch()
                return
            if queue.can_be_overtaken:
                queue.heap.sticky = key
        elif scope.news.changed_or_freed_since(item.tried, room=room) and not goes_on:
            self._enter(item, now)
            return
        else:
            freed = scope.news.changed_or_freed_since(search.began, room=room)
            complete = not (goes_on or lost or search.lost or freed)
            least = item.info.least()
            verdict = ShapeVerdict(
                item.info, reason, least, room, search.began, item.tried, complete
            )
            if not (goes_on or lost or (why is Requeue.GENERIC and queue.spec.strict)):
                scope.touch()
                if queue.heap.sticky == key:
                    queue.heap.sticky = None
                self.silence.refused(queue.put(item, verdict), now)
                return
            scope.doubtful_head |= verdict.is_doubtful(scope.news, queue.spec)
        queue.put(item, alone=True)

    # --- promises

    def due_promises(self) -> list[PendingWorkload]:
        """The Workloads whose victims are leaving, in the scopes of the cycle that begins."""
        return [item for item in self.promised.values() if item.queue.scope.root in self._trying]

    def redeem(self, key: ObjectKey, usage: Amounts) -> None:
        """Notes that a Workload gets quota; others may want what else it was promised, if it was.

        Args:
            key: the Workload.
            usage: what it gets.
        """
        item = self.promised.pop(key, None)
        if item is None or item.promise is None:
            return
        item.queue.promised -= 1
        rest = [pair for pair, amount in item.promise.usage.items() if amount > usage.get(pair, 0)]
        if rest:
            item.queue.scope.note_freed(rest, from_outside=False)

    def break_promise(self, key: ObjectKey) -> None:
        """Returns a Workload to the heap, if it was promised any room."""
        item = self.promised.get(key)
        if item is not None and item.group is not None:
            self._forget_promise(item)
            item.group.has_turn = True
            item.queue.heap.push(item)

    def _forget_promise(self, item: PendingWorkload) -> None:
        """Gives up the room that a Workload was promised; others may want it."""
        self.redeem(item.info.key, {})
        item.promise = None

    def retry(self, key: ObjectKey, *, now: float) -> None:
        """Requeues a head for an immediate retry, because its verdict is void."""
        item = self._items.get(key)
        if item is not None and item.in_flight:
            self._enter(item, now)

    # --- waking

    def blocked_by_usage(self) -> list[PendingQueue]:
        """StrictFIFO ClusterQueues with Workloads in which past usage may change the head."""
        queues = [queue for queue in self.cluster_queues.values() if queue.items]
        return [queue for queue in queues if queue.spec.strict and queue.can_be_overtaken]

    def let_in(self, name: str, *, now: float, namespace: str | None = None) -> None:
        """Handles a change of the selector, or of labels of a `namespace`, that may admit or
        exclude Workloads.
        """
        queue = self.cluster_queues[name]
        for verdict in [group.verdict for group in queue.groups.values() if group.verdict]:
            key = verdict.info.key
            if isinstance(verdict.reason, SHUT_OUT) and self._admits(name, key.namespace):
                self._enter(self._items[key], now)
        if queue.in_flight is not None and queue.in_flight.namespace == namespace:
            self.retry(queue.in_flight, now=now)
        queue.scope.touch()

    def _find_back_off(self, entry: tuple[float, ObjectKey]) -> PendingWorkload | None:
        item = self._items.get(entry[1])
        return item if item is not None and item.back_off == entry[0] else None

    def next_deadline(self) -> float | None:
        """When the next back-off ends or the next report is due, or None."""
        item = self._back_offs.first(self._find_back_off)
        deadlines = (None if item is None else item.back_off, self.silence.deadline())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    # --- cycles

    def has_work(self, now: float) -> bool:
        """Whether a cycle could find a head, or the report of a verdict is due.

        Before that, expired back-offs end, and scopes at rest begin a round.
        """
        while (item := self._back_offs.first(self._find_back_off)) is not None:
            if item.back_off is None or item.back_off > now:
                break
            self._enter(item, now)
        for root in [root for root in self.unsettled if root not in self.due]:
            self.unsettled.pop(root).begin_round()
        return self.silence.is_over or bool(self.due) or self.silence.end(now)

    def begin_cycle(self) -> None:
        """Chooses the scopes of the next cycle: those that are due for longest.

        Nothing in one scope depends on another, so a cycle need not try all at once.
        """
        number = 0
        for root, scope in self.due.items():
            number += len(scope.waiting)
            if self._trying and number > MOST_HEADS:
                break
            self._trying[root] = scope

    def pop_heads(self) -> tuple[PendingWorkload, ...] | None:
        """The heads of the cycle that begins, one per ClusterQueue; None if there is nothing to do.

        The list may be empty in a cycle that only skips turns or reports known verdicts. Scopes
        that are due take part with all their queues: a blocked head of a StrictFIFO queue keeps
        others of its cohort from borrowing its quota.
        """
        due, slots = self._trying, []
        self._trying = {}
        self.due = {root: scope for root, scope in self.due.items() if root not in due}
        self.unsettled |= due
        self.instant += 1
        for scope in due.values():
            slots += [queue.use_slot() for queue in scope.waiting.values()]
            scope.turns_owed = False
        heads = [head for head in slots if head is not None]
        if not heads and self.due.keys().isdisjoint(due) and not self.silence.is_over:
            return None
        return tuple(sorted(heads, key=attrgetter("queue.name")))
