"""What waits: every pending workload in exactly one place.

A pending workload is in the heap of its ClusterQueue, parked as inadmissible, or in flight (a head
of the cycle that runs). Nothing is tried twice without a reason: a scope (a tree of cohorts, or a
ClusterQueue without one) gets a cycle only when something in it changed since its last one
(spec/scheduling 3, 4.7, 9.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from heapq import heappop, heappush

from kueuelib.api.kueue import LOWER_OR_NEWER_EQUAL_PRIORITY, NEVER
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.amounts import FlavorResource
from kueuelib.scheduler.pending import (
    Aside,
    Pending,
    Place,
    Progress,
    Promise,
    Requeue,
    is_unfinished,
)
from kueuelib.scheduler.pending_queue import PendingQueue
from kueuelib.scheduler.queue_spec import QueueSpec
from kueuelib.scheduler.reasons import (
    BehindHead,
    InvalidResources,
    LimitRangeViolated,
    NamespaceUnknown,
    NoFlavors,
    Reason,
)
from kueuelib.scheduler.scopes import Scope, Scopes
from kueuelib.scheduler.shapes import OPEN
from kueuelib.scheduler.silence import Silence
from kueuelib.scheduler.workload_info import WorkloadInfo, has_verdict, is_outdated


class Queues:
    """The pending workloads of all ClusterQueues.

    Args:
        admits: whether a ClusterQueue lets a namespace in.
        available: what a ClusterQueue could use now of a flavor and resource.

    Attributes:
        scopes: what happens to their ClusterQueues, and which of them are due.
    """

    def __init__(
        self,
        admits: Callable[[str, str], bool],
        available: Callable[[str, FlavorResource], int],
    ) -> None:
        self._admits = admits
        self._available = available
        self._queues: dict[str, PendingQueue] = {}
        self.scopes = Scopes()
        self._home: dict[ObjectKey, str] = {}
        self._deadlines: list[tuple[float, ObjectKey]] = []
        self._untold: dict[ObjectKey, None] = {}
        self._silence = Silence()
        self._came_round: dict[ObjectKey, None] = {}

    # --- ClusterQueues

    def set_queue(self, spec: QueueSpec, scope: Scope, *, active: bool, now: float) -> None:
        """Takes over a new or changed ClusterQueue. Waking is the caller's decision.

        Args:
            spec: the ClusterQueue.
            scope: what it belongs to.
            active: whether it offers heads. When it does so again, the workloads that wait in it
                are reported anew, because meanwhile something else was.
            now: seconds since the epoch.
        """
        name = spec.name
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = PendingQueue(name)
        self.scopes.put(queue, scope)
        if active and not queue.active:
            for key in queue.items:
                self._silence.add(key, now)
        queue.strict, queue.active = spec.strict, active
        queue.by_age = spec.preemption.within_cluster_queue == LOWER_OR_NEWER_EQUAL_PRIORITY
        queue.preempts = not spec.preemption.spares_all
        queue.reclaims = spec.preemption.reclaim_within_cohort
        queue.pairs = spec.limits.keys()
        queue.groups = len(spec.groups)
        queue.most_flavors = max((len(group.flavors) for group in spec.groups), default=0)
        if spec.strict:
            queue.stick(None)
        self.scopes.touch(scope)
        queue.let_in(partial(self._admits, name))

    def remove_queue(self, name: str) -> tuple[ObjectKey, ...]:
        """Forgets a ClusterQueue; the workloads that waited in it."""
        queue = self._queues.pop(name, None)
        if queue is None:
            return ()
        self.scopes.remove(name)
        for key in queue.items:
            del self._home[key]
            self._silence.forget(key)
        return tuple(queue.items)

    def queue(self, name: str) -> PendingQueue | None:
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

    def push(self, name: str, info: WorkloadInfo, *, now: float) -> None:
        """Takes over a new or changed pending workload (spec/scheduling 3.4).

        A change that can't alter the verdict leaves it where it is, for example the status patch
        that says why it waits. If that says something else than the verdict, it is reported again.
        One in flight stays in flight; its verdict is void if the change matters.

        Args:
            name: the ClusterQueue, which exists.
            info: what the workload asks for.
            now: seconds since the epoch.
        """
        if self._home.get(info.key, name) != name:
            self.take_out(info.key)
        queue = self._queues[name]
        item = queue.items.get(info.key)
        if item is not None and item.info.asks_the_same(info):
            item.info = info
            if self._is_outdated(queue, item):
                self._silence.add(info.key, now)
            return
        if item is not None:
            self.forgive(info.key)
        if item is None:
            item = Pending(info, not_before=info.not_before)
            self._home[info.key] = name
        elif item.in_flight:
            item.info, item.not_before, item.changed = info, info.not_before, True
            item.void()
            return
        else:
            queue.take_out(info.key)
            item.info, item.not_before = info, info.not_before
            item.void()
        self._enter(queue, item, now)

    def _enter(self, queue: PendingQueue, item: Pending, now: float) -> None:
        """Lets a workload be tried from the first flavor on, as soon as it may be."""
        key = item.info.key
        if item.not_before is not None and now < item.not_before:
            queue.set_aside(item, Aside.BACK_OFF)
            heappush(self._deadlines, (item.not_before, key))
            return
        known = queue.hopeless(item.info)
        if known is not None and item.reason is None:
            item.reason = known
            self._untold[key] = None
        elif item.reason is None:
            self._silence.add(key, now)
        if queue.join(item):
            self._touch(queue.name)

    def take_out(self, key: ObjectKey) -> Pending | None:
        """Removes a workload; None when it did not wait."""
        home = self._home.pop(key, None)
        if home is None:
            return None
        self._silence.forget(key)
        self._touch(home)
        queue = self._queues[home]
        if queue.sticky == key:
            queue.stick(None)
        return queue.take_out(key)

    def requeue(
        self,
        key: ObjectKey,
        why: Requeue,
        reason: Reason,
        progress: Progress = (),
        *,
        now: float,
        promise: Promise | None = None,
    ) -> tuple[ObjectKey, ...]:
        """Puts a head back after its cycle (spec/scheduling 3.3).

        It returns to the heap if flavors are left to try that were not tried in this pass, or if
        something that could help moved while it was tried; otherwise its strategy and `why` decide.
        If something moved earlier in its pass over the flavors, or if it lost a flavor in it, its
        verdict is in doubt.

        Args:
            key: the head; nothing happens when it left meanwhile.
            why: why it comes back.
            reason: what to tell about it; one about flavors holds for all workloads of its shape.
            progress: the flavors that were tried.
            now: seconds since the epoch.
            promise: what others leave for, None when nobody does.

        Returns:
            Workloads that were parked with it, because they ask for the same, and about which
            nothing was told yet.
        """
        item = self.get(key)
        if item is None or not item.in_flight:
            return ()
        queue = self._queues[self._home[key]]
        state = self.scopes.of(queue.name)
        if item.changed:
            self._enter(queue, item, now)
            return ()
        self._silence.forget(key)
        began = self.scopes.cycle if item.since is None else item.since
        item.reason, item.progress, item.since = reason, progress, None
        goes_on = is_unfinished(progress) and progress not in item.seen
        if not goes_on:
            item.ended = (*item.ended[-1:], state.version)
        if not is_unfinished(progress):
            item.seen = ()
        elif not goes_on:
            item.came_round = self.scopes.cycle
            self._came_round[key] = None
        if why is not Requeue.PENDING_PREEMPTION:
            item.promise = None
        item.lost = item.lost or why is Requeue.FAILED_AFTER_NOMINATION
        if why is Requeue.PENDING_PREEMPTION:
            item.promise = promise or item.promise
            if not queue.strict:
                queue.stick(key)
            queue.go_alone(item)
        elif goes_on:
            item.since, item.seen = began, (*item.seen, progress)
            queue.go_alone(item)
            if item.ended != (state.version, state.version):
                self.scopes.is_due_again(state)
            else:
                self._leave_open(queue.name)
        elif state.moved_in >= self.scopes.cycle:
            item.start_over()
            self._enter(queue, item, now)
        elif why is Requeue.FAILED_AFTER_NOMINATION:
            queue.go_alone(item)
            self._leave_open(queue.name)
        else:
            moved = state.moved_in >= began or item.lost
            item.lost = False
            if why is not Requeue.GENERIC or not queue.strict:
                return self._park(queue, item, why, reason, OPEN if moved else began)
            queue.go_alone(item)
            if moved or state.may_differ(queue, queue.asks(item.info), began):
                item.start_over()
                self._leave_open(queue.name)
        return ()

    def _leave_open(self, name: str) -> None:
        """A head goes back to its heap, and not all that it may get was tried."""
        state = self.scopes.of(name)
        state.open[name] = None
        self.scopes.doubt(state)

    def _park(
        self, queue: PendingQueue, item: Pending, why: Requeue, reason: Reason, began: int
    ) -> tuple[ObjectKey, ...]:
        self._touch(queue.name)
        if why is Requeue.NAMESPACE_MISMATCH:
            queue.set_aside(item, Aside.NAMESPACE)
        elif why is Requeue.FAILED_CHECKS or isinstance(
            reason, InvalidResources | LimitRangeViolated
        ):
            queue.set_aside(item, Aside.OWN_CHANGE)
        elif isinstance(reason, NoFlavors) and not reason.in_vain:
            if began == OPEN:
                item.start_over()
            self.scopes.doubt(self.scopes.of(queue.name))
            alike = queue.give_up(item, reason, began)
            for key in alike:
                self._silence.forget(key)
            return alike
        else:
            queue.set_aside(item, Aside.MOVE)
        return ()

    def retry(self, key: ObjectKey, *, now: float) -> None:
        """Puts a head back to be tried again at once, because its verdict is void."""
        item = self.get(key)
        if item is not None and item.in_flight:
            self._enter(self._queues[self._home[key]], item, now)

    # --- waking

    def _touch(self, name: str) -> None:
        state = self.scopes.of(name)
        self.scopes.touch(state.scope)

    def reconsider(self) -> None:
        """Lets everybody go on as if nothing had ended: also who was through with all flavors."""
        for key in self._came_round:
            item, home = self.get(key), self._home.get(key)
            if item is not None and home is not None:
                item.came_round = None
                self._queues[home].revive(item.info.shape)
        self._came_round.clear()
        self.scopes.touch_all()

    def rests(self, key: ObjectKey) -> bool:
        """Whether a workload is parked until something happens that no cycle brings about.

        Where it may reclaim, the admission of another can do so: whoever borrows then may lose more
        than it just got.
        """
        item, home = self.get(key), self._home.get(key)
        if item is None or home is None or item.place is not Place.INADMISSIBLE:
            return False
        state = self.scopes.of(home)
        queue = self._queues[home]
        known = queue.verdict(item.info.shape)
        return not (
            state.woken
            or state.freed
            or queue.reclaims != NEVER
            or (known is not None and known.asks.joint)
            or (known is not None and state.may_differ(queue, known.asks, known.began))
        )

    def let_in(self, name: str, namespace: str) -> None:
        """A namespace changed: a ClusterQueue may let its workloads in now."""
        queue = self._queues[name]
        queue.let_in(lambda found: found == namespace and self._admits(name, found))
        if queue.in_flight is not None and queue.in_flight.namespace == namespace:
            queue.items[queue.in_flight].changed = True
        self._touch(name)

    def _expire(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, key = heappop(self._deadlines)
            item = self.get(key)
            if item is None or item.not_before != deadline or item.aside is not Aside.BACK_OFF:
                continue
            item.not_before = None
            self._enter(self._queues[self._home[key]], item, now)

    def next_deadline(self) -> float | None:
        """When time alone makes work, in seconds since the epoch; None when it does not.

        That is the end of a back-off, or the time to say who is ahead of a workload.
        """
        found = (self._end_of_back_off(), self._silence.deadline())
        return min((deadline for deadline in found if deadline is not None), default=None)

    def _end_of_back_off(self) -> float | None:
        while self._deadlines:
            deadline, key = self._deadlines[0]
            item = self.get(key)
            if item is not None and item.not_before == deadline and item.aside is Aside.BACK_OFF:
                return deadline
            heappop(self._deadlines)
        return None

    # --- cycles

    def has_work(self, now: float) -> bool:
        """Whether a cycle could find a head, or a verdict is to be told."""
        self._expire(now)
        return bool(self._untold) or self.scopes.any_due() or self._ends_silence(now)

    def _ends_silence(self, now: float) -> bool:
        """Whether some workload waited long enough for a cycle to report its verdict."""
        self._untold.update(dict.fromkeys(self._silence.take(now, self._has_reason)))
        return bool(self._untold)

    def _has_reason(self, key: ObjectKey) -> bool:
        return self._reason(key) is not None

    def _reason(self, key: ObjectKey) -> Reason | None:
        """Why a workload waits at rest; None when a cycle is going to try it, or it left."""
        item, home = self.get(key), self._home.get(key)
        if item is None or home is None or not self._queues[home].active:
            return None
        if item.place is Place.INADMISSIBLE or self._is_outdated(self._queues[home], item):
            return item.reason
        if has_verdict(item.info.workload):
            return None  # from before a restart, perhaps: better than the name of a head
        first = self._queues[home].first() if item.place is Place.HEAP else None
        return None if first is None or first is item else BehindHead(first.info.key, home)

    @staticmethod
    def _is_outdated(queue: PendingQueue, item: Pending) -> bool:
        """Whether the object says something else than the last verdict.

        An older report was stored late: its answer was lost, and the newer one was not written
        because nothing seemed to differ.
        """
        reason = item.reason
        if reason is None or isinstance(reason, NamespaceUnknown):
            return False
        tried = item.place is not Place.HEAP or queue.first() is item
        return is_outdated(item.info.workload, reason, tried=tried)

    def take_untold(self) -> Iterator[tuple[Pending, Reason]]:
        """Workloads to report without a cycle of their own, each with the reason.

        They are parked because one of their shape was tried in vain, or wait behind a blocked head.
        """
        keys = tuple(self._untold)
        self._untold.clear()
        for key in keys:
            item, reason = self.get(key), self._reason(key)
            if item is not None and reason is not None:
                yield item, reason

    def pop_heads(self, now: float) -> tuple[tuple[str, Pending], ...] | None:
        """The heads of the next cycle, one per active ClusterQueue, in the order of their names.

        Only scopes in which something changed since their last cycle take part, but all their
        queues do: a blocked head of a StrictFIFO queue keeps others of its cohort from borrowing
        what is its own.

        Returns:
            The heads; None when there is nothing to do at all. There may be none in a cycle in
            which turns passed, or in which only known verdicts are to be told.
        """
        self._expire(now)
        heads: list[tuple[str, Pending]] = []
        passed = False
        for state in self.scopes.begin_cycle():
            if state.woken or state.freed:
                state.move(self._available)
            skipping = state.passing_turns() if state.passing else frozenset()
            if skipping:
                passed = True
                self.scopes.is_due_again(state)
            ended = state.ended_call()
            for name, queue in state.members.items():
                item = queue.pop() if queue.offers and name not in skipping else None
                if item is not None:
                    came_round = item.came_round is not None and state.moved_in >= item.came_round
                    if came_round or (item.since is not None and item.since >= ended):
                        item.start_over()
                    heads.append((name, item))
            if state.later:
                state.begin_later()
                self.scopes.is_due_again(state)
        if not heads and not passed and not self._untold:
            return None
        return tuple(sorted(heads, key=lambda head: head[0]))

    def preempts(self, key: ObjectKey) -> None:
        """A workload that waits makes others leave."""
        home = self._home.get(key)
        if home is not None:
            counts = self.scopes.of(home).preempted
            counts[key] = counts.get(key, 0) + 1

    def forgive(self, key: ObjectKey) -> None:
        """What a workload made others leave for is over: it changed, or is gone."""
        home = self._home.get(key)
        if home is not None:
            self.scopes.of(home).preempted.pop(key, None)

    def preemptions(self, key: ObjectKey) -> int:
        """How often a workload that waits made others leave since quota moved from outside."""
        home = self._home.get(key)
        return 0 if home is None else self.scopes.of(home).preempted.get(key, 0)
