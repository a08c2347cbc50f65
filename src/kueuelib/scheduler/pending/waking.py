"""The rule for waking a Workload that waits without quota (docs/designs/0005-waking.md).

`ScopeChanges` records events in a scope, `ShapeVerdict` the result of a try. A refused Workload is
tried again only after an event that, according to its verdict, may change it: in its turn
(`is_due_in_turn`), or when no other Workload is left to try (`is_doubtful`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from kueuelib.api.kueue import NEVER
from kueuelib.api.preemption_policies import GRANTS
from kueuelib.scheduler.object_reasons import ELSEWHERE
from kueuelib.scheduler.pending.workload_info import WorkloadInfo
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.queue_spec import QueueSpec
from kueuelib.scheduler.reasons import NoFlavors, Reason, waits_alone
from kueuelib.scheduler.values import value

Available = Callable[[str, FlavorResource], int]
"""How much more of a flavor and resource a ClusterQueue could use now."""


@attrs.define(eq=False)
class ScopeChanges:
    """The events in one scope. Instants count the events of all scopes.

    Attributes:
        changed: the last event that may help any Workload: quotas, policies, flavors, checks or
            members changed, or with fair sharing anything became free.
        freed: when some of a flavor and resource became free, since `changed`.
        charged: when a ClusterQueue last used more than before.
        last_freed: when anything became free, since `changed`.
        roomier: when nodes last had more room than before (KEP-2724).
        borrowed: when a ClusterQueue was charged and then borrowed, since `changed`, by its name
            and the borrowed pair, with the lowest priority of the workloads with quota there. None
            stands for any pair.
    """

    changed: int = 0
    freed: dict[FlavorResource, int] = attrs.field(factory=dict)
    charged: int = 0
    last_freed: int = 0
    roomier: int = 0
    borrowed: dict[tuple[str, FlavorResource | None], tuple[int, int]] = attrs.field(factory=dict)

    def changed_or_freed_since(self, instant: int, *, room: bool = True) -> bool:
        """Whether anything that may help a Workload, other than a charge, has happened.

        Args:
            instant: when the Workload was last tried.
            room: whether more room on nodes may help it.
        """
        quota = max(self.changed, self.last_freed)
        return quota > instant or (room and self.roomier > instant)


def wants_room(info: WorkloadInfo, reason: Reason) -> bool:
    """Whether more room on nodes may help a refused Workload, perhaps with fewer pods."""
    if isinstance(reason, NoFlavors) and not any(one.slack for one in info.pod_sets):
        return reason.wants_room
    return not isinstance(reason, ELSEWHERE)


@value
class ShapeVerdict:
    """Why the Workloads of one shape in a ClusterQueue are parked.

    Attributes:
        info: the Workload.
        reason: why it was refused.
        least: per resource, the smallest request of any pod set.
        wants_room: whether more room on nodes may change it, or places for fewer pods.
        began: the instant at which its pass over the flavors began.
        tried: the instant at which the last try of that pass began.
        complete: whether that pass refused every flavor: it was completed, no flavor was lost to
            another head, and nothing became free or changed meanwhile.
    """

    info: WorkloadInfo
    reason: Reason
    least: Mapping[str, int]
    wants_room: bool
    began: int = 0
    tried: int = 0
    complete: bool = True

    @property
    def is_about_quota(self) -> bool:
        """Whether a change of quota can affect it."""
        return not isinstance(self.reason, ELSEWHERE)

    def is_due_in_turn(self, news: ScopeChanges, queue: QueueSpec, available: Available) -> bool:
        """Whether the changes and freed quota since the last try may be enough.

        If the ClusterQueue may preempt, any amount may be enough, because victims may add the rest.
        """
        if waits_alone(self.reason):
            since = news.changed_or_freed_since(self.tried, room=self.wants_room)
            return self.is_about_quota and since
        if news.changed > self.tried or (self.wants_room and news.roomier > self.tried):
            return True
        return any(
            when > self.tried
            and self._wants(pair, queue)
            and (
                not queue.preemption.never_preempts
                or available(queue.name, pair) >= self.least[pair.resource]
            )
            for pair, when in news.freed.items()
        )

    def keeps_quota(self, queue: QueueSpec, available: Available) -> bool:
        """Whether a try withholds free quota from other ClusterQueues in that cycle.

        The next Workload of its own ClusterQueue can then use it.
        """
        return (
            isinstance(self.reason, NoFlavors)
            and self.reason.keeps_quota(queue.preemption)
            and any(
                available(queue.name, pair) > 0
                for pair in queue.limits
                if pair.resource in self.least
            )
        )

    def is_doubtful(self, news: ScopeChanges, queue: QueueSpec) -> bool:
        """Whether another try may have a different result, even if too little or nothing became
        free.
        """
        grant = GRANTS[queue.preemption.reclaim_within_cohort]
        return (
            not self.complete
            or (news.charged > self.began and self._chooses(queue))
            or any(
                when > self.began
                and borrower != queue.name
                and self._wants(pair, queue)
                and lowest_priority <= grant.highest(self.info.priority)
                for (borrower, pair), (when, lowest_priority) in news.borrowed.items()
            )
        )

    def lasts(self, news: ScopeChanges, queue: QueueSpec) -> bool:
        """Whether no cycle by itself can make it doubtful, as for a verdict that is not about
        quota.
        """
        reclaims = queue.preemption.reclaim_within_cohort != NEVER
        doubtful = reclaims or self._chooses(queue) or self.is_doubtful(news, queue)
        return not (self.is_about_quota and doubtful)

    def _chooses(self, queue: QueueSpec) -> bool:
        """Whether one choice of flavors depends on another, so that not all combinations are
        tried.
        """
        several = len(queue.groups) > 1 or len(self.info.pod_sets) > 1
        return several and queue.most_flavors > 1

    def _wants(self, pair: FlavorResource | None, queue: QueueSpec) -> bool:
        return pair is None or (pair.resource in self.least and pair in queue.limits)
