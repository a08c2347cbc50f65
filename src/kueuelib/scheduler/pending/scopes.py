"""Scopes: the ClusterQueues that can influence each other, and when they get a cycle.

A scope is due when something happened in it since its last cycle. When nobody is left to be tried
it is at rest, and doubtful shapes are tried again (docs/designs/0005-waking.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.pending.waking import News
from kueuelib.scheduler.quota.amounts import FlavorResource

if TYPE_CHECKING:
    from kueuelib.scheduler.pending.item import Pending
    from kueuelib.scheduler.pending.queue import PendingQueue


ROUNDS = ("doubtful", "all", "doubtful")
"""Which parked shapes the rounds requeue that may follow a change of quotas or usage."""

Root = tuple[str, str]
"""What names a scope: its topmost cohort, or the ClusterQueue that is in none."""


@attrs.define(eq=False)
class Scopes:
    """All scopes, and which of them are due.

    Attributes:
        now: the present instant: it counts what happens, and the cycles.
        all: the scopes.
        due: those that get a cycle.
        unsettled: those that had a cycle, and may begin a round when they come to rest.
    """

    now: int = 0
    all: dict[Root, Scope] = attrs.field(factory=dict)
    due: dict[Root, Scope] = attrs.field(factory=dict)
    unsettled: dict[Root, Scope] = attrs.field(factory=dict)

    def of(self, root: Root) -> Scope:
        """The scope of this name, a new one if there is none."""
        return self.all.get(root) or self.all.setdefault(root, Scope(root=root, scopes=self))

    def settle(self) -> None:
        """Lets the scopes that came to rest begin a round, which makes them due."""
        for root in [root for root in self.unsettled if root not in self.due]:
            self.unsettled.pop(root).begin_round()

    def use_slots(self) -> list[Pending]:
        """A cycle uses up the slots of the ClusterQueues in all scopes that are due; its heads."""
        due, self.due, heads = self.due, {}, []
        self.unsettled |= due
        self.now += 1
        for scope in due.values():
            heads += [queue.use_slot() for queue in scope.waiting.values()]
            scope.turns_owed = False
        return [head for head in heads if head is not None]


@attrs.define(eq=False, kw_only=True)
class Scope:
    """One tree of cohorts, or one ClusterQueue alone.

    Attributes:
        root: its name.
        scopes: all of them.
        news: what happened in it.
        members: its ClusterQueues.
        waiting: those of them in which anybody waits.
        touched: when anything happened that a head may notice.
        turns_owed: whether parked shapes have yet to get the turn that follows a change.
        doubtful_head: whether a head went back to its heap although not all that it may get was
            tried.
        rounds: how many rounds at rest there were since quotas or usage changed.
        preempted: how often each workload made others leave since quota moved from outside.
    """

    root: Root
    scopes: Scopes
    news: News = attrs.field(factory=News)
    members: dict[str, PendingQueue] = attrs.field(factory=dict)
    waiting: dict[str, PendingQueue] = attrs.field(factory=dict)
    touched: int = 0
    turns_owed: bool = False
    doubtful_head: bool = False
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
        """A ClusterQueue does not belong to this scope any more: the others have what it shared."""
        del self.members[queue.name]
        self.waiting.pop(queue.name, None)
        self.note_changed()
        if not self.members:
            for table in (self.scopes.all, self.scopes.due, self.scopes.unsettled):
                table.pop(self.root, None)

    # --- what happens

    def touch(self) -> int:
        """Something happened that a head may notice; the instant."""
        self.scopes.now += 1
        self.touched = self.scopes.now
        self.make_due()
        return self.touched

    def make_due(self) -> None:
        """The scope gets a further cycle, also if nothing happened in it."""
        self.scopes.due[self.root] = self

    def note_changed(self, *, from_outside: bool = True) -> None:
        """Something happened that may help any parked Workload.

        Args:
            from_outside: whether it happened for another cause than a preemption.
        """
        self.note_freed((), from_outside=from_outside)
        self.news = News(self.touched, charged=self.news.charged)
        self.rounds = 0

    def note_freed(self, freed: Collection[FlavorResource], *, from_outside: bool = True) -> None:
        """A Workload ended or holds less; `freed` may be empty, `from_outside` is as above."""
        self.turns_owed = True
        if from_outside:
            self.preempted.clear()
        self.news.freed.update(dict.fromkeys(freed, self.touch()))
        if freed:
            self.rounds = 0

    def note_charged(
        self, borrower: str, borrowed: Iterable[FlavorResource | None], lowest_priority: int
    ) -> None:
        """A ClusterQueue uses more than before.

        Args:
            borrower: the ClusterQueue.
            borrowed: what it borrows, as in `News`; others may find victims in it.
            lowest_priority: the lowest priority that holds quota in it.
        """
        now = self.news.charged = self.touch()
        self.rounds = 0
        for pair in borrowed:
            self.news.borrowed[borrower, pair] = now, lowest_priority

    def begin_round(self) -> None:
        """Unparks the doubtful shapes, because nothing else is left to try.

        If some remain doubtful, because heads kept meeting at the same flavors, the scope does what
        a new engine would do: it unparks all shapes, and then the doubtful ones once more. After
        that it waits for the next change.
        """
        parked = [(queue, group) for queue in self.waiting.values() for group in queue.parked()]
        doubtful = [(queue, group) for queue, group in parked if queue.is_doubtful(group)]
        if self.rounds == len(ROUNDS) or not (doubtful or self.doubtful_head):
            return
        for queue, group in parked if ROUNDS[self.rounds] == "all" else doubtful:
            queue.unpark(group)
        self.rounds += 1
        self.doubtful_head = False
        self.touch()
