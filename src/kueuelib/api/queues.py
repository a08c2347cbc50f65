"""ClusterQueues, LocalQueues, Cohorts, ResourceFlavors and Topologies as typed values.

The `wire` of a field holds what the schema of the CRD says about it.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kueuelib.api.core import Taint, Toleration
from kueuelib.api.kinds import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, RESOURCE_FLAVORS, TOPOLOGIES
from kueuelib.api.meta import Condition, KubeObject, LabelSelector
from kueuelib.api.patterns import (
    BEST_EFFORT_FIFO,
    BORROWING_OVER_PREEMPTION,
    CONDITIONS,
    GROUP_LIMIT,
    HOLD,
    HOLD_AND_DRAIN,
    LABEL_VALUE,
    LIST_LIMIT,
    MAY_STOP_SEARCH,
    NO_ADMISSION_FAIR_SHARING,
    NONE,
    OPTIONAL_SUBDOMAIN,
    PREEMPTION_OVER_BORROWING,
    QUALIFIED,
    STRICT_FIFO,
    SUBDOMAIN,
    TRY_NEXT_FLAVOR,
    USAGE_BASED_ADMISSION_FAIR_SHARING,
)
from kueuelib.api.preemption_policies import (
    BORROW_WITHIN_COHORT,
    NEVER,
    RECLAIM_WITHIN_COHORT,
    WITHIN_CLUSTER_QUEUE,
)
from kueuelib.api.quantity import NOT_NEGATIVE, ZERO, Quantity
from kueuelib.api.struct import NOTHING, Struct, Time, frozen, wire
from kueuelib.api.workload import LEVEL_LIMIT

# ---- what ClusterQueues and Cohorts have in common: quota by flavor and resource, and weights ----

ONE = Quantity.of(1)


@frozen
class ResourceQuota(Struct):
    """How much of one resource in one flavor belongs to a queue or a cohort.

    Attributes:
        name: the resource, for example `cpu`.
        nominal_quota: the queue's own quota; for a cohort, what it adds to the quota of its
            members.
        borrowing_limit: how much a queue, or all members of a cohort, may borrow from the cohort
            above; absent: everything.
        lending_limit: how much of its quota others may borrow; absent: everything.
    """

    name: str = attrs.field(metadata=wire(required=True))
    nominal_quota: Quantity = attrs.field(
        default=ZERO, metadata=wire(required=True, always=True, **NOT_NEGATIVE)
    )
    borrowing_limit: Quantity | None = attrs.field(default=None, metadata=wire(**NOT_NEGATIVE))
    lending_limit: Quantity | None = attrs.field(default=None, metadata=wire(**NOT_NEGATIVE))


@frozen
class FlavorQuotas(Struct):
    """The quotas of one flavor, in the order of the covered resources."""

    name: str = attrs.field(metadata=wire(required=True, **SUBDOMAIN))
    resources: tuple[ResourceQuota, ...] = attrs.field(
        default=(),
        metadata=wire(required=True, always=True, keys=("name",), minItems=1, maxItems=LIST_LIMIT),
    )


@frozen
class ResourceGroup(Struct):
    """Resources that are taken from the same flavors.

    Attributes:
        covered_resources: the names of the resources.
        flavors: the flavors in the order they are tried.
    """

    covered_resources: tuple[str, ...] = attrs.field(
        default=(),
        metadata=wire(
            required=True,
            always=True,
            kind="set",
            minItems=1,
            maxItems=LIST_LIMIT,
            items=QUALIFIED,
        ),
    )
    flavors: tuple[FlavorQuotas, ...] = attrs.field(
        default=(),
        metadata=wire(required=True, always=True, keys=("name",), minItems=1, maxItems=LIST_LIMIT),
    )


@frozen
class FairSharing(Struct):
    """How much a queue or cohort may borrow compared with others (KEP-1714).

    Attributes:
        weight: the share of what is borrowed is divided by it. With 0, the queue or cohort comes
            after all others while it borrows.
    """

    weight: Quantity = attrs.field(
        default=ONE, metadata=wire(always=True, default=1, **NOT_NEGATIVE)
    )


@frozen
class FairSharingStatus(Struct):
    """How much a queue or cohort borrows at the moment, compared with others.

    Attributes:
        weighted_share: the largest share of borrowed quota among the resources, in thousandths of
            what the parent cohort can lend, divided by the weight and rounded up. 0 without
            borrowing; 9223372036854775807 for one that borrows with weight 0.
    """

    weighted_share: int = attrs.field(
        default=0, metadata=wire(required=True, always=True, format="int64")
    )


# ---- cohorts as typed values (KEP-79) ------------------------------------------------------------


@frozen
class CohortSpec(Struct):
    """The place of a Cohort in its tree, and the quota it adds.

    Attributes:
        parent_name: the cohort above; empty: the Cohort is a root. The parent need not exist as an
            object. While parents form a cycle, nothing below it is admitted.
        resource_groups: quota that belongs to all members together, in addition to their own.
            Limits say how much the members together may borrow from the parent and lend to it.
        fair_sharing: the weight of the Cohort below its parent.
    """

    parent_name: str = attrs.field(default="", metadata=wire(**OPTIONAL_SUBDOMAIN))
    resource_groups: tuple[ResourceGroup, ...] = attrs.field(
        default=(), metadata=wire(kind="atomic", maxItems=GROUP_LIMIT)
    )
    fair_sharing: FairSharing | None = None


@frozen
class CohortStatus(Struct):
    """The present state of a Cohort.

    Attributes:
        fair_sharing: the share of the Cohort; absent unless fair sharing is on.
    """

    fair_sharing: FairSharingStatus | None = None


@frozen
class Cohort(KubeObject):
    """Quota and limits of a group of ClusterQueues and Cohorts that borrow from each other."""

    resource = COHORTS

    spec: CohortSpec = attrs.field(factory=CohortSpec)
    status: CohortStatus = attrs.field(factory=CohortStatus)


# --------------------------------------------------------------------------------------------------

# ---- ClusterQueue


@frozen
class FlavorFungibility(Struct):
    """Whether the search for a flavor stops at one that needs borrowing or preemption.

    Attributes:
        when_can_borrow: MayStopSearch or TryNextFlavor.
        when_can_preempt: MayStopSearch or TryNextFlavor.
        preference: BorrowingOverPreemption or PreemptionOverBorrowing: which one to prefer when
            some flavors need borrowing and others preemption; empty: BorrowingOverPreemption.
    """

    when_can_borrow: str = attrs.field(
        default=MAY_STOP_SEARCH,
        metadata=wire(
            always=True, enum=[MAY_STOP_SEARCH, TRY_NEXT_FLAVOR], default=MAY_STOP_SEARCH
        ),
    )
    when_can_preempt: str = attrs.field(
        default=TRY_NEXT_FLAVOR,
        metadata=wire(
            always=True, enum=[MAY_STOP_SEARCH, TRY_NEXT_FLAVOR], default=TRY_NEXT_FLAVOR
        ),
    )
    preference: str = attrs.field(
        default="", metadata=wire(enum=[BORROWING_OVER_PREEMPTION, PREEMPTION_OVER_BORROWING])
    )


@frozen
class BorrowWithinCohort(Struct):
    """Whether a queue may preempt in other queues while it borrows.

    Attributes:
        policy: which workloads it may preempt then.
        max_priority_threshold: only workloads up to this priority are preempted; absent: no limit.
    """

    policy: str = attrs.field(
        default=NEVER, metadata=wire(always=True, enum=list(BORROW_WITHIN_COHORT), default=NEVER)
    )
    max_priority_threshold: int | None = None


@frozen
class Preemption(Struct):
    """Which workloads those of a queue may preempt (KEP-83).

    Attributes:
        reclaim_within_cohort: in other queues of the cohort, from what they borrow.
        borrow_within_cohort: while borrowing.
        within_cluster_queue: in the same queue.
    """

    reclaim_within_cohort: str = attrs.field(
        default=NEVER,
        metadata=wire(always=True, enum=list(RECLAIM_WITHIN_COHORT), default=NEVER),
    )
    borrow_within_cohort: BorrowWithinCohort = attrs.field(
        factory=BorrowWithinCohort, metadata=wire(always=True, default={})
    )
    within_cluster_queue: str = attrs.field(
        default=NEVER,
        metadata=wire(
            always=True,
            enum=list(WITHIN_CLUSTER_QUEUE),
            default=NEVER,
        ),
    )


@frozen
class AdmissionCheckRule(Struct):
    """A check, and the flavors for which it is needed; no flavors mean all."""

    name: str = attrs.field(metadata=wire(required=True, minLength=1, maxLength=316))
    on_flavors: tuple[str, ...] = attrs.field(
        default=(), metadata=wire(kind="set", maxItems=LIST_LIMIT, items=SUBDOMAIN)
    )


@frozen
class AdmissionChecksStrategy(Struct):
    """The checks that workloads of a queue must pass (KEP-993)."""

    admission_checks: tuple[AdmissionCheckRule, ...] = attrs.field(
        default=(),
        metadata=wire(required=True, always=True, keys=("name",), minItems=1, maxItems=LIST_LIMIT),
    )


@frozen
class AdmissionScope(Struct):
    """Whether the usage of LocalQueues decides the order of admission (KEP-4136).

    Attributes:
        admission_mode: UsageBasedAdmissionFairSharing or NoAdmissionFairSharing.
    """

    admission_mode: str = attrs.field(
        metadata=wire(
            required=True,
            enum=[USAGE_BASED_ADMISSION_FAIR_SHARING, NO_ADMISSION_FAIR_SHARING],
        )
    )


@frozen
class ClusterQueueSpec(Struct):
    """Quota and policies of a ClusterQueue.

    Attributes:
        resource_groups: what the queue may use.
        cohort_name: the cohort, whose queues borrow from each other; empty if it is in none.
        queueing_strategy: StrictFIFO or BestEffortFIFO.
        namespace_selector: which namespaces may use the queue; absent: no namespace.
        flavor_fungibility: when the search for a flavor stops.
        preemption: which workloads its own may preempt.
        admission_checks_strategy: what workloads must pass before they start.
        stop_policy: None, Hold (nothing is admitted) or HoldAndDrain (running ones are evicted).
        fair_sharing: the weight of the queue in its cohort.
        admission_scope: the order of admission between the LocalQueues of the queue.
    """

    resource_groups: tuple[ResourceGroup, ...] = attrs.field(
        default=(), metadata=wire(kind="atomic", maxItems=GROUP_LIMIT)
    )
    cohort_name: str = attrs.field(default="", metadata=wire(**OPTIONAL_SUBDOMAIN))
    queueing_strategy: str = attrs.field(
        default=BEST_EFFORT_FIFO,
        metadata=wire(always=True, enum=[STRICT_FIFO, BEST_EFFORT_FIFO], default=BEST_EFFORT_FIFO),
    )
    namespace_selector: LabelSelector | None = attrs.field(
        default=None, metadata=wire(kind="atomic")
    )
    flavor_fungibility: FlavorFungibility = attrs.field(
        factory=FlavorFungibility, metadata=wire(always=True, default={})
    )
    preemption: Preemption = attrs.field(factory=Preemption, metadata=wire(always=True, default={}))
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    stop_policy: str = attrs.field(
        default=NONE,
        metadata=wire(always=True, enum=[NONE, HOLD, HOLD_AND_DRAIN], default=NONE),
    )
    fair_sharing: FairSharing | None = None
    admission_scope: AdmissionScope | None = None


@frozen
class ResourceUsage(Struct):
    """How much of one resource in one flavor is used.

    Attributes:
        name: the resource.
        total: everything that is used.
        borrowed: the part beyond the nominal quota.
    """

    name: str = attrs.field(metadata=wire(required=True))
    total: Quantity = attrs.field(default=ZERO, metadata=wire(always=True))
    borrowed: Quantity = attrs.field(default=ZERO, metadata=wire(always=True))


@frozen
class FlavorUsage(Struct):
    """How much of one flavor is used."""

    name: str = attrs.field(metadata=wire(required=True, **SUBDOMAIN))
    resources: tuple[ResourceUsage, ...] = attrs.field(
        default=(), metadata=wire(required=True, always=True, keys=("name",), maxItems=LIST_LIMIT)
    )


_USAGE = wire(keys=("name",), maxItems=LIST_LIMIT)


@frozen
class ClusterQueueStatus(Struct):
    """The present state of a ClusterQueue.

    Attributes:
        conditions: `Active` says whether it can admit.
        flavors_reservation: usage of all workloads that hold quota.
        flavors_usage: usage of admitted workloads.
        pending_workloads: how many wait.
        reserving_workloads: how many hold quota.
        admitted_workloads: how many are admitted and unfinished.
        fair_sharing: the share of the queue; absent unless fair sharing is on.
    """

    conditions: tuple[Condition, ...] = attrs.field(default=(), metadata=CONDITIONS)
    flavors_reservation: tuple[FlavorUsage, ...] = attrs.field(default=(), metadata=_USAGE)
    flavors_usage: tuple[FlavorUsage, ...] = attrs.field(default=(), metadata=_USAGE)
    pending_workloads: int = attrs.field(default=0, metadata=wire(always=True))
    reserving_workloads: int = attrs.field(default=0, metadata=wire(always=True))
    admitted_workloads: int = attrs.field(default=0, metadata=wire(always=True))
    fair_sharing: FairSharingStatus | None = None


@frozen
class ClusterQueue(KubeObject):
    """Quota that the workloads of several namespaces share."""

    resource = CLUSTER_QUEUES

    spec: ClusterQueueSpec = attrs.field(factory=ClusterQueueSpec)
    status: ClusterQueueStatus = attrs.field(factory=ClusterQueueStatus)


# ---- LocalQueue


@frozen
class LocalQueueSpec(Struct):
    """The ClusterQueue of a LocalQueue, and its settings.

    Attributes:
        cluster_queue: the ClusterQueue that admits them; cannot change.
        stop_policy: None, Hold (nothing is admitted) or HoldAndDrain (running ones are evicted).
        fair_sharing: the weight of the LocalQueue in admission fair sharing (KEP-4136).
    """

    cluster_queue: str = attrs.field(default="", metadata=wire(required=True, **SUBDOMAIN))
    stop_policy: str = attrs.field(
        default=NONE,
        metadata=wire(always=True, enum=[NONE, HOLD, HOLD_AND_DRAIN], default=NONE),
    )
    fair_sharing: FairSharing | None = None


@frozen
class LocalResourceUsage(Struct):
    """How much of one resource in one flavor is used through a LocalQueue."""

    name: str = attrs.field(metadata=wire(required=True))
    total: Quantity = attrs.field(default=ZERO, metadata=wire(always=True))


@frozen
class LocalFlavorUsage(Struct):
    """How much of one flavor is used through a LocalQueue."""

    name: str = attrs.field(metadata=wire(required=True, **SUBDOMAIN))
    resources: tuple[LocalResourceUsage, ...] = attrs.field(
        default=(), metadata=wire(required=True, always=True, keys=("name",), maxItems=LIST_LIMIT)
    )


@frozen
class ConsumedStatus(Struct):
    """What was used through a LocalQueue; older usage counts less (KEP-4136).

    Attributes:
        consumed_resources: the decayed amounts of each resource, all flavors together.
        last_update: the time of these amounts.
    """

    consumed_resources: Mapping[str, Quantity] = attrs.field(
        default=NOTHING, metadata=wire(required=True, always=True)
    )
    last_update: Time = attrs.field(default=0.0, metadata=wire(required=True, always=True))


@frozen
class LocalQueueFairSharingStatus(Struct):
    """What decides the place of a LocalQueue within its ClusterQueue (KEP-4136).

    Attributes:
        weighted_share: always 0: a LocalQueue borrows nothing.
        admission_fair_sharing_status: what was used through it; absent if nothing was.
    """

    weighted_share: int = attrs.field(
        default=0, metadata=wire(required=True, always=True, format="int64")
    )
    admission_fair_sharing_status: ConsumedStatus | None = None


@frozen
class LocalQueueStatus(Struct):
    """The present state of a LocalQueue.

    Attributes:
        conditions: `Active` says whether its ClusterQueue can admit.
        pending_workloads: how many wait.
        reserving_workloads: how many hold quota.
        admitted_workloads: how many are admitted and unfinished.
        flavors_reservation: usage of all workloads that hold quota.
        flavors_usage: usage of admitted workloads.
        fair_sharing: past usage; absent unless admission fair sharing counts it.
    """

    conditions: tuple[Condition, ...] = attrs.field(default=(), metadata=CONDITIONS)
    pending_workloads: int = attrs.field(default=0, metadata=wire(always=True))
    reserving_workloads: int = attrs.field(default=0, metadata=wire(always=True))
    admitted_workloads: int = attrs.field(default=0, metadata=wire(always=True))
    flavors_reservation: tuple[LocalFlavorUsage, ...] = attrs.field(default=(), metadata=_USAGE)
    flavors_usage: tuple[LocalFlavorUsage, ...] = attrs.field(default=(), metadata=_USAGE)
    fair_sharing: LocalQueueFairSharingStatus | None = None


@frozen
class LocalQueue(KubeObject):
    """The entry from a namespace to a ClusterQueue."""

    resource = LOCAL_QUEUES

    spec: LocalQueueSpec = attrs.field(factory=LocalQueueSpec, metadata=wire(required=True))
    status: LocalQueueStatus = attrs.field(factory=LocalQueueStatus)


# ---- ResourceFlavor


@frozen
class ResourceFlavorSpec(Struct):
    """What the nodes of a flavor have in common.

    Attributes:
        node_labels: given to pods as node selector.
        node_taints: pods must tolerate them to get the flavor.
        tolerations: given to pods.
        topology_name: the Topology by which pods are placed on the nodes; cannot change. A
            ClusterQueue with such a flavor is inactive.
    """

    node_labels: Mapping[str, str] = attrs.field(
        default=NOTHING, metadata=wire(kind="atomic", maxProperties=8, items=LABEL_VALUE)
    )
    node_taints: tuple[Taint, ...] = attrs.field(
        default=(), metadata=wire(kind="atomic", maxItems=8)
    )
    tolerations: tuple[Toleration, ...] = attrs.field(
        default=(), metadata=wire(kind="atomic", maxItems=8)
    )
    topology_name: str = attrs.field(default="", metadata=wire(**SUBDOMAIN))


@frozen
class ResourceFlavor(KubeObject):
    """A variant of resources, usually a kind of node."""

    resource = RESOURCE_FLAVORS

    spec: ResourceFlavorSpec = attrs.field(factory=ResourceFlavorSpec)


# ---- Topology


@frozen
class TopologyLevel(Struct):
    """One level of a Topology.

    Attributes:
        node_label: the label whose values are the domains of the level.
    """

    node_label: str = attrs.field(metadata=wire(required=True, **QUALIFIED))


@frozen
class TopologySpec(Struct):
    """How the nodes of a flavor are grouped.

    Attributes:
        levels: from coarse to fine; the last one may be that of single nodes,
            `kubernetes.io/hostname`.
    """

    levels: tuple[TopologyLevel, ...] = attrs.field(
        default=(),
        metadata=wire(required=True, always=True, kind="atomic", minItems=1, maxItems=LEVEL_LIMIT),
    )


@frozen
class Topology(KubeObject):
    """The hierarchy of the nodes of ResourceFlavors, such as blocks, racks and hosts."""

    resource = TOPOLOGIES

    spec: TopologySpec = attrs.field(
        factory=TopologySpec, metadata=wire(required=True, always=True)
    )

    @property
    def levels(self) -> tuple[str, ...]:
        """The label keys, from coarse to fine."""
        return tuple([level.node_label for level in self.spec.levels])
