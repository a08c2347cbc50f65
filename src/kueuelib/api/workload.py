"""Workloads as typed values.

The `wire` of a field holds what the schema of the CRD says about it.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kueuelib.api.core import PodTemplateSpec, Toleration
from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Condition, KubeObject
from kueuelib.api.patterns import DNS_LABEL, OPTIONAL_SUBDOMAIN, SUBDOMAIN
from kueuelib.api.quantity import Quantity
from kueuelib.api.struct import NOTHING, Struct, Time, frozen, wire
from kueuelib.api.topology import TopologyAssignment, TopologyRequest, UnhealthyNode
from kueuelib.api.words import (
    CHECK_PENDING,
    CHECK_READY,
    CHECK_REJECTED,
    CHECK_RETRY,
    CONDITIONS,
    LIST_LIMIT,
    MAIN_POD_SET,
    POD_SET_LIMIT,
)


@frozen
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
    name: str = attrs.field(
        default="", metadata=wire(required=True, always=True, **OPTIONAL_SUBDOMAIN)
    )


@frozen
class PodSet(Struct):
    """Pods that are alike.

    Attributes:
        name: unique in its Workload.
        template: what the pods are made from.
        count: how many.
        min_count: the fewest that are worth starting; absent: all of them.
        topology_request: where they may be placed; a Workload that asks for a place waits.
    """

    name: str = attrs.field(
        default=MAIN_POD_SET, metadata=wire(always=True, default=MAIN_POD_SET, **DNS_LABEL)
    )
    template: PodTemplateSpec = attrs.field(
        factory=PodTemplateSpec, metadata=wire(required=True, always=True)
    )
    count: int = attrs.field(default=1, metadata=wire(always=True, default=1, minimum=0))
    min_count: int | None = attrs.field(default=None, metadata=wire(minimum=0))
    topology_request: TopologyRequest | None = None


@frozen
class WorkloadSpec(Struct):
    """What a Workload asks for.

    Attributes:
        pod_sets: what is started together.
        queue_name: the LocalQueue in the same namespace; empty: none.
        priority: higher goes first; absent counts as 0.
        priority_class_ref: where the priority came from.
        active: False: never admitted, evicted when running.
        maximum_execution_time_seconds: how long it may be admitted in total; absent: without a
            limit.
    """

    pod_sets: tuple[PodSet, ...] = attrs.field(
        default=(),
        metadata=wire(
            required=True, always=True, keys=("name",), minItems=1, maxItems=POD_SET_LIMIT
        ),
    )
    queue_name: str = attrs.field(default="", metadata=wire(**OPTIONAL_SUBDOMAIN))
    priority_class_ref: PriorityClassRef | None = None
    priority: int | None = None
    active: bool = attrs.field(default=True, metadata=wire(always=True, default=True))
    maximum_execution_time_seconds: int | None = attrs.field(default=None, metadata=wire(minimum=1))


@frozen
class PodSetAssignment(Struct):
    """What one pod set got.

    Attributes:
        name: the pod set.
        flavors: the flavor of each resource.
        resource_usage: the amounts for all pods together.
        count: how many pods it is for; absent: as many as the pod set says.
        topology_assignment: where another manager has placed the pods.
        delayed_topology_request: whether that happens after checks: Pending or Ready.
    """

    name: str = attrs.field(
        default=MAIN_POD_SET, metadata=wire(always=True, default=MAIN_POD_SET, **DNS_LABEL)
    )
    flavors: Mapping[str, str] = attrs.field(default=NOTHING, metadata=wire(items=SUBDOMAIN))
    resource_usage: Mapping[str, Quantity] = NOTHING
    count: int | None = attrs.field(default=None, metadata=wire(minimum=0))
    topology_assignment: TopologyAssignment | None = None
    delayed_topology_request: str = attrs.field(
        default="", metadata=wire(enum=["Pending", "Ready"], maxLength=7)
    )


@frozen
class Admission(Struct):
    """The quota that a workload holds."""

    cluster_queue: str = attrs.field(metadata=wire(required=True, **SUBDOMAIN))
    pod_set_assignments: tuple[PodSetAssignment, ...] = attrs.field(
        default=(),
        metadata=wire(required=True, always=True, keys=("name",), maxItems=POD_SET_LIMIT),
    )


@frozen
class RequeueState(Struct):
    """How often a workload was put back, and when it may be tried again.

    Attributes:
        count: how often its pods were not ready in time.
        requeue_at: the earliest time of the next try; absent: at once.
    """

    count: int | None = attrs.field(default=None, metadata=wire(minimum=0))
    requeue_at: Time | None = None


@frozen
class ReclaimablePod(Struct):
    """Pods that no longer need quota, although the workload is not finished."""

    name: str = attrs.field(metadata=wire(required=True, **DNS_LABEL))
    count: int = attrs.field(default=0, metadata=wire(required=True, always=True, minimum=0))


@frozen
class PodSetUpdate(Struct):
    """What a check adds to the pods of a pod set."""

    name: str = attrs.field(metadata=wire(required=True, **DNS_LABEL))
    labels: Mapping[str, str] = NOTHING
    annotations: Mapping[str, str] = NOTHING
    node_selector: Mapping[str, str] = NOTHING
    tolerations: tuple[Toleration, ...] = attrs.field(
        default=(), metadata=wire(kind="atomic", maxItems=8)
    )


@frozen
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

    name: str = attrs.field(metadata=wire(required=True, minLength=1, maxLength=316))
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
        default=(), metadata=wire(kind="atomic", maxItems=POD_SET_LIMIT)
    )
    requeue_after_seconds: int | None = attrs.field(default=None, metadata=wire(minimum=0))
    retry_count: int | None = attrs.field(default=None, metadata=wire(minimum=0))


@frozen
class PodSetRequest(Struct):
    """What one pod set asks for while its Workload waits.

    Attributes:
        name: the pod set.
        resources: the amounts that count against quota, for all pods together.
    """

    name: str = attrs.field(metadata=wire(required=True, **DNS_LABEL))
    resources: Mapping[str, Quantity] = NOTHING


@frozen
class EvictionCount(Struct):
    """How often a workload was evicted for one cause.

    Attributes:
        reason: of the eviction, as in metrics.
        underlying_cause: what is behind the reason; empty if nothing else is.
        count: how often.
    """

    reason: str = attrs.field(default="", metadata=wire(required=True, always=True, maxLength=316))
    underlying_cause: str = attrs.field(
        default="", metadata=wire(required=True, always=True, maxLength=316)
    )
    count: int = attrs.field(default=0, metadata=wire(required=True, always=True, minimum=0))


@frozen
class SchedulingStats(Struct):
    """How often a workload was evicted so far."""

    evictions: tuple[EvictionCount, ...] = attrs.field(
        default=(), metadata=wire(keys=("reason", "underlyingCause"), maxItems=256)
    )


@frozen
class WorkloadStatus(Struct):
    """The state of a workload.

    Attributes:
        conditions: QuotaReserved, Admitted, Evicted, Finished, PodsReady and others.
        admission: the quota it holds; absent: none.
        requeue_state: when it may be tried again after a timeout.
        reclaimable_pods: pods that no longer need their quota.
        admission_checks: what the checks of its queue say.
        accumulated_past_execution_time_seconds: how long it was admitted in earlier turns.
        resource_requests: what it asked for when it was considered last; empty with quota.
        scheduling_stats: how often it was evicted, by cause; absent: never.
        unhealthy_nodes: nodes that another manager wants to replace.
    """

    conditions: tuple[Condition, ...] = attrs.field(default=(), metadata=CONDITIONS)
    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    reclaimable_pods: tuple[ReclaimablePod, ...] = attrs.field(
        default=(), metadata=wire(keys=("name",), maxItems=POD_SET_LIMIT)
    )
    admission_checks: tuple[AdmissionCheckState, ...] = attrs.field(
        default=(), metadata=wire(keys=("name",), maxItems=LIST_LIMIT)
    )
    accumulated_past_execution_time_seconds: int | None = attrs.field(
        default=None, metadata=wire(minimum=0)
    )
    resource_requests: tuple[PodSetRequest, ...] = attrs.field(
        default=(), metadata=wire(keys=("name",), maxItems=POD_SET_LIMIT)
    )
    scheduling_stats: SchedulingStats | None = None
    unhealthy_nodes: tuple[UnhealthyNode, ...] = attrs.field(
        default=(), metadata=wire(keys=("name",), maxItems=8)
    )


@frozen
class Workload(KubeObject):
    """Something that waits for quota, or holds it."""

    resource = WORKLOADS

    spec: WorkloadSpec = attrs.field(factory=WorkloadSpec, metadata=wire(required=True))
    status: WorkloadStatus = attrs.field(factory=WorkloadStatus)
