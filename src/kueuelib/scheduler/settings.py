"""The administrator's choices about decisions."""

from __future__ import annotations

from kueuelib.api.struct import frozen
from kueuelib.scheduler.ordering import EVICTION
from kueuelib.scheduler.policy import KUEUE, PreemptionPolicy
from kueuelib.scheduler.quota.past_usage import UsageRule
from kueuelib.scheduler.quota.resource_rules import AS_REQUESTED, ResourceRules

FINAL_SHARE = "LessThanOrEqualToFinalShare"
"""Without the victim, its side still has at least the share of the preemptor's side."""

INITIAL_SHARE = "LessThanInitialShare"
"""With the victim, its side has a larger share than the preemptor's side."""

BOTH_STRATEGIES = (FINAL_SHARE, INITIAL_SHARE)


@frozen
class FairSharingRules:
    """How quota is shared by weight (KEP-1714).

    Attributes:
        strategies: they decide when a workload of another ClusterQueue may be preempted; the second
            is tried only if the first is not enough.
    """

    strategies: tuple[str, ...] = BOTH_STRATEGIES


NOT_READY_SECONDS = 30.0
"""After so long, a node that is not ready may have failed although pods still run there."""


@frozen
class NodeFailureRules:
    """When a node has failed, and what that means (KEP-2724).

    Attributes:
        replaces: whether the pods of failed nodes get other ones (gate TASFailedNodeReplacement).
        evicts: whether a workload is evicted at once if there is no other node (gate
            TASFailedNodeReplacementFailFast). Otherwise, it is tried again and again.
        taints: whether taints count (gate TASReplaceNodeOnNodeTaints).
        waits_for_pods: whether a node that is not ready, or tainted, has failed only once no pod
            of the workload runs there (gate TASReplaceNodeOnPodTermination). Otherwise, that is
            after `NOT_READY_SECONDS`, or at once if it is tainted.
        not_ready_too_long: whether a node that has not been ready for `NOT_READY_SECONDS` has
            failed in any case (gate TASReplaceNodeDueToNotReadyOverFixedTime).
    """

    replaces: bool = True
    evicts: bool = True
    taints: bool = True
    waits_for_pods: bool = True
    not_ready_too_long: bool = False


@frozen
class Settings:
    """The settings of the decision engine, all from the manager's configuration.

    Attributes:
        queue_timestamp: `Eviction` or `Creation`: whether a workload whose eviction was its own
            fault loses its place (`waitForPodsReady.requeuingStrategy.timestamp`).
        block_admission: admit one workload at a time, until its pods are ready
            (`waitForPodsReady.blockAdmission`).
        partial_admission: whether `minCount` is honoured (gate PartialAdmission).
        flavor_fungibility: whether the preferences of a ClusterQueue are honoured; otherwise
            the first flavor that fits is taken (gate FlavorFungibility).
        priority_sorting: whether priority decides between the heads of a cohort (gate
            PrioritySortingWithinCohort).
        preempt_for_pods: whether the search for victims also makes room for the implicit resource
            `pods`. Today's Kueue does not: a head whose victims free too few pods waits.
        exceeds_quota: whether a head is admitted into room that victims of its cycle have not left
            yet. Today's Kueue does that, and exceeds the quota until they are gone.
        parallel_preemptors: whether the next heads are decided while a preemptor waits for its
            victims. Their room then counts as used by the preemptor. Otherwise it keeps its
            place, and the heads behind it wait.
        protects_nominal: whether no new workload borrows the nominal quota that waiting workloads
            of its owner need (KEP-83). Today's Kueue keeps it for one cycle only.
        fair_sharing: how shares decide on turns and victims; None if they do not.
        past_usage: how past usage of LocalQueues decides on their turns, in ClusterQueues that ask
            for it (KEP-4136); None if it does not.
        preemption: the policy that protects and orders the candidates for preemption.
        resources: the rules for counting resources against quota.
        places_pods: whether requests for a topology are decided (KEP-2724, gate
            TopologyAwareScheduling); otherwise Workloads with such requests wait.
        node_failures: when a node has failed, and what that means.
        mixed_profile: whether pods that any domains will do for fill those with the least room
            first (gate TASProfileMixed); otherwise all pods are placed by BestFit.
    """

    queue_timestamp: str = EVICTION
    block_admission: bool = False
    partial_admission: bool = True
    flavor_fungibility: bool = True
    priority_sorting: bool = True
    preempt_for_pods: bool = False
    exceeds_quota: bool = False
    parallel_preemptors: bool = True
    protects_nominal: bool = False
    fair_sharing: FairSharingRules | None = None
    past_usage: UsageRule | None = None
    preemption: PreemptionPolicy = KUEUE
    resources: ResourceRules = AS_REQUESTED
    places_pods: bool = True
    node_failures: NodeFailureRules = NodeFailureRules()
    mixed_profile: bool = True


DEFAULTS = Settings()
