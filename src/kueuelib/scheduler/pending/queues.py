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

from kueuelib.api.kueue import NEVER
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.object_reasons import InvalidResources, LimitRangeViolated
from kueuelib.scheduler.pending.item import (
    Aside,
    Pending,
    Place,
    Progress,
    Promise,
    Requeue,
    is_unfinished,
)
from kueuelib.scheduler.pending.queue import PendingQueue
from kueuelib.scheduler.pending.scopes import Scopes
from kueuelib.scheduler.pending.silence import Silence, reason_to_report, says_otherwise
from kueuelib.scheduler.pending.waking import Available, Scope, Verdict, verdict_on
from kueuelib.scheduler.pending.workload_info import WorkloadInfo
from kueuelib.scheduler.quota.queue_spec import QueueSpec
from kueuelib.scheduler.reasons import NoFlavors, Reason


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
        available: Available,
    ) -> None:
        self._admits = admits
        self._available = available
        self._queues: dict[str, PendingQueue] = {}
        self.scopes = Scopes()
        self._items: dict[ObjectKey, Pending] = {}
        self._deadlines: list[tuple[float, ObjectKey]] = []
        self._silence = Silence()

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
            queue = self._queues[name] = PendingQueue(spec)
        self.scopes.put(queue, scope)
        if active and not queue.active:
            for key in queue.items:
                self._silence.add(key, now)
        queue.spec, queue.active = spec, active
        if spec.strict:
            queue.stick(None)
        self._touch(queue)
        queue.let_in(partial(self._admits, name))

    def remove_queue(self, name: str) -> tuple[ObjectKey, ...]:
        """Forgets a ClusterQueue; the workloads that waited in it."""
        queue = self._queues.pop(name, None)
        if queue is None:
            return ()
        self.scopes.remove(queue)
        for key in queue.items:
            del self._items[key]
            self._silence.forget(key)
        return tuple(queue.items)

    def queue(self, name: str) -> PendingQueue | None:
        """The pending workloads of a ClusterQueue, or None. Not to be changed by the caller."""
        return self._queues.get(name)

    # --- workloads

    def get(self, key: ObjectKey) -> Pending | None:
        """The workload if it waits in a ClusterQueue."""
        return self._items.get(key)

    def home(self, key: ObjectKey) -> str | None:
        """The ClusterQueue in which the workload waits."""
        item = self._items.get(key)
        return None if item is None else item.queue.name

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
        queue, key = self._queues[name], info.key
        if self.home(key) not in (None, name):
            self.take_out(key)
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = Pending(info, queue)
        elif item.info.asks_the_same(info):
            item.info = info
            if says_otherwise(item):
                self._silence.add(key, now)
            return
        else:
            self.forgive(key)
            item.void()
            item.changed = True
        if not item.in_flight:
            queue.take_out(key)
        item.info, item.not_before = info, info.not_before
        if not item.in_flight:
            self._enter(item, now)

    def _enter(self, item: Pending, now: float) -> None:
        """Lets a workload be tried from the first flavor on, as soon as it may be."""
        key, queue = item.info.key, item.queue
        if item.not_before is not None and now < item.not_before:
            queue.set_aside(item, Aside.BACK_OFF)
            heappush(self._deadlines, (item.not_before, key))
            return
        if item.reason is None:
            item.reason = queue.refusal(item.info)
            if item.reason is None:
                self._silence.add(key, now)
            else:
                self._silence.break_now(key)
        if queue.join(item):
            self._touch(queue)

    def take_out(self, key: ObjectKey) -> None:
        """Removes a workload; nothing happens when it did not wait."""
        item = self._items.pop(key, None)
        if item is None:
            return
        self._silence.forget(key)
        self._touch(item.queue)
        if item.queue.sticky == key:
            item.queue.stick(None)
        item.queue.take_out(key)

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

        It returns to the heap if its pass over the flavors is not over, or if quota moved while it
        was tried. Otherwise the strategy of its ClusterQueue and `why` decide.

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
        queue, state = item.queue, item.queue.scope
        if item.changed:
            self._enter(item, now)
            return ()
        self._silence.forget(key)
        began = item.tried if item.began is None else item.began
        item.reason, item.progress, item.began = reason, progress, None
        if why is not Requeue.PENDING_PREEMPTION:
            item.promise = None
        if is_unfinished(progress) and progress not in item.seen:
            item.began, item.seen = began, (*item.seen, progress)
            item.lost = item.lost or why is Requeue.FAILED_AFTER_NOMINATION
            queue.go_alone(item)
            if item.ended != state.touched:
                self.scopes.is_due_again(state)
            else:
                self._leave_open(item)
            return ()
        complete = not item.lost and not state.moved_since(began)
        item.start_over()
        item.ended, item.came_round = state.touched, is_unfinished(progress)
        if why is Requeue.PENDING_PREEMPTION:
            item.promise = promise or item.promise
            if not queue.spec.strict:
                queue.stick(key)
            queue.go_alone(item)
        elif state.moved_since(item.tried):
            self._enter(item, now)
        elif why is Requeue.FAILED_AFTER_NOMINATION:
            queue.go_alone(item)
            self._leave_open(item)
        else:
            verdict = verdict_on(
                item.info, reason, queue.spec, began=began, tried=item.tried, complete=complete
            )
            if why is not Requeue.GENERIC or not queue.spec.strict:
                return self._park(item, why, verdict)
            queue.go_alone(item)
            if verdict.turned_by_charge(state, queue.spec):
                self._leave_open(item)
        return ()

    def _leave_open(self, item: Pending) -> None:
        """A head went back to its heap, and not all that it may get was tried."""
        item.start_over()
        item.queue.scope.unsure = True
        self.scopes.may_be_stale(item.queue.scope)

    def _park(self, item: Pending, why: Requeue, verdict: Verdict) -> tuple[ObjectKey, ...]:
        queue, reason = item.queue, verdict.reason
        self._touch(queue)
        if why is Requeue.NAMESPACE_MISMATCH:
            queue.set_aside(item, Aside.NAMESPACE)
        elif why is Requeue.FAILED_CHECKS or isinstance(
            reason, InvalidResources | LimitRangeViolated
        ):
            queue.set_aside(item, Aside.OWN_CHANGE)
        elif isinstance(reason, NoFlavors) and not reason.in_vain:
            self.scopes.may_be_stale(queue.scope)
            alike = queue.park(item, verdict)
            for key in alike:
                self._silence.forget(key)
            return alike
        else:
            queue.set_aside(item, Aside.MOVE)
        return ()

    def retry(self, key: ObjectKey, *, now: float) -> None:
        """Puts a head back to be tried again at once, because its verdict is void."""
        item = self._items.get(key)
        if item is not None and item.in_flight:
            self._enter(item, now)

    # --- waking

    def _touch(self, queue: PendingQueue) -> None:
        self.scopes.touch(queue.scope.scope)

    def reconsider(self) -> None:
        """Requeues all heads, and the workloads whose search for flavors came round."""
        for item in self._items.values():
            if item.came_round:
                item.queue.revive(item.info.shape)
        self.scopes.touch_all()

    def rests(self, key: ObjectKey) -> bool:
        """Whether a workload is parked until something happens that no cycle brings about.

        Where it may reclaim, the admission of another can do so: whoever borrows then may lose more
        than it just got.
        """
        item = self._items.get(key)
        if item is None or item.place is not Place.INADMISSIBLE:
            return False
        state, group, spec = item.queue.scope, item.group, item.queue.spec
        if state.moved or spec.preemption.reclaim_within_cohort != NEVER:
            return False
        if group is None or group.verdict is None:
            return True
        verdict = group.verdict
        return not (group.called or verdict.joint or verdict.turned_by_charge(state, spec))

    def let_in(self, name: str, namespace: str) -> None:
        """A namespace changed: a ClusterQueue may let its workloads in now."""
        queue = self._queues[name]
        queue.let_in(lambda found: found == namespace and self._admits(name, found))
        if queue.in_flight is not None and queue.in_flight.namespace == namespace:
            queue.items[queue.in_flight].changed = True
        self._touch(queue)

    def _expire(self, now: float) -> None:
        while (deadline := self._end_of_back_off()) is not None and deadline <= now:
            item = self._items[heappop(self._deadlines)[1]]
            item.not_before = None
            self._enter(item, now)

    def next_deadline(self) -> float | None:
        """When time alone makes work, in seconds since the epoch; None when it does not.

        That is the end of a back-off, or the time to say who is ahead of a workload.
        """
        found = (self._end_of_back_off(), self._silence.deadline())
        return min((deadline for deadline in found if deadline is not None), default=None)

    def _end_of_back_off(self) -> float | None:
        while self._deadlines:
            deadline, key = self._deadlines[0]
            item = self._items.get(key)
            if item is not None and item.not_before == deadline and item.aside is Aside.BACK_OFF:
                return deadline
            heappop(self._deadlines)
        return None

    # --- cycles

    def has_work(self, now: float) -> bool:
        """Whether a cycle could find a head, or a verdict is to be reported."""
        self._expire(now)
        return self._silence.is_over or self.scopes.any_due() or self._silence.end(now, self._known)

    def _known(self, key: ObjectKey) -> bool:
        item = self._items.get(key)
        return item is not None and reason_to_report(item) is not None

    def take_untold(self) -> Iterator[tuple[Pending, Reason]]:
        """Workloads to report without a cycle of their own, each with the reason.

        They are parked because one of their shape was refused, or wait behind a blocked head.
        """
        for key in self._silence.take():
            item = self._items.get(key)
            reason = None if item is None else reason_to_report(item)
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
            taken, passing = state.take_turns(self._available, self.scopes.now)
            heads += taken
            if passing:
                passed = True
                self.scopes.is_due_again(state)
        if not heads and not passed and not self._silence.is_over:
            return None
        return tuple(sorted(heads, key=lambda head: head[0]))

    def preempts(self, key: ObjectKey) -> None:
        """A workload that waits makes others leave."""
        item = self._items.get(key)
        if item is not None:
            counts = item.queue.scope.preempted
            counts[key] = counts.get(key, 0) + 1

    def forgive(self, key: ObjectKey) -> None:
        """What a workload made others leave for is over: it changed, or is gone."""
        item = self._items.get(key)
        if item is not None:
            item.queue.scope.preempted.pop(key, None)

    def preemptions(self, key: ObjectKey) -> int:
        """How often a workload that waits made others leave since quota moved from outside."""
        item = self._items.get(key)
        return 0 if item is None else item.queue.scope.preempted.get(key, 0)
