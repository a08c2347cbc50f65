"""What waits: every pending workload in exactly one place.

A pending workload is in the heap of its ClusterQueue, parked as inadmissible, or in flight (a head
of the cycle that runs). Nothing is tried twice without a reason: a scope (a cohort, or a
ClusterQueue without one) gets a cycle only when something in it changed since its last one
(spec/scheduling 3, 4.7, 9.3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from heapq import heappop, heappush

from kueuelib.api.kueue import LOWER_OR_NEWER_EQUAL_PRIORITY
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
from kueuelib.scheduler.pending_queue import Borrowed, PendingQueue
from kueuelib.scheduler.queue_spec import QueueSpec
from kueuelib.scheduler.reasons import InvalidResources, LimitRangeViolated, NoFlavors, Reason
from kueuelib.scheduler.scopes import Scope, ScopeState, scope_of
from kueuelib.scheduler.workload_info import Shape, WorkloadInfo


class Queues:
    """The pending workloads of all ClusterQueues.

    Args:
        admits: whether a ClusterQueue lets a namespace in.
    """

    def __init__(self, admits: Callable[[str, str], bool]) -> None:
        self._admits = admits
        self._queues: dict[str, PendingQueue] = {}
        self._scope_of: dict[str, Scope] = {}
        self._scopes: dict[Scope, ScopeState] = {}
        self._due: dict[Scope, None] = {}
        self._home: dict[ObjectKey, str] = {}
        self._deadlines: list[tuple[float, ObjectKey]] = []
        self._untold: dict[ObjectKey, None] = {}
        self._came_round: dict[ObjectKey, None] = {}
        self._cycle = 0

    # --- ClusterQueues

    def set_queue(self, spec: QueueSpec, *, active: bool) -> None:
        """Takes over a new or changed ClusterQueue. Waking is the caller's decision.

        Args:
            spec: the ClusterQueue.
            active: whether it offers heads.
        """
        name = spec.name
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = PendingQueue(name)
        scope = scope_of(spec.cohort, name)
        if self._scope_of.get(name) != scope:
            self._leave_scope(name)
            self._scope_of[name] = scope
            self._scopes.setdefault(scope, ScopeState()).members[name] = queue
        queue.strict, queue.active = spec.strict, active
        queue.by_age = spec.preemption.within_cluster_queue == LOWER_OR_NEWER_EQUAL_PRIORITY
        queue.reclaims = spec.preemption.reclaim_within_cohort
        queue.pairs = spec.limits.keys()
        if spec.strict:
            queue.stick(None)
        self.touch(scope)
        queue.let_in(partial(self._admits, name))

    def remove_queue(self, name: str) -> tuple[ObjectKey, ...]:
        """Forgets a ClusterQueue; the workloads that waited in it."""
        queue = self._queues.pop(name, None)
        if queue is None:
            return ()
        self._leave_scope(name)
        for key in queue.items:
            del self._home[key]
        return tuple(queue.items)

    def _leave_scope(self, name: str) -> None:
        scope = self._scope_of.pop(name, None)
        if scope is None:
            return
        state = self._scopes[scope]
        del state.members[name]
        if not state.members:
            del self._scopes[scope]
            self._due.pop(scope, None)

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
        that says why it waits. One in flight stays in flight; its verdict is void if the change
        matters.

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
            return
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
        if queue.join(item):
            self.touch(self._scope_of[queue.name])

    def take_out(self, key: ObjectKey) -> Pending | None:
        """Removes a workload; None when it did not wait."""
        home = self._home.pop(key, None)
        if home is None:
            return None
        self.touch(self._scope_of[home])
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
        held_back: bool = False,
        promise: Promise | None = None,
    ) -> tuple[ObjectKey, ...]:
        """Puts a head back after its cycle (spec/scheduling 3.3).

        It returns to the heap if flavors are left to try that were not tried in this pass, or if
        something that could help moved while it was tried; otherwise its strategy and `why` decide.
        If something moved earlier in its pass over the flavors, it starts over when others have had
        their turn.

        Args:
            key: the head; nothing happens when it left meanwhile.
            why: why it comes back.
            reason: what to tell about it; one about flavors holds for all workloads of its shape.
            progress: the flavors that were tried.
            now: seconds since the epoch.
            held_back: whether it would have got quota, had a blocked head not kept it.
            promise: what others leave for, None when nobody does.

        Returns:
            Workloads that were parked with it, because they ask for the same, and about which
            nothing was told yet.
        """
        item = self.get(key)
        if item is None or not item.in_flight:
            return ()
        queue = self._queues[self._home[key]]
        state = self._scopes[self._scope_of[queue.name]]
        if item.changed:
            self._enter(queue, item, now)
            return ()
        began = self._cycle if item.since is None else item.since
        if held_back and item.held_at is None:
            item.held_at = item.version
        item.reason, item.progress, item.since = reason, progress, None
        goes_on = is_unfinished(progress) and progress not in item.seen
        if not goes_on:
            item.ended = (*item.ended[-1:], state.version)
        if not is_unfinished(progress):
            item.seen = ()
        elif not goes_on:
            item.came_round = self._cycle
            self._came_round[key] = None
        if item.promise is not None and why is not Requeue.PENDING_PREEMPTION:
            item.promise, item.outrun = None, True
        item.lost = item.lost or why is Requeue.FAILED_AFTER_NOMINATION
        if why is Requeue.PENDING_PREEMPTION:
            item.held_at = None
            item.promise = promise or item.promise
            if not queue.strict:
                queue.stick(key)
            queue.go_alone(item)
        elif goes_on:
            item.since, item.seen = began, (*item.seen, progress)
            queue.go_alone(item)
            if item.ended != (state.version, state.version):
                self._due[self._scope_of[queue.name]] = None
        elif state.moved_in >= self._cycle:
            item.held_at = None
            item.start_over()
            self._enter(queue, item, now)
        elif why is Requeue.FAILED_AFTER_NOMINATION or item.held_at is not None:
            self._try_again_on_change(queue, item)
        else:
            starts_over = self._starts_over(state, item, began)
            reclaims = any(
                borrowed.cycle >= began and queue.may_reclaim(borrowed, item.info)
                for borrowed in state.borrowed.values()
            )
            if starts_over or reclaims:
                item.start_over()
            if why is not Requeue.GENERIC or not queue.strict:
                if reclaims:
                    state.last[queue.name, item.info.shape] = None
                return self._park(queue, item, why, reason, starts_over=starts_over)
            queue.go_alone(item)
            if starts_over or reclaims:
                self._due[self._scope_of[queue.name]] = None
        return ()

    def _starts_over(self, state: ScopeState, item: Pending, began: int) -> bool:
        """Whether a head that failed in its last flavors may do better in those before.

        So it is when something moved since its pass began, or when it lost a flavor to another head
        in it; the latter counts once for every gain or loss of quota in the scope.
        """
        changed = max(state.moved_in, state.charged_in)
        lost, item.lost = item.lost, False
        if lost and item.began_again != changed:
            item.began_again = changed
            return True
        return state.moved_in >= began

    def _try_again_on_change(self, queue: PendingQueue, item: Pending) -> None:
        """Back to the heap for a fresh pass, as soon as anything in the scope differs."""
        scope = self._scope_of[queue.name]
        state = self._scopes[scope]
        queue.go_alone(item)
        if item.held_at is not None and state.version != item.held_at:
            self._due[scope] = None
        item.held_at = None

    def _park(
        self, queue: PendingQueue, item: Pending, why: Requeue, reason: Reason, *, starts_over: bool
    ) -> tuple[ObjectKey, ...]:
        scope = self._scope_of[queue.name]
        self.touch(scope)
        if why is Requeue.NAMESPACE_MISMATCH:
            queue.set_aside(item, Aside.NAMESPACE)
        elif why is Requeue.FAILED_CHECKS or isinstance(
            reason, InvalidResources | LimitRangeViolated
        ):
            queue.set_aside(item, Aside.OWN_CHANGE)
        elif isinstance(reason, NoFlavors):
            alike = queue.give_up(item, reason)
            if starts_over:
                self._scopes[scope].late[queue.name, item.info.shape] = None
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

    def wake(self, scope: Scope, freed: Iterable[FlavorResource] | None = None) -> None:
        """Something may help parked workloads of the scope: they move before the next cycle.

        Args:
            scope: where.
            freed: what became free, so that only who asks for any of it moves; None when
                something else happened, which may help everybody.
        """
        state = self._scopes.get(scope)
        if state is not None:
            state.moved_in = self._cycle
            if freed is None:
                state.woken = True
            else:
                state.freed.update(freed)
            self.touch(scope)

    def touch(self, scope: Scope) -> None:
        """Something in the scope may change what its heads get."""
        state = self._scopes.get(scope)
        if state is not None:
            state.version += 1
            self._due[scope] = None

    def charged(self, scope: Scope) -> None:
        """Somebody in the scope uses more than before."""
        state = self._scopes.get(scope)
        if state is not None:
            state.charged_in = self._cycle
            self.touch(scope)

    def borrows(
        self, scope: Scope, borrower: str, pairs: Collection[FlavorResource], lowest: int
    ) -> None:
        """A ClusterQueue uses more than its own: others may find victims in it.

        Args:
            scope: where.
            borrower: the ClusterQueue.
            pairs: what it borrows.
            lowest: the lowest priority that it may lose.
        """
        state = self._scopes.get(scope)
        if state is None:
            return
        borrowed = Borrowed(borrower, frozenset(pairs), lowest, self._cycle)
        state.borrowed[borrower] = borrowed
        for queue in state.members.values():
            queue.reclaim(borrowed)

    def touch_all(self) -> None:
        """Something changed that matters everywhere."""
        for scope in self._scopes:
            self.touch(scope)

    def reconsider(self) -> None:
        """Lets everybody go on as if nothing had ended: also who was through with all flavors."""
        for key in self._came_round:
            item, home = self.get(key), self._home.get(key)
            if item is not None and home is not None:
                item.came_round = None
                self._queues[home].revive(item.info.shape)
        self._came_round.clear()
        self.touch_all()

    def rests(self, key: ObjectKey) -> bool:
        """Whether a workload is parked until something happens that no cycle brings about."""
        item, home = self.get(key), self._home.get(key)
        if item is None or home is None or item.place is not Place.INADMISSIBLE:
            return False
        state = self._scopes[self._scope_of[home]]
        return not (
            state.woken or state.freed or (home, item.info.shape) in {**state.late, **state.last}
        )

    def let_in(self, name: str, namespace: str) -> None:
        """A namespace changed: a ClusterQueue may let its workloads in now."""
        queue = self._queues[name]
        queue.let_in(lambda found: found == namespace and self._admits(name, found))
        if queue.in_flight is not None and queue.in_flight.namespace == namespace:
            queue.items[queue.in_flight].changed = True
        self.touch(self._scope_of[name])

    def _move(self, state: ScopeState) -> None:
        freed = None if state.woken else state.freed
        for queue in state.members.values():
            queue.move(freed)
            state.passing = state.passing or queue.has_passing
        state.woken, state.freed = False, set()

    def _start_over(self, scope: Scope, late: Iterable[tuple[str, Shape]]) -> None:
        for name, shape in late:
            if self._scope_of.get(name) == scope:
                self._queues[name].revive(shape)
                self._due[scope] = None

    def _expire(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, key = heappop(self._deadlines)
            item = self.get(key)
            if item is None or item.not_before != deadline or item.aside is not Aside.BACK_OFF:
                continue
            item.not_before = None
            self._enter(self._queues[self._home[key]], item, now)

    def next_deadline(self) -> float | None:
        """When the next back-off ends, in seconds since the epoch; None when none is under way."""
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
        return bool(self._due or self._untold)

    def take_untold(self) -> tuple[Pending, ...]:
        """Workloads parked without a cycle, because one of their shape was tried in vain."""
        found = (self.get(key) for key in self._untold)
        told = tuple(
            item for item in found if item is not None and item.place is Place.INADMISSIBLE
        )
        self._untold.clear()
        return told

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
        due = tuple(self._due)
        self._due.clear()
        self._cycle += 1
        heads: list[tuple[str, Pending]] = []
        passed = False
        for scope in due:
            state = self._scopes[scope]
            if state.woken or state.freed:
                self._move(state)
            skipping = self._passing_turns(state) if state.passing else frozenset()
            if skipping:
                passed = True
                self._due[scope] = None
            for name, queue in state.members.items():
                item = queue.pop() if queue.offers and name not in skipping else None
                if item is not None:
                    item.version = state.version
                    if item.came_round is not None and state.moved_in >= item.came_round:
                        item.start_over()
                    heads.append((name, item))
            late, state.late = state.late, {}
            if (
                state.last
                and not late
                and all(one.strict or one.first() is None for one in state.members.values())
            ):
                late, state.last = state.last, {}
            self._start_over(scope, late)
        if not heads and not passed and not self._untold:
            return None
        return tuple(sorted(heads, key=lambda head: head[0]))

    def _passing_turns(self, state: ScopeState) -> frozenset[str]:
        """The ClusterQueues whose turn passes in this cycle."""
        members = {name: queue for name, queue in state.members.items() if queue.active}
        if all(queue.first() is None for queue in members.values()):
            for queue in state.members.values():
                queue.forgo()
        passing = frozenset(name for name, queue in members.items() if queue.let_pass())
        state.passing = any(queue.has_passing for queue in members.values())
        return passing
