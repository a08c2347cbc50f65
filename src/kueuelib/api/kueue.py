"""The queueing objects as typed values, spelled like `v1beta2` (spec/api 1 and 7).

The `wire` of a field holds what the schema of the CRD says about it.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kueuelib.api.core import PodTemplateSpec, Taint, Toleration
from kueuelib.api.kinds import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    PROVISIONING_REQUEST_CONFIGS,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from kueuelib.api.meta import Condition, KubeObject, LabelSelector
from kueuelib.api.quantity import ZERO, Quantity
from kueuelib.api.struct import NOTHING, Struct, Time, wire

# ---- words of the wire

STRICT_FIFO, BEST_EFFORT_FIFO = "StrictFIFO", "BestEffortFIFO"
NONE, HOLD, HOLD_AND_DRAIN = "None", "Hold", "HoldAndDrain"
NEVER, ANY, LOWER_PRIORITY = "Never", "Any", "LowerPriority"
LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"
MAY_STOP_SEARCH, TRY_NEXT_FLAVOR = "MayStopSearch", "TryNextFlavor"
CHECK_PENDING, CHECK_READY, CHECK_RETRY, CHECK_REJECTED = "Pending", "Ready", "Retry", "Rejected"
ANYTIME, AFTER_CHECK_PASSED_OR_ON_DEMAND = "Anytime", "AfterCheckPassedOrOnDemand"
MAIN_POD_SET = "main"

LIST_LIMIT = 64
"""How many entries the lists of a ClusterQueue may have (today's limit)."""

POD_SET_LIMIT = 18
"""How many pod sets a Workload may have (today's limit)."""

_CONDITIONS = wire(keys=("type",), maxItems=16)


# ---- ClusterQueue


@attrs.frozen
class ResourceQuota(Struct):
    """How much of one resource in one flavor belongs to a queue.

    Attributes:
        name: the resource, for example `cpu`.
        nominal_quota: what the queue may use of its own.
        borrowing_limit: how much more it may borrow from its cohort; absent: everything.
        lending_limit: how much of the nominal quota others may borrow; absent: everything.
    """

    name: str = attrs.field(metadata=wire(required=True))
    nominal_quota: Quantity = attrs.field(default=ZERO, metadata=wire(required=True, always=True))
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


@attrs.frozen
class FlavorQuotas(Struct):
    """The quotas of one flavor, in the order of the covered resources."""

    name: str = attrs.field(metadata=wire(required=True))
    resources: tuple[ResourceQuota, ...] = attrs.field(
        default=(),
        metadata=wire(required=True, always=True, keys=("name",), minItems=1, maxItems=LIST_LIMIT),
    )


@attrs.frozen
class ResourceGroup(Struct):
    """Resources that are given from the same flavors.

    Attributes:
        covered_resources: the names of the resources.
        flavors: the flavors in the order in which they are tried.
    """

    covered_resources: tuple[str, ...] = attrs.field(
        default=(), metadata=wire(required=True, always=True, minItems=1, maxItems=LIST_LIMIT)
    )
    flavors: tuple[FlavorQuotas, ...] = attrs.field(
        default=(),
        metadata=wire(required=True, always=True, keys=("name",), minItems=1, maxItems=LIST_LIMIT),
    )


@attrs.frozen
class FlavorFungibility(Struct):
    """Whether the search of a flavor ends where borrowing or preemption would do.

    Attributes:
        when_can_borrow: MayStopSearch or TryNextFlavor.
        when_can_preempt: MayStopSearch or TryNextFlavor.
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


@attrs.frozen
class BorrowWithinCohort(Struct):
    """Whether a queue may preempt in other queues while it borrows.

    Attributes:
        policy: Never or LowerPriority.
        max_priority_threshold: only workloads up to this priority are preempted; absent: no limit.
    """

    policy: str = attrs.field(
        default=NEVER, metadata=wire(always=True, enum=[NEVER, LOWER_PRIORITY], default=NEVER)
    )
    max_priority_threshold: int | None = None


@attrs.frozen
class Preemption(Struct):
    """Whom workloads of a queue may preempt (KEP-83).

    Attributes:
        reclaim_within_cohort: Never, LowerPriority or Any.
        borrow_within_cohort: while borrowing.
        within_cluster_queue: Never, LowerPriority or LowerOrNewerEqualPriority.
    """

    reclaim_within_cohort: str = attrs.field(
        default=NEVER,
        metadata=wire(always=True, enum=[NEVER, LOWER_PRIORITY, ANY], default=NEVER),
    )
    borrow_within_cohort: BorrowWithinCohort = attrs.field(
        factory=BorrowWithinCohort, metadata=wire(always=True, default={})
    )
    within_cluster_queue: str = attrs.field(
        default=NEVER,
        metadata=wire(
            always=True,
            enum=[NEVER, LOWER_PRIORITY, LOWER_OR_NEWER_EQUAL_PRIORITY],
            default=NEVER,
        ),
    )


@attrs.frozen
class AdmissionCheckRule(Struct):
    """A check, and the flavors for which it is needed; no flavors mean all."""

    name: str = attrs.field(metadata=wire(required=True))
    on_flavors: tuple[str, ...] = attrs.field(
        default=(), metadata=wire(kind="set", maxItems=LIST_LIMIT)
    )


@attrs.frozen
class AdmissionChecksStrategy(Struct):
    """The checks that workloads of a queue must pass (KEP-993)."""

    admission_checks: tuple[AdmissionCheckRule, ...] = attrs.field(
        default=(),
        metadata=wire(required=True, always=True, keys=("name",), minItems=1, maxItems=LIST_LIMIT),
    )


@attrs.frozen
class ClusterQueueSpec(Struct):
    """Quota and policies of a ClusterQueue.

    Attributes:
        resource_groups: what the queue may use.
        cohort_name: the queues that borrow from each other have the same one; empty: none.
        queueing_strategy: StrictFIFO or BestEffortFIFO.
        namespace_selector: which namespaces may use the queue; absent: no namespace.
        flavor_fungibility: when the search of a flavor ends.
        preemption: whom workloads may preempt.
        admission_checks_strategy: what workloads must pass before they start.
        stop_policy: None, Hold (nothing is admitted) or HoldAndDrain (running ones are evicted).
    """

    resource_groups: tuple[ResourceGroup, ...] = attrs.field(
        default=(), metadata=wire(kind="atomic", maxItems=LIST_LIMIT)
    )
    cohort_name: str = ""
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


@attrs.frozen
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


@attrs.frozen
class FlavorUsage(Struct):
    """How much of one flavor is used."""

    name: str = attrs.field(metadata=wire(required=True))
    resources: tuple[ResourceUsage, ...] = attrs.field(
        default=(), metadata=wire(required=True, always=True, keys=("name",), maxItems=LIST_LIMIT)
    )


_USAGE = wire(keys=("name",), maxItems=LIST_LIMIT)


@attrs.frozen
class ClusterQueueStatus(Struct):
    """What a ClusterQueue does at the moment.

    Attributes:
        conditions: `Active` tells whether it can admit.
        flavors_reservation: usage of all workloads that hold quota.
        flavors_usage: usage of admitted workloads.
        pending_workloads: how many wait.
        reserving_workloads: how many hold quota.
        admitted_workloads: how many are admitted and unfinished.
    """

    conditions: tuple[Condition, ...] = attrs.field(default=(), metadata=_CONDITIONS)
    flavors_reservation: tuple[FlavorUsage, ...] = attrs.field(default=(), metadata=_USAGE)
    flavors_usage: tuple[FlavorUsage, ...] = attrs.field(default=(), metadata=_USAGE)
    pending_workloads: int = attrs.field(default=0, metadata=wire(always=True))
    reserving_workloads: int = attrs.field(default=0, metadata=wire(always=True))
    admitted_workloads: int = attrs.field(default=0, metadata=wire(always=True))


@attrs.frozen
class ClusterQueue(KubeObject):
    """Quota that the workloads of several namespaces share."""

    resource = CLUSTER_QUEUES

    spec: ClusterQueueSpec = attrs.field(factory=ClusterQueueSpec)
    status: ClusterQueueStatus = attrs.field(factory=ClusterQueueStatus)


# ---- LocalQueue


@attrs.frozen
class LocalQueueSpec(Struct):
    """Where the workloads of a LocalQueue go.

    Attributes:
        cluster_queue: the ClusterQueue that admits them; cannot change.
    """

    cluster_queue: str = ""


@attrs.frozen
class LocalResourceUsage(Struct):
    """How much of one resource in one flavor is used through a LocalQueue."""

    name: str = attrs.field(metadata=wire(required=True))
    total: Quantity = attrs.field(default=ZERO, metadata=wire(always=True))


@attrs.frozen
class LocalFlavorUsage(Struct):
    """How much of one flavor is used through a LocalQueue."""

    name: str = attrs.field(metadata=wire(required=True))
    resources: tuple[LocalResourceUsage, ...] = attrs.field(
        default=(), metadata=wire(required=True, always=True, keys=("name",), maxItems=LIST_LIMIT)
    )


@attrs.frozen
class LocalQueueStatus(Struct):
    """What a LocalQueue does at the moment.

    Attributes:
        conditions: `Active` tells whether its ClusterQueue can admit.
        pending_workloads: how many wait.
        reserving_workloads: how many hold quota.
        admitted_workloads: how many are admitted and unfinished.
        flavors_reservation: usage of all workloads that hold quota.
        flavors_usage: usage of admitted workloads.
    """

    conditions: tuple[Condition, ...] = attrs.field(default=(), metadata=_CONDITIONS)
    pending_workloads: int = attrs.field(default=0, metadata=wire(always=True))
    reserving_workloads: int = attrs.field(default=0, metadata=wire(always=True))
    admitted_workloads: int = attrs.field(default=0, metadata=wire(always=True))
    flavors_reservation: tuple[LocalFlavorUsage, ...] = attrs.field(default=(), metadata=_USAGE)
    flavors_usage: tuple[LocalFlavorUsage, ...] = attrs.field(default=(), metadata=_USAGE)


@attrs.frozen
class LocalQueue(KubeObject):
    """The door of a namespace to a ClusterQueue."""

    resource = LOCAL_QUEUES

    spec: LocalQueueSpec = attrs.field(factory=LocalQueueSpec)
    status: LocalQueueStatus = attrs.field(factory=LocalQueueStatus)


# ---- ResourceFlavor


@attrs.frozen
class ResourceFlavorSpec(Struct):
    """What the nodes of a flavor have in common.

    Attributes:
        node_labels: given to pods as node selector.
        node_taints: pods must tolerate them to be given the flavor.
        tolerations: given to pods.
    """

    node_labels: Mapping[str, str] = attrs.field(
        default=NOTHING, metadata=wire(kind="atomic", maxProperties=8)
    )
    node_taints: tuple[Taint, ...] = attrs.field(
        default=(), metadata=wire(kind="atomic", maxItems=8)
    )
    tolerations: tuple[Toleration, ...] = attrs.field(
        default=(), metadata=wire(kind="atomic", maxItems=8)
    )


@attrs.frozen
class ResourceFlavor(KubeObject):
    """A variant of resources, usually a kind of node."""

    resource = RESOURCE_FLAVORS

    spec: ResourceFlavorSpec = attrs.field(factory=ResourceFlavorSpec)


# ---- Workload


@attrs.frozen
class PriorityClassRef(Struct):
    """Where the priority of a workload comes from.

    Attributes:
        group: `kueue.x-k8s.io` or `scheduling.k8s.io`.
        kind: `WorkloadPriorityClass` or `PriorityClass`.
        name: the name of the class.
    """

    group: str = attrs.field(
        default="", metadata=wire(enum=["kueue.x-k8s.io", "scheduling.k8s.io", ""])
    )
    kind: str = attrs.field(
        default="", metadata=wire(enum=["WorkloadPriorityClass", "PriorityClass", ""])
    )
    name: str = attrs.field(default="", metadata=wire(required=True, always=True))


@attrs.frozen
class PodSet(Struct):
    """Pods that are alike.

    Attributes:
        name: unique in its Workload.
        template: what the pods are made from.
        count: how many.
        min_count: the fewest that are worth starting; absent: all of them.
    """

    name: str = attrs.field(default=MAIN_POD_SET, metadata=wire(always=True, default=MAIN_POD_SET))
    template: PodTemplateSpec = attrs.field(
        factory=PodTemplateSpec, metadata=wire(required=True, always=True)
    )
    count: int = attrs.field(default=1, metadata=wire(always=True, default=1, minimum=0))
    min_count: int | None = attrs.field(default=None, metadata=wire(minimum=0))


@attrs.frozen
class WorkloadSpec(Struct):
    """What waits for quota.

    Attributes:
        pod_sets: what is started together.
        queue_name: the LocalQueue in the same namespace; empty: none.
        priority: higher goes first; absent counts as 0.
        priority_class_ref: where the priority came from.
        active: False: never admitted, evicted when running.
    """

    pod_sets: tuple[PodSet, ...] = attrs.field(
        default=(),
        metadata=wire(
            required=True, always=True, keys=("name",), minItems=1, maxItems=POD_SET_LIMIT
        ),
    )
    queue_name: str = ""
    priority_class_ref: PriorityClassRef | None = None
    priority: int | None = None
    active: bool = attrs.field(default=True, metadata=wire(always=True, default=True))


@attrs.frozen
class PodSetAssignment(Struct):
    """What one pod set was given.

    Attributes:
        name: the pod set.
        flavors: the flavor of each resource.
        resource_usage: the amounts for all pods together.
        count: how many pods it is for; absent: as many as the pod set says.
    """

    name: str = attrs.field(default=MAIN_POD_SET, metadata=wire(always=True, default=MAIN_POD_SET))
    flavors: Mapping[str, str] = NOTHING
    resource_usage: Mapping[str, Quantity] = NOTHING
    count: int | None = attrs.field(default=None, metadata=wire(minimum=0))


@attrs.frozen
class Admission(Struct):
    """The quota that a workload holds."""

    cluster_queue: str = attrs.field(metadata=wire(required=True))
    pod_set_assignments: tuple[PodSetAssignment, ...] = attrs.field(
        default=(), metadata=wire(required=True, always=True, keys=("name",))
    )


@attrs.frozen
class RequeueState(Struct):
    """How often a workload was put back, and when it may be tried again.

    Attributes:
        count: how often its pods were not ready in time.
        requeue_at: not tried before; absent: at once.
    """

    count: int | None = attrs.field(default=None, metadata=wire(minimum=0))
    requeue_at: Time | None = None


@attrs.frozen
class ReclaimablePod(Struct):
    """Pods that are done with their quota, although the workload is not finished."""

    name: str = attrs.field(metadata=wire(required=True))
    count: int = attrs.field(default=0, metadata=wire(required=True, always=True, minimum=0))


@attrs.frozen
class PodSetUpdate(Struct):
    """What a check adds to the pods of a pod set."""

    name: str = attrs.field(metadata=wire(required=True))
    labels: Mapping[str, str] = NOTHING
    annotations: Mapping[str, str] = NOTHING
    node_selector: Mapping[str, str] = NOTHING
    tolerations: tuple[Toleration, ...] = ()


@attrs.frozen
class AdmissionCheckState(Struct):
    """What one check says about a workload (KEP-993).

    Attributes:
        name: the AdmissionCheck.
        state: Pending, Ready, Retry or Rejected.
        last_transition_time: when the state changed last.
        message: a sentence for people.
        reason: a word for programs; `PreemptionRequired` while Pending asks for preemption.
        pod_set_updates: what is added to the pods: nothing, or one entry per pod set.
        requeue_after_seconds: how long a Retry lasts, when the check itself knows.
        retry_count: how often the check was retried.
    """

    name: str = attrs.field(metadata=wire(required=True, maxLength=316))
    state: str = attrs.field(
        default=CHECK_PENDING,
        metadata=wire(
            required=True,
            always=True,
            enum=[CHECK_PENDING, CHECK_READY, CHECK_RETRY, CHECK_REJECTED],
        ),
    )
    last_transition_time: Time = attrs.field(default=0.0, metadata=wire(required=True, always=True))
    message: str = attrs.field(
        default="", metadata=wire(required=True, always=True, maxLength=32768)
    )
    reason: str = attrs.field(default="", metadata=wire(maxLength=1024))
    pod_set_updates: tuple[PodSetUpdate, ...] = attrs.field(
        default=(), metadata=wire(kind="atomic")
    )
    requeue_after_seconds: int | None = attrs.field(default=None, metadata=wire(minimum=0))
    retry_count: int | None = attrs.field(default=None, metadata=wire(minimum=0))


@attrs.frozen
class WorkloadStatus(Struct):
    """How far a workload has come.

    Attributes:
        conditions: QuotaReserved, Admitted, Evicted, Finished, PodsReady and others.
        admission: the quota it holds; absent: none.
        requeue_state: when it may be tried again after a timeout.
        reclaimable_pods: pods that do not need their quota any more.
        admission_checks: what the checks of its queue say.
    """

    conditions: tuple[Condition, ...] = attrs.field(default=(), metadata=_CONDITIONS)
    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    reclaimable_pods: tuple[ReclaimablePod, ...] = attrs.field(
        default=(), metadata=wire(keys=("name",))
    )
    admission_checks: tuple[AdmissionCheckState, ...] = attrs.field(
        default=(), metadata=wire(keys=("name",), maxItems=LIST_LIMIT)
    )


@attrs.frozen
class Workload(KubeObject):
    """Something that waits for quota, or holds it."""

    resource = WORKLOADS

    spec: WorkloadSpec = attrs.field(factory=WorkloadSpec)
    status: WorkloadStatus = attrs.field(factory=WorkloadStatus)


# ---- AdmissionCheck and the rest


@attrs.frozen
class ParametersReference(Struct):
    """The object that configures a check."""

    api_group: str = attrs.field(metadata=wire(required=True))
    kind: str = attrs.field(metadata=wire(required=True))
    name: str = attrs.field(metadata=wire(required=True))


@attrs.frozen
class AdmissionCheckSpec(Struct):
    """Who decides, and how (KEP-993).

    Attributes:
        controller_name: the controller that sets the states; cannot change.
        retry_delay_minutes: how long a workload waits after Retry.
        parameters: the object that configures the check.
        preemption_policy: Anytime, or AfterCheckPassedOrOnDemand: others are preempted only when
            the check has passed or asks for it.
    """

    controller_name: str = attrs.field(default="", metadata=wire(required=True, always=True))
    retry_delay_minutes: int = attrs.field(
        default=15, metadata=wire(always=True, default=15, minimum=0, format="int64")
    )
    parameters: ParametersReference | None = None
    preemption_policy: str = attrs.field(
        default=ANYTIME,
        metadata=wire(
            always=True, enum=[ANYTIME, AFTER_CHECK_PASSED_OR_ON_DEMAND], default=ANYTIME
        ),
    )


@attrs.frozen
class AdmissionCheckStatus(Struct):
    """Whether the controller of a check works, which it says itself with `Active`."""

    conditions: tuple[Condition, ...] = attrs.field(default=(), metadata=_CONDITIONS)


@attrs.frozen
class AdmissionCheck(KubeObject):
    """Something beside quota that a workload must pass before it starts."""

    resource = ADMISSION_CHECKS

    spec: AdmissionCheckSpec = attrs.field(factory=AdmissionCheckSpec)
    status: AdmissionCheckStatus = attrs.field(factory=AdmissionCheckStatus)


@attrs.frozen
class WorkloadPriorityClass(KubeObject):
    """A named priority of workloads, without effect on their pods.

    Attributes:
        value: higher goes first.
        description: when to use it.
    """

    resource = WORKLOAD_PRIORITY_CLASSES

    value: int = attrs.field(default=0, metadata=wire(required=True, always=True))
    description: str = ""


@attrs.frozen
class ProvisioningRequestConfigSpec(Struct):
    """How nodes are requested for a workload.

    Attributes:
        provisioning_class_name: how the autoscaler provisions.
        parameters: passed to the provisioning class.
        managed_resources: only pod sets that ask for one of them need nodes; empty: all do.
    """

    provisioning_class_name: str = attrs.field(
        metadata=wire(
            required=True,
            maxLength=253,
            pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        )
    )
    parameters: Mapping[str, str] = attrs.field(
        default=NOTHING, metadata=wire(maxProperties=100, items={"maxLength": 255})
    )
    managed_resources: tuple[str, ...] = attrs.field(
        default=(), metadata=wire(kind="set", maxItems=100)
    )


@attrs.frozen
class ProvisioningRequestConfig(KubeObject):
    """The parameters of the provisioning check."""

    resource = PROVISIONING_REQUEST_CONFIGS

    spec: ProvisioningRequestConfigSpec = attrs.field(
        factory=lambda: ProvisioningRequestConfigSpec(""), metadata=wire(always=True)
    )
