"""Scopes: ClusterQueues that can influence each other, with their events and rounds at rest.

A scope is due if something happened in it since its last cycle. When no Workload is left to try, it
is at rest, and doubtful shapes are tried again (docs/designs/0005-waking.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.pending.waking import News
from kueuelib.scheduler.quota.amounts import FlavorResource

if TYPE_CHECKING:
    from kueuelib.scheduler.pending.queue import PendingQueue
    from kueuelib.scheduler.pending.queues import Queues

ROUNDS = ("doubtful", "all", "doubtful")
"""The parked shapes that each round at rest unparks, after a change of quotas or usage."""

Root = tuple[str, str]
"""The name of a scope: its topmost cohort and "", or "" and a ClusterQueue without a cohort."""


@attrs.define(eq=False)
class Scope:
    """One tree of cohorts, or one ClusterQueue alone.

    Attributes:
        root: its name.
        queues: all waiting Workloads, and the due scopes.
        news: the events in it.
        members: its ClusterQueues.
        waiting: those of them with waiting Workloads.
        touched: the instant of the last event of any kind.
        turns_owed: whether parked shapes have not had their turn after a change yet.
        doubtful_head: whether a head returned to its heap with a doubtful verdict.
        rounds: the number of rounds at rest since quotas or usage changed.
        helped: the instant of the last change or release not caused by a preemption.
        preempted: how often each Workload preempted others since the last change or release not
            caused by a preemption.
    """

    root: Root
    queues: Queues
    news: News = attrs.field(factory=News)
    members: dict[str, PendingQueue] = attrs.field(factory=dict)
    waiting: dict[str, PendingQueue] = attrs.field(factory=dict)
    touched: int = 0
    turns_owed: bool = False
    doubtful_head: bool = False
    rounds: int = 0
    helped: int = 0
    preempted: dict[ObjectKey, int] = attrs.field(factory=dict)

    def add(self, queue: PendingQueue) -> None:
        """Add a ClusterQueue, which leaves its former scope."""
        if queue.scope is not self:
            queue.scope.remove(queue)
            queue.scope = self
        self.members[queue.name] = queue
        if queue.items:
            self.waiting[queue.name] = queue

    def remove(self, queue: PendingQueue) -> None:
        """Remove a ClusterQueue, after which the others may be able to borrow more or less."""
        del self.members[queue.name]
        self.waiting.pop(queue.name, None)
        self.note_changed()
        if not self.members:
            for table in (self.queues.scopes, self.queues.due, self.queues.unsettled):
                table.pop(self.root, None)

    def touch(self) -> int:
        """Record an event that may affect a head; returns its instant."""
        queues = self.queues
        queues.instant += 1
        self.touched = queues.instant
        queues.due[self.root] = self
        return self.touched

    def make_due(self) -> None:
        """Request a further cycle, even without an event."""
        self.queues.due[self.root] = self

    def note_changed(self, *, from_outside: bool = True) -> None:
        """Record an event that may help any parked Workload."""
        self.note_freed((), from_outside=from_outside)
        self.news = News(self.touched, charged=self.news.charged)
        self.rounds = 0

    def note_freed(self, freed: Collection[FlavorResource], *, from_outside: bool = True) -> None:
        """Record that a Workload holds less than before, by `freed`.

        If `freed` is empty, turns are owed, but no verdict is due.
        """
        self.turns_owed = True
        if from_outside:
            self.preempted.clear()
        now = self.touch()
        if from_outside:
            self.helped = now
        if freed:
            self.news.freed.update(dict.fromkeys(freed, now))
            self.news.last_freed = now
            self.rounds = 0

    def note_charged(
        self, borrower: str, borrowed: Iterable[FlavorResource | None], lowest_priority: int
    ) -> None:
        """Record that a ClusterQueue uses more than before; the other arguments are for
        `News.borrowed`.
        """
        now = self.news.charged = self.touch()
        self.rounds = 0
        for pair in borrowed:
            self.news.borrowed[borrower, pair] = now, lowest_priority

    def begin_round(self) -> None:
        """Begins a round at rest if a verdict is doubtful.

        If some verdicts remain doubtful, because heads kept competing for the same flavors, the
        scope acts like a new engine: it unparks all shapes, and then the doubtful ones once more.
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
