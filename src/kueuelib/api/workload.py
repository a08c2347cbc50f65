"""Workloads as typed values, with what they ask of a topology.

The `wire` of a field holds what the schema of the CRD says about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice, repeat
from typing import Any, Final

import attrs

from kueuelib.api.core import PodTemplateSpec, Toleration
from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Condition, KubeObject
from kueuelib.api.patterns import (
    CHECK_PENDING,
    CHECK_READY,
    CHECK_REJECTED,
    CHECK_RETRY,
    CONDITIONS,
    DNS_LABEL,
    LABEL_LIMIT,
    LIST_LIMIT,
    MAIN_POD_SET,
    OPTIONAL_SUBDOMAIN,
    POD_SET_LIMIT,
    SUBDOMAIN,
)
from kueuelib.api.quantity import Quantity
from kueuelib.api.struct import NOTHING, Struct, Time, frozen, wire

# What pod sets ask for, and where they are placed, in topology-aware scheduling (KEP-2724).
# This version serves and keeps these fields, but does not place pods. The `wire` of a field holds
# what the schema of the CRD says about it.

HOST: Final = "kubernetes.io/hostname"
"""The level of single nodes."""
Domain = tuple[tuple[str, ...], int]
"""The values of a domain, one per level, and its number of pods."""

LEVEL_LIMIT: Final = 16
"""The largest number of levels of a topology."""
DOMAIN_LIMIT: Final = 100_000
"""The largest number of domains in one slice of an assignment."""
MOST_DOMAINS: Final = 3 * DOMAIN_LIMIT
"""No more domains are read from an assignment: a few bytes may stand for any number."""
WRITTEN_LIMIT: Final = 20_000
"""The largest number of domains that are written one by one, as in `v1beta1`. Kubernetes refuses a
rule in CEL about more of them, because of its estimated cost."""
SLICE_LIMIT: Final = 1000
"""The largest number of slices of an assignment."""
_GROUP_LIMIT: Final = 256
_KEY_LIMIT: Final = 317
_LEVEL: Final = wire(maxLength=LABEL_LIMIT)
_KEY: Final = wire(maxLength=_KEY_LIMIT)
_PER_LEVEL: Final[Mapping[str, Any]] = {
    "required": True,
    "kind": "atomic",
    "minItems": 1,
    "maxItems": LEVEL_LIMIT,
}
_MANY: Final[Mapping[str, Any]] = {"kind": "atomic", "minItems": 1, "maxItems": DOMAIN_LIMIT}


@frozen
class TopologyConstraint(Struct):
    """Runs of pods that belong together.

    Attributes:
        topology: the level of the domain that holds a whole run.
        size: how many pods are one run.
    """

    topology: str = attrs.field(metadata=wire(required=True, minLength=1, maxLength=LABEL_LIMIT))
    size: int = attrs.field(metadata=wire(required=True, minimum=1))


@frozen
class TopologyRequest(Struct):
    """Where the pods of a pod set may be placed.

    Attributes:
        required: the level of the one domain that must hold all pods.
        preferred: the level of the one domain that should hold all pods.
        unconstrained: whether any domains will do.
        pod_index_label: the label with the index of a pod.
        sub_group_index_label: the label with the index of a pod's group.
        sub_group_count: how many groups there are.
        pod_set_group_name: pod sets of one name are placed together.
        pod_set_slice_required_topology: the level of the domain that holds a whole slice of pods.
        pod_set_slice_size: how many pods are one slice.
        podset_slice_required_topology_constraints: slices within slices, from coarse to fine.
    """

    required: str | None = attrs.field(default=None, metadata=_LEVEL)
    preferred: str | None = attrs.field(default=None, metadata=_LEVEL)
    unconstrained: bool | None = None
    pod_index_label: str | None = attrs.field(default=None, metadata=_KEY)
    sub_group_index_label: str | None = attrs.field(default=None, metadata=_KEY)
    sub_group_count: int | None = attrs.field(default=None, metadata=wire(minimum=0))
    pod_set_group_name: str | None = attrs.field(
        default=None, metadata=wire(maxLength=_GROUP_LIMIT)
    )
    pod_set_slice_required_topology: str | None = attrs.field(default=None, metadata=_LEVEL)
    pod_set_slice_size: int | None = attrs.field(default=None, metadata=wire(minimum=1))
    podset_slice_required_topology_constraints: tuple[TopologyConstraint, ...] = attrs.field(
        default=(), metadata=wire(kind="atomic", maxItems=3)
    )


@frozen
class DomainValues(Struct):
    """The label values of several domains, each from the prefix, its root and the suffix.

    Attributes:
        prefix: what all values begin with.
        suffix: what all values end with.
        roots: what is between them, one for each domain.
    """

    prefix: str | None = attrs.field(default=None, metadata=_LEVEL)
    suffix: str | None = attrs.field(default=None, metadata=_LEVEL)
    roots: tuple[str, ...] = attrs.field(
        default=(),
        metadata=wire(required=True, always=True, items={"maxLength": LABEL_LIMIT}, **_MANY),
    )


@frozen
class LevelValues(Struct):
    """The label values of the domains of a slice at one level, in one of two forms.

    Attributes:
        universal: the value that all domains have.
        individual: their own values.
    """

    universal: str | None = attrs.field(default=None, metadata=_LEVEL)
    individual: DomainValues | None = None

    def values(self, number: int) -> Iterable[str]:
        """The values of so many domains."""
        own = self.individual
        if own is None:
            return repeat(self.universal or "", number)
        prefix, suffix = own.prefix or "", own.suffix or ""
        return [f"{prefix}{root}{suffix}" for root in own.roots]


@frozen
class PodCounts(Struct):
    """How many pods the domains of a slice hold, in one of two forms.

    Attributes:
        universal: the number that each domain holds.
        individual: their own numbers.
    """

    universal: int | None = attrs.field(default=None, metadata=wire(minimum=1))
    individual: tuple[int, ...] = attrs.field(
        default=(), metadata=wire(items={"minimum": 1}, **_MANY)
    )


@frozen
class TopologyAssignmentSlice(Struct):
    """Some of the domains of an assignment.

    Attributes:
        domain_count: how many domains.
        values_per_level: their label values, one entry for each level.
        pod_counts: how many pods they hold.
    """

    domain_count: int = attrs.field(metadata=wire(required=True, minimum=1))
    values_per_level: tuple[LevelValues, ...] = attrs.field(metadata=wire(**_PER_LEVEL))
    pod_counts: PodCounts = attrs.field(metadata=wire(required=True))

    @property
    def domains(self) -> Iterator[Domain]:
        """The domains, in their order."""
        number, counts = self.domain_count, self.pod_counts
        columns = [level.values(number) for level in self.values_per_level]
        pods = counts.individual or repeat(counts.universal or 0, number)
        return zip(zip(*columns, strict=True), pods, strict=True)


@frozen
class TopologyAssignment(Struct):
    """The domains in which the pods of a pod set are placed.

    Attributes:
        levels: the label keys of the domains, from coarse to fine.
        slices: the domains.
    """

    levels: tuple[str, ...] = attrs.field(
        metadata=wire(items={"maxLength": _KEY_LIMIT}, **_PER_LEVEL)
    )
    slices: tuple[TopologyAssignmentSlice, ...] = attrs.field(
        default=(),
        metadata=wire(required=True, always=True, kind="atomic", maxItems=SLICE_LIMIT),
    )

    @property
    def domains(self) -> tuple[Domain, ...]:
        """The domains of all slices, in their order."""
        return tuple(islice(chain.from_iterable(one.domains for one in self.slices), MOST_DOMAINS))


@frozen
class TopologyDomain(Struct):
    """A domain with its pods, as in `v1beta1`.

    Attributes:
        values: its label values, one for each level.
        count: how many pods it holds.
    """

    values: tuple[str, ...] = attrs.field(
        metadata=wire(items={"maxLength": LABEL_LIMIT}, **_PER_LEVEL)
    )
    count: int = attrs.field(metadata=wire(required=True, minimum=1))


@frozen
class UnhealthyNode(Struct):
    """A node whose pods need another one."""

    name: str = attrs.field(metadata=wire(required=True, maxLength=LABEL_LIMIT))


# --------------------------------------------------------------------------------------------------


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
        topology_request: where they may be placed; None without a request (KEP-2724).
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
