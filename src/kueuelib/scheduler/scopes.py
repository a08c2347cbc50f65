"""Who can influence whom: the ClusterQueues of one tree, what happened there, who is due.

A scope gets a cycle when something in it changed since its last one, and when nobody is left to be
tried, once more for those whose verdict is in doubt (spec/scheduling 9.3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from math import inf
from typing import NamedTuple

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.amounts import FlavorResource
from kueuelib.scheduler.pending_queue import Borrowed, PendingQueue
from kueuelib.scheduler.shapes import OPEN, Asks
from kueuelib.scheduler.workload_info import Shape


class Scope(NamedTuple):
    """The ClusterQueues that can influence each other: one tree, or one ClusterQueue alone."""

    root: str
    cluster_queue: str


def scope_of(root: str, cluster_queue: str) -> Scope:
    """The scope of a ClusterQueue, by the topmost cohort above it, empty for none."""
    return Scope(root, "") if root else Scope("", cluster_queue)


class ScopeState:
    """What happened in one scope.

    Attributes:
        scope: which one.
        members: its ClusterQueues.
        woken: whether all its parked workloads are to be moved before the next cycle.
        freed: otherwise those are that ask for any of this, which became free.
        moved_in: the cycle after which something moved last.
        borrowed: the last charge of every ClusterQueue that borrowed then, as long as nobody was
            called up for it.
        charged_in: the cycle after which somebody was charged last.
        changes: counts gains and losses of quota, and everything that may cause either.
        version: counts everything that may change a verdict.
        passing: whether parked shapes have a turn to come that passes.
        open: the ClusterQueues with a head that is left although not all was tried that it may get.
        called: what `changes` was when those whose verdict is in doubt were called up last, and how
            often they were since.
        called_in: the cycle in which they were, None when something moved since.
        later: those that are kept back; empty when nobody is.
        wait: for how many more cycles.
        preempted: how often each workload made others leave since quota moved from outside.
    """

    __slots__ = (
        "borrowed",
        "called",
        "called_in",
        "changes",
        "charged_in",
        "freed",
        "later",
        "members",
        "moved_in",
        "open",
        "passing",
        "preempted",
        "scope",
        "version",
        "wait",
        "woken",
    )

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.members: dict[str, PendingQueue] = {}
        self.woken = False
        self.freed: set[FlavorResource] = set()
        self.moved_in = -1
        self.borrowed: dict[str, Borrowed] = {}
        self.charged_in = -1
        self.changes = 0
        self.version = 0
        self.passing = False
        self.open: dict[str, None] = {}
        self.called = (0, 0)
        self.called_in: int | None = None
        self.later: dict[tuple[str, Shape], None] = {}
        self.wait = 0
        self.preempted: dict[ObjectKey, int] = {}

    def move(self, available: Callable[[str, FlavorResource], int]) -> None:
        """Lets those be tried again whom something may help that happened.

        Args:
            available: what a ClusterQueue could use now of a flavor and resource.
        """
        freed = None if self.woken else self.freed
        for queue in self.members.values():
            queue.move(freed, available)
            self.passing = self.passing or queue.has_passing
        self.woken, self.freed = False, set()

    def passing_turns(self) -> frozenset[str]:
        """The ClusterQueues whose turn passes in this cycle."""
        members = {name: queue for name, queue in self.members.items() if queue.active}
        if all(queue.first() is None for queue in members.values()):
            for queue in self.members.values():
                queue.forgo()
        passing = frozenset(name for name, queue in members.items() if queue.let_pass())
        self.passing = any(queue.has_passing for queue in members.values())
        return passing

    def may_differ(self, queue: PendingQueue, asks: Asks, began: int) -> bool:
        """Whether a new pass over the flavors may come to something else than one that failed.

        So it is when somebody was charged meanwhile from whom it may be reclaimed, or on whose
        charge the choice among several flavors may depend.

        Args:
            queue: the ClusterQueue.
            asks: what the workload, or all of its shape, asks for.
            began: the cycle in which the failed pass began, or `OPEN`.
        """
        return (
            began == OPEN
            or (asks.joint and self.charged_in >= began)
            or any(
                charge.cycle >= began and queue.may_reclaim(charge, asks)
                for charge in self.borrowed.values()
            )
        )

    def call_up(self) -> bool:
        """Lets those begin anew whose verdict is in doubt; whether there is anything to do.

        Such are heads that lost what they had chosen, and shapes whose pass over several flavors
        began before somebody was charged. They get a try after every change, and as many more as
        there are flavors, each begun a cycle later: blocked heads keep the quota of one flavor
        after the other for themselves, and must not be met at the same one every time.
        """
        doubtful = {
            (name, shape): None
            for name, queue in self.members.items()
            if queue.has_verdicts
            for shape in queue.doubtful(partial(self.may_differ, queue))
        }
        self.borrowed.clear()
        if not self.open and not doubtful:
            return False
        changes, tries = self.called
        tries = tries if changes == self.changes else 0
        if tries and tries >= max(queue.most_flavors for queue in self.members.values()):
            return False
        self.called = (self.changes, tries + 1)
        for queue in self.members.values():
            item = queue.first() if self.open else None
            if item is not None:
                item.begin_anew()
        self.open.clear()
        self.later, self.wait = doubtful, tries
        self.begin_later()
        return True

    def ended_call(self) -> float:
        """The cycle since which passes do not count that began; infinite when all do.

        Those who were called up begin anew when something moves: without the call, they would have
        waited for it with all flavors before them.
        """
        called_in = self.called_in
        if called_in is None or self.moved_in < called_in:
            return inf
        self.called_in = None
        return called_in

    def begin_later(self) -> None:
        """Lets those begin who were kept back, when their time has come."""
        if self.wait:
            self.wait -= 1
            return
        for name, shape in self.later:
            if name in self.members:
                self.members[name].revive(shape)
        self.later = {}


class Scopes:
    """All scopes, and which of them are due.

    Attributes:
        cycle: counts the cycles.
    """

    def __init__(self) -> None:
        self.cycle = 0
        self._of: dict[str, Scope] = {}
        self._states: dict[Scope, ScopeState] = {}
        self._due: dict[Scope, None] = {}
        self._in_doubt: dict[Scope, None] = {}

    # --- ClusterQueues

    def put(self, queue: PendingQueue, scope: Scope) -> None:
        """A ClusterQueue belongs to a scope from now on."""
        if self._of.get(queue.name) != scope:
            self.remove(queue.name)
            self._of[queue.name] = scope
            if scope not in self._states:
                self._states[scope] = ScopeState(scope)
            self._states[scope].members[queue.name] = queue

    def remove(self, name: str) -> None:
        """A ClusterQueue belongs to no scope any more."""
        scope = self._of.pop(name, None)
        if scope is None:
            return
        state = self._states[scope]
        del state.members[name]
        state.open.pop(name, None)
        if not state.members:
            del self._states[scope]
            self._due.pop(scope, None)
            self._in_doubt.pop(scope, None)

    def of(self, name: str) -> ScopeState:
        """The scope of a ClusterQueue, which has one."""
        return self._states[self._of[name]]

    # --- what happens

    def touch(self, scope: Scope) -> None:
        """Something in the scope may change what its heads get."""
        state = self._states.get(scope)
        if state is not None:
            state.version += 1
            self._due[scope] = None

    def touch_all(self) -> None:
        """Something changed that matters everywhere."""
        for scope in self._states:
            self.touch(scope)

    def wake(
        self, scope: Scope, freed: Iterable[FlavorResource] | None, *, from_outside: bool = True
    ) -> None:
        """Something may help parked workloads of the scope: they move before the next cycle.

        Args:
            scope: where.
            freed: what became free, so that only who asks for any of it moves; None when
                something else happened, which may help everybody.
            from_outside: whether it happened for another cause than a preemption.
        """
        state = self._states.get(scope)
        if state is None:
            return
        if from_outside:
            state.preempted.clear()
        state.changes += 1
        state.moved_in = self.cycle
        if freed is None:
            state.woken = True
        else:
            state.freed.update(freed)
        self.touch(scope)

    def charged(self, scope: Scope) -> None:
        """Somebody in the scope uses more than before."""
        state = self._states.get(scope)
        if state is not None:
            state.changes += 1
            state.charged_in = self.cycle
            self._in_doubt[scope] = None
            self.touch(scope)

    def borrows(
        self, scope: Scope, borrower: str, pairs: Collection[FlavorResource] | None, lowest: int
    ) -> None:
        """A ClusterQueue was charged, and uses more than its own: others may find victims in it.

        Args:
            scope: where.
            borrower: the ClusterQueue.
            pairs: what it borrows; None: whatever others ask for, victims may be found now.
            lowest: the lowest priority that it may lose.
        """
        state = self._states.get(scope)
        if state is not None:
            known = None if pairs is None else frozenset(pairs)
            state.borrowed[borrower] = Borrowed(borrower, known, lowest, self.cycle)

    def doubt(self, state: ScopeState) -> None:
        """Somebody waits in the scope whose verdict may not be the last word."""
        self._in_doubt[state.scope] = None

    # --- cycles

    def any_due(self) -> bool:
        """Whether any scope is due, also for those whose verdict is in doubt."""
        for scope in [found for found in self._in_doubt if found not in self._due]:
            del self._in_doubt[scope]
            if self._states[scope].call_up():
                self._states[scope].called_in = self.cycle + 1
                self._due[scope] = None
        return bool(self._due)

    def is_due_again(self, state: ScopeState) -> None:
        """The scope gets a further cycle, although nothing in it changed."""
        self._due[state.scope] = None

    def begin_cycle(self) -> tuple[ScopeState, ...]:
        """The scopes that take part in the cycle that begins."""
        self.any_due()
        due = tuple(self._due)
        self._due.clear()
        self.cycle += 1
        return tuple(self._states[scope] for scope in due)
