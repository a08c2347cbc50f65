"""What wakes a Workload that waits without quota: one rule.

A refused Workload is tried again when something happened since that its verdict names as able to
change it, and not before.

`News` is what happened in a scope, `Verdict` is what a try came to and reads it:

- `turned_by_free`: quotas changed, or enough became free of what the Workload asks for. All parked
  Workloads of the scope then get a turn. In its turn a Workload is tried if this still holds, and
  otherwise its turn passes.
- `turned_by_charge`: quota was taken, which may add victims or change a choice of flavors; or the
  verdict never covered all flavors. The Workload is tried when no other Workload of the scope is
  left to try (`Scope.wake_at_rest`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import attrs

from kueuelib.api.kueue import ANY, NEVER
from kueuelib.scheduler.pending.workload_info import WorkloadInfo
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.queue_spec import QueueSpec
from kueuelib.scheduler.reasons import NoFlavors, Reason

if TYPE_CHECKING:
    from kueuelib.scheduler.pending.item import Pass

Available = Callable[[str, FlavorResource], int]
"""What a ClusterQueue could use more of a flavor and resource, now."""


@attrs.define(eq=False)
class News:
    """What happened in one news. Instants count what happened anywhere.

    Attributes:
        changed: when quotas, policies, flavors, checks or members changed.
        freed: when some of a flavor and resource became free, since `changed`.
        charged: when a ClusterQueue used more than before.
        borrowed: when a ClusterQueue was charged and borrowed then, since `changed`, by its name
            and by what it borrowed, with the lowest priority that held quota there.
    """

    changed: int = 0
    freed: dict[FlavorResource, int] = attrs.field(factory=dict)
    charged: int = 0
    borrowed: dict[tuple[str, FlavorResource | None], tuple[int, int]] = attrs.field(factory=dict)

    def free(self, freed: Iterable[FlavorResource] | None, now: int) -> None:
        """Something became free; None when something else happened, which may help everybody."""
        if freed is None:
            self.changed = now
            self.freed.clear()
            self.borrowed.clear()
        else:
            self.freed.update(dict.fromkeys(freed, now))

    def take(
        self, borrower: str, borrowed: Iterable[FlavorResource | None], lowest: int, now: int
    ) -> None:
        """A ClusterQueue uses more than before.

        Args:
            borrower: the ClusterQueue.
            borrowed: what it borrows; others may find victims in it. None: whatever they ask for.
            lowest: the lowest priority that holds quota in it.
            now: the present instant.
        """
        self.charged = now
        for pair in borrowed:
            self.borrowed[borrower, pair] = (now, lowest)

    def moved_since(self, instant: int) -> bool:
        """Whether quotas changed, or anything became free."""
        return self.changed > instant or any(when > instant for when in self.freed.values())


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

    def turned_by_free(self, news: News, queue: QueueSpec, available: Available) -> bool:
        """Whether what happened since the last try may be enough.

        Where the ClusterQueue may preempt, any amount is, because victims may add the rest.
        """
        if self.alone or news.changed > self.tried:
            return news.moved_since(self.tried)
        return any(
            when > self.tried
            and self._wants(pair, queue)
            and (
                not queue.preemption.spares_all
                or available(queue.name, pair) >= self.asks[pair.resource]
            )
            for pair, when in news.freed.items()
        )

    def turned_by_charge(self, news: News, queue: QueueSpec) -> bool:
        """Whether the verdict may not hold, although too little became free, or nothing."""
        began, policy = self.search.began, queue.preemption.reclaim_within_cohort
        return (
            not self.complete
            or (news.charged > began and self.chooses(queue))
            or any(
                when > began
                and borrower != queue.name
                and self._wants(pair, queue)
                and (policy == ANY or (policy != NEVER and self.info.priority > lowest))
                for (borrower, pair), (when, lowest) in news.borrowed.items()
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
