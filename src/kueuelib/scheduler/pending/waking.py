"""What wakes a Workload that waits without quota: one rule.

A refused Workload is tried again when something happened since that its verdict names as able to
change it, and not before.

`ScopeState` is what happened, `Verdict` is what a try came to and reads it:

- `turned_by_free`: quotas changed, or enough became free of what the Workload asks for. All parked
  Workloads of the scope then get a turn. In its turn a Workload is tried if this still holds, and
  otherwise its turn passes.
- `turned_by_charge`: quota was taken, which may add victims or change a choice of flavors; or the
  verdict never covered all flavors. The Workload is tried when no other Workload of the scope is
  left to try (`ScopeState.wake_at_rest`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import attrs

from kueuelib.api.kueue import ANY, NEVER
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.pending.workload_info import WorkloadInfo
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.queue_spec import QueueSpec
from kueuelib.scheduler.reasons import NoFlavors, Reason

if TYPE_CHECKING:
    from kueuelib.scheduler.pending.item import Pass, Pending
    from kueuelib.scheduler.pending.queue import PendingQueue

Available = Callable[[str, FlavorResource], int]
"""What a ClusterQueue could use more of a flavor and resource, now."""

EVERYBODY_AT_REST = (False, True, False)
"""For each round at rest, whether it requeues all shapes, or only those whose verdicts may not
hold."""


class Scope(NamedTuple):
    """The ClusterQueues that can influence each other: one tree, or one ClusterQueue alone."""

    root: str
    cluster_queue: str


NOWHERE = Scope("", "")
"""The scope of a ClusterQueue that was not put into any yet."""


def scope_of(root: str, cluster_queue: str) -> Scope:
    """The scope of a ClusterQueue, by the topmost cohort above it, empty for none."""
    return Scope(root, "") if root else Scope("", cluster_queue)


@attrs.define(eq=False)
class ScopeState:
    """What happened in one scope. Instants count what happened anywhere.

    Attributes:
        scope: which one.
        members: its ClusterQueues.
        waiting: those of them in which anybody waits.
        touched: when anything happened that a head may notice.
        changed: when quotas, policies, flavors, checks or members changed.
        freed: when some of a flavor and resource became free, since `changed`.
        charged: when a ClusterQueue used more than before.
        borrowed: when a ClusterQueue was charged and borrowed then, since `changed`, by its name
            and by what it borrowed, with the lowest priority that held quota there.
        moved: whether parked workloads have yet to get the turn that follows a change.
        unsure: whether a head went back to its heap although not all flavors were tried.
        rounds: how many rounds at rest there were since usage or quotas changed.
        preempted: how often each workload made others leave since quota moved from outside.
    """

    scope: Scope
    members: dict[str, PendingQueue] = attrs.field(factory=dict)
    waiting: dict[str, PendingQueue] = attrs.field(factory=dict)
    touched: int = 0
    changed: int = 0
    freed: dict[FlavorResource, int] = attrs.field(factory=dict)
    charged: int = 0
    borrowed: dict[tuple[str, FlavorResource | None], tuple[int, int]] = attrs.field(factory=dict)
    moved: bool = False
    unsure: bool = False
    rounds: int = 0
    preempted: dict[ObjectKey, int] = attrs.field(factory=dict)

    def free(self, freed: Iterable[FlavorResource] | None, now: int) -> None:
        """Something became free; None when something else happened, which may help everybody."""
        self.moved = True
        queues = self.members.values()
        if freed is None:
            self.changed, self.rounds = now, 0
            self.freed.clear()
            self.borrowed.clear()
            return
        for pair in freed:
            if any(pair in queue.spec.limits for queue in queues):
                self.freed[pair], self.rounds = now, 0

    def charge(
        self, borrower: str, borrowed: Iterable[FlavorResource | None], lowest: int, now: int
    ) -> None:
        """A ClusterQueue uses more than before.

        Args:
            borrower: the ClusterQueue.
            borrowed: what it borrows; others may find victims in it. None: whatever they ask for.
            lowest: the lowest priority that holds quota in it.
            now: the present instant.
        """
        self.charged, self.rounds = now, 0
        for pair in borrowed:
            self.borrowed[borrower, pair] = (now, lowest)

    def moved_since(self, instant: int) -> bool:
        """Whether quotas changed, or anything became free."""
        return self.changed > instant or any(when > instant for when in self.freed.values())

    def take_turns(self, available: Available, now: int) -> tuple[list[tuple[str, Pending]], bool]:
        """Uses up one turn of every ClusterQueue.

        Args:
            available: what a ClusterQueue could use more of a pair, now.
            now: the present instant.

        Returns:
            The heads with their ClusterQueues, and whether another cycle is needed because a turn
            passed while Workloads are left to try.
        """
        heads, passed = [], False
        for name, queue in self.waiting.items():
            if self.moved:
                queue.call(available)
            item, passes = queue.take_turn(available, now)
            passed = passed or passes
            if item is not None:
                heads.append((name, item))
        self.moved = False
        return heads, passed

    def wake_at_rest(self, now: int) -> bool:
        """Requeues the shapes whose verdicts may not hold, because nothing else is left to try.

        If verdicts remain that may not hold, because heads kept meeting at the same flavors, the
        scope does what a new engine would do: it requeues all shapes, and then once more those
        whose verdicts may not hold. After that it waits for the next change.

        Args:
            now: the present instant.

        Returns:
            Whether there is anything to try.
        """
        parked = [(queue, group) for queue in self.waiting.values() for group in queue.parked()]
        stale = [
            (queue, group)
            for queue, group in parked
            if group.verdict is not None and group.verdict.turned_by_charge(self, queue.spec)
        ]
        if self.rounds == len(EVERYBODY_AT_REST) or not (stale or self.unsure):
            return False
        for queue, group in parked if EVERYBODY_AT_REST[self.rounds] else stale:
            queue.revive(group)
        self.rounds += 1
        self.touched, self.unsure = now, False
        return True


@attrs.frozen
class Verdict:
    """What trying a Workload came to, for all of its shape in its ClusterQueue.

    Attributes:
        info: the Workload.
        reason: why it was refused.
        search: its pass over the flavors.
        tried: the instant at which the last try of that pass began.
        complete: whether that pass refused every flavor: none was lost to another head, and nothing
            became free in the course of it.
        came_round: whether the pass ended although flavors were left to try.
        asks: per resource the least that a pod set asks for; less cannot help without preemption.
    """

    info: WorkloadInfo
    reason: Reason
    search: Pass
    tried: int
    complete: bool
    came_round: bool
    asks: Mapping[str, int] = attrs.field(init=False)

    @asks.default
    def _least(self) -> dict[str, int]:
        asks: dict[str, int] = {}
        for found in self.info.pod_sets:
            fewest = found.count if found.min_count is None else min(found.count, found.min_count)
            for resource, amount in found.requests(fewest, count_pods=True).items():
                asks[resource] = min(amount, asks.get(resource, amount))
        return asks

    @property
    def alone(self) -> bool:
        """Whether it holds for one Workload only, which anything that moves may help."""
        return not isinstance(self.reason, NoFlavors) or self.reason.in_vain > 0

    def turned_by_free(self, scope: ScopeState, queue: QueueSpec, available: Available) -> bool:
        """Whether what happened since the last try may be enough.

        Where the ClusterQueue may preempt, any amount is, because victims may add the rest.
        """
        if self.alone or scope.changed > self.tried:
            return scope.moved_since(self.tried)
        return any(
            when > self.tried
            and self._wants(pair, queue)
            and (
                not queue.preemption.spares_all
                or available(queue.name, pair) >= self.asks[pair.resource]
            )
            for pair, when in scope.freed.items()
        )

    def turned_by_charge(self, scope: ScopeState, queue: QueueSpec) -> bool:
        """Whether the verdict may not hold, although too little became free, or nothing."""
        began, policy = self.search.began, queue.preemption.reclaim_within_cohort
        return (
            not self.complete
            or (scope.charged > began and self.chooses(queue))
            or any(
                when > began
                and borrower != queue.name
                and self._wants(pair, queue)
                and (policy == ANY or (policy != NEVER and self.info.priority > lowest))
                for (borrower, pair), (when, lowest) in scope.borrowed.items()
            )
        )

    def chooses(self, queue: QueueSpec) -> bool:
        """Whether one choice of flavors depends on another. Not all combinations are tried, so any
        charge may lead to a choice that was not made.
        """
        several = len(queue.groups) > 1 or len(self.info.pod_sets) > 1
        return several and queue.most_flavors > 1

    def _wants(self, pair: FlavorResource | None, queue: QueueSpec) -> bool:
        return pair is None or (pair.resource in self.asks and pair in queue.limits)
