"""What wakes a Workload that waits without quota: the rule (docs/designs/0005-waking.md).

`News` is what happened in a scope, `ShapeVerdict` is what a try came to. A refused Workload is
tried again when something happened since that its verdict names as able to change it, and not
before: in its turn (`is_due_in_turn`), or when no other one is left to try (`is_doubtful`).
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

Available = Callable[[str, FlavorResource], int]
"""How much more of a flavor and resource a ClusterQueue could use now."""


@attrs.define(eq=False)
class News:
    """What happened in one scope. Instants count what happened anywhere.

    Attributes:
        changed: when something happened that may help any Workload: quotas, policies, flavors,
            checks or members changed, or with fair sharing anything became free.
        freed: when some of a flavor and resource became free, since `changed`.
        charged: when a ClusterQueue used more than before.
        borrowed: when a ClusterQueue was charged and borrowed then, since `changed`, by its name
            and by what it borrowed, with the lowest priority of all that held quota there. None
            stands for whatever others ask for.
    """

    changed: int = 0
    freed: dict[FlavorResource, int] = attrs.field(factory=dict)
    charged: int = 0
    borrowed: dict[tuple[str, FlavorResource | None], tuple[int, int]] = attrs.field(factory=dict)

    def changed_or_freed_since(self, instant: int) -> bool:
        """Whether anything other than a charge happened that may help a Workload."""
        return self.changed > instant or max(self.freed.values(), default=0) > instant


@attrs.frozen
class ShapeVerdict:
    """Why a Workload and all others of its shape in its ClusterQueue are parked.

    Attributes:
        info: the Workload.
        reason: why it was refused.
        began: the instant at which its pass over the flavors began.
        tried: the instant at which the last try of that pass began.
        complete: whether that pass refused every flavor: it went to its end, none was lost to
            another head, and meanwhile nothing became free or changed.
        least: per resource the least that any pod set asks for.
    """

    info: WorkloadInfo
    reason: Reason
    began: int = 0
    tried: int = 0
    complete: bool = True
    least: Mapping[str, int] = attrs.field(init=False)

    @least.default
    def _least(self) -> Mapping[str, int]:
        return self.info.least()

    @property
    def is_about_quota(self) -> bool:
        """Whether anything that happens to quota can change it."""
        return not isinstance(self.reason, ELSEWHERE)

    def is_due_in_turn(self, news: News, queue: QueueSpec, available: Available) -> bool:
        """Whether what changed or became free since the last try may be enough.

        Where the ClusterQueue may preempt, any amount is, because victims may add the rest.
        """
        if waits_alone(self.reason):
            return self.is_about_quota and news.changed_or_freed_since(self.tried)
        return news.changed > self.tried or any(
            when > self.tried
            and self._wants(pair, queue)
            and (
                not queue.preemption.never_preempts
                or available(queue.name, pair) >= self.least[pair.resource]
            )
            for pair, when in news.freed.items()
        )

    def keeps_quota(self, queue: QueueSpec, available: Available) -> bool:
        """Whether a try keeps free quota from other ClusterQueues in that cycle.

        The next Workload of its own ClusterQueue can have that then.
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

    def is_doubtful(self, news: News, queue: QueueSpec) -> bool:
        """Whether another try may end otherwise, even if too little became free, or nothing."""
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

    def lasts(self, news: News, queue: QueueSpec) -> bool:
        """Whether no cycle alone can make it doubtful, as of one that is not about quota."""
        reclaims = queue.preemption.reclaim_within_cohort != NEVER
        doubtful = reclaims or self._chooses(queue) or self.is_doubtful(news, queue)
        return not (self.is_about_quota and doubtful)

    def _chooses(self, queue: QueueSpec) -> bool:
        """Whether one choice of flavors depends on another: not all combinations are tried."""
        several = len(queue.groups) > 1 or len(self.info.pod_sets) > 1
        return several and queue.most_flavors > 1

    def _wants(self, pair: FlavorResource | None, queue: QueueSpec) -> bool:
        return pair is None or (pair.resource in self.least and pair in queue.limits)
