"""Scopes: the ClusterQueues that can influence each other, and when they get a cycle.

A scope is due when something happened in it since its last cycle. In a cycle each of its
ClusterQueues has one turn. When nobody is left to be tried the scope is at rest, and those whose
verdict may not hold are tried again (docs/designs/0005-waking.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.pending.waking import News
from kueuelib.scheduler.quota.amounts import FlavorResource

if TYPE_CHECKING:
    from kueuelib.scheduler.pending.item import Pending
    from kueuelib.scheduler.pending.queue import PendingQueue

EVERYBODY_AT_REST = (False, True, False)
"""For each round at rest, whether it requeues all shapes, or only those whose verdicts may not
hold."""

Root = tuple[str, str]
"""What names a scope: its topmost cohort, or the ClusterQueue that is in none."""


@attrs.define(eq=False)
class Scopes:
    """All scopes, and which of them are due.

    Attributes:
        now: the present instant: it counts what happens, and the cycles.
        all: the scopes.
        due: those that get a cycle.
        unsettled: those that are worth a look when they come to rest.
    """

    now: int = 0
    all: dict[Root, Scope] = attrs.field(factory=dict)
    due: dict[Root, Scope] = attrs.field(factory=dict)
    unsettled: dict[Root, Scope] = attrs.field(factory=dict)

    def of(self, root: Root) -> Scope:
        """The scope of this name, a new one if there is none."""
        return self.all.get(root) or self.all.setdefault(root, Scope(root=root, scopes=self))

    def any_due(self) -> bool:
        """Whether any scope is due."""
        for scope in [one for root, one in self.unsettled.items() if root not in self.due]:
            del self.unsettled[scope.root]
            scope.wake_at_rest()
        return bool(self.due)

    def begin_cycle(self) -> tuple[Scope, ...]:
        """The scopes that take part in the cycle that begins."""
        self.any_due()
        due = tuple(self.due.values())
        self.due.clear()
        self.now += 1
        return due


@attrs.define(eq=False, kw_only=True)
class Scope(News):
    """One tree of cohorts, or one ClusterQueue alone.

    Attributes:
        root: its name.
        scopes: all of them.
        members: its ClusterQueues.
        waiting: those of them in which anybody waits.
        touched: when anything happened that a head may notice.
        moved: whether parked workloads have yet to get the turn that follows a change.
        unsure: whether a head went back to its heap although not all that it may get was tried.
        rounds: how many rounds at rest there were since usage or quotas changed.
        preempted: how often each workload made others leave since quota moved from outside.
    """

    root: Root
    scopes: Scopes
    members: dict[str, PendingQueue] = attrs.field(factory=dict)
    waiting: dict[str, PendingQueue] = attrs.field(factory=dict)
    touched: int = 0
    moved: bool = False
    unsure: bool = False
    rounds: int = 0
    preempted: dict[ObjectKey, int] = attrs.field(factory=dict)

    def add(self, queue: PendingQueue) -> None:
        """A ClusterQueue belongs to this scope from now on, and to no other one."""
        if queue.scope is not self:
            queue.scope.remove(queue)
            queue.scope = self
        self.members[queue.name] = queue
        if queue.items:
            self.waiting[queue.name] = queue

    def remove(self, queue: PendingQueue) -> None:
        """A ClusterQueue does not belong to this scope any more."""
        self.members.pop(queue.name, None)
        self.waiting.pop(queue.name, None)
        if not self.members:
            self.scopes.all.pop(self.root, None)

    # --- what happens

    def touch(self) -> int:
        """Something happened that a head may notice; the instant."""
        self.scopes.now += 1
        self.touched = self.scopes.now
        self.is_due_again()
        return self.touched

    def is_due_again(self) -> None:
        """The scope gets a further cycle, although nothing happened in it."""
        self.scopes.due[self.root] = self

    def wake(
        self, freed: Iterable[FlavorResource] | None = None, *, from_outside: bool = True
    ) -> None:
        """Something moved that may help parked workloads.

        Args:
            freed: what became free; None when something else happened, which may help everybody.
            from_outside: whether it happened for another cause than a preemption.
        """
        self.moved = True
        self.free(freed, self.touch())
        if self.moved_since(self.touched - 1):
            self.rounds = 0
            self.unsettle()
        if from_outside:
            self.preempted.clear()

    def charge(self, borrower: str, borrowed: Iterable[FlavorResource | None], lowest: int) -> None:
        """A ClusterQueue uses more than before; see `News.take`."""
        self.take(borrower, borrowed, lowest, self.touch())
        self.rounds = 0
        self.unsettle()

    def unsettle(self, *, unsure: bool = False) -> None:
        """A verdict was given, or a head went back to its heap without one (`unsure`)."""
        self.unsure = self.unsure or unsure
        self.scopes.unsettled[self.root] = self

    # --- cycles

    def take_turns(self) -> list[tuple[str, Pending]]:
        """Uses up one turn of every ClusterQueue; the heads with their ClusterQueues."""
        heads = []
        for name, queue in self.waiting.items():
            if self.moved:
                queue.call()
            item, passed = queue.take_turn(self.scopes.now)
            if passed:
                self.is_due_again()
            if item is not None:
                heads.append((name, item))
        self.moved = False
        return heads

    def wake_at_rest(self) -> None:
        """Requeues the shapes whose verdicts may not hold, because nothing else is left to try.

        If verdicts remain that may not hold, because heads kept meeting at the same flavors, the
        scope does what a new engine would do: it requeues all shapes, and then once more those
        whose verdicts may not hold. After that it waits for the next change.
        """
        parked = [(queue, group) for queue in self.waiting.values() for group in queue.parked()]
        stale = [(queue, group) for queue, group in parked if queue.may_be_stale(group)]
        if self.rounds == len(EVERYBODY_AT_REST) or not (stale or self.unsure):
            return
        for queue, group in parked if EVERYBODY_AT_REST[self.rounds] else stale:
            queue.revive(group)
        self.rounds += 1
        self.unsure = False
        self.touch()
