"""What the administrator may choose about decisions."""

from __future__ import annotations

import attrs

from kueuelib.scheduler.ordering import EVICTION
from kueuelib.scheduler.policy import KUEUE, PreemptionPolicy
from kueuelib.scheduler.quota.past_usage import UsageRule
from kueuelib.scheduler.quota.resource_rules import AS_REQUESTED, ResourceRules

FINAL_SHARE = "LessThanOrEqualToFinalShare"
"""Without the victim, its side still has at least the share of the preemptor's side."""

INITIAL_SHARE = "LessThanInitialShare"
"""With the victim, its side has a larger share than the preemptor's side."""

BOTH_STRATEGIES = (FINAL_SHARE, INITIAL_SHARE)


@attrs.frozen
class FairSharing:
    """How quota is shared by weight (KEP-1714).

    Attributes:
        strategies: when a workload of another ClusterQueue may be preempted; the second one is
            tried only if the first is not enough.
    """

    strategies: tuple[str, ...] = BOTH_STRATEGIES


@attrs.frozen
class Settings:
    """The settings of the decision engine, all from the manager's configuration.

    Attributes:
        queue_timestamp: `Eviction` or `Creation`: whether a workload that was evicted for its own
            fault loses its place (`waitForPodsReady.requeuingStrategy.timestamp`).
        block_admission: admit one workload at a time, until its pods are ready
            (`waitForPodsReady.blockAdmission`).
        partial_admission: whether `minCount` is honoured (gate PartialAdmission).
        flavor_fungibility: whether the preferences of a ClusterQueue are honoured; otherwise
            the first flavor that fits is taken (gate FlavorFungibility).
        priority_sorting: whether priority decides between the heads of a cohort (gate
            PrioritySortingWithinCohort).
        preempt_for_pods: whether the search for victims makes room for the implicit resource `pods`
            as well. Today's Kueue does not: a head whose victims leave too little of it waits.
        exceeds_quota: whether a head is admitted into room that victims of its cycle have yet to
            leave. Today's Kueue does that, and exceeds the quota until they are gone.
        fair_sharing: whether shares decide about turns and victims, and how; None: they do not.
        past_usage: how past usage of LocalQueues decides about their turns, in ClusterQueues that
            ask for it (KEP-4136); None: it does not.
        preemption: which of the workloads that may be preempted are spared, and in which order
            the others leave.
        resources: which resources count against quota, and as what.
    """

    queue_timestamp: str = EVICTION
    block_admission: bool = False
    partial_admission: bool = True
    flavor_fungibility: bool = True
    priority_sorting: bool = True
    preempt_for_pods: bool = False
    exceeds_quota: bool = False
    fair_sharing: FairSharing | None = None
    past_usage: UsageRule | None = None
    preemption: PreemptionPolicy = KUEUE
    resources: ResourceRules = AS_REQUESTED


DEFAULTS = Settings()
