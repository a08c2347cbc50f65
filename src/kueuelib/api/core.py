"""The slices of core objects that kueuelib reads; what is not listed stays in `extra`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kueuelib.api.kinds import (
    EVENTS,
    LEASES,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
)
from kueuelib.api.meta import KubeObject
from kueuelib.api.pods import (
    FAILED,
    NO_EXECUTE,
    NO_SCHEDULE,
    PENDING,
    PREFER_NO_SCHEDULE,
    RUNNING,
    SUCCEEDED,
    TAINT_EFFECTS,
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodCondition,
    PodSchedulingGate,
    PodSpec,
    PodStatus,
    PodTemplateSpec,
    ResourceRequirements,
    Taint,
    Toleration,
)
from kueuelib.api.quantity import Quantity
from kueuelib.api.struct import NOTHING, MicroTime, Struct, Time, frozen, wire

__all__ = [
    "FAILED",
    "NO_EXECUTE",
    "NO_SCHEDULE",
    "PENDING",
    "PREFER_NO_SCHEDULE",
    "RUNNING",
    "SUCCEEDED",
    "TAINT_EFFECTS",
    "Affinity",
    "Container",
    "ContainerPort",
    "Event",
    "EventSource",
    "Lease",
    "LeaseSpec",
    "LimitRange",
    "LimitRangeItem",
    "LimitRangeSpec",
    "Namespace",
    "Node",
    "NodeAffinity",
    "NodeSelector",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "NodeSpec",
    "NodeStatus",
    "ObjectReference",
    "Overhead",
    "Pod",
    "PodCondition",
    "PodSchedulingGate",
    "PodSpec",
    "PodStatus",
    "PodTemplateSpec",
    "PriorityClass",
    "ResourceRequirements",
    "RuntimeClass",
    "Taint",
    "Toleration",
]


# ---- the cluster around


@frozen
class Namespace(KubeObject):
    """A namespace; its labels decide which queues it may use."""

    resource = NAMESPACES


@frozen
class NodeSpec(Struct):
    """The desired state of a node."""

    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


@frozen
class NodeStatus(Struct):
    """The capacity of a node."""

    capacity: Mapping[str, Quantity] = NOTHING
    allocatable: Mapping[str, Quantity] = NOTHING
    conditions: tuple[PodCondition, ...] = ()


@frozen
class Node(KubeObject):
    """A node."""

    resource = NODES

    spec: NodeSpec = attrs.field(factory=NodeSpec)
    status: NodeStatus = attrs.field(factory=NodeStatus)


@frozen
class LimitRangeItem(Struct):
    """Bounds and defaults for one type of thing.

    Attributes:
        type: Container, Pod or PersistentVolumeClaim.
        max: the most that may be asked for.
        min: the least.
        default: the limits of a container without limits.
        default_request: the requests of a container without requests.
        max_limit_request_ratio: how far limits may exceed requests.
    """

    type: str
    max: Mapping[str, Quantity] = NOTHING
    min: Mapping[str, Quantity] = NOTHING
    default: Mapping[str, Quantity] = NOTHING
    default_request: Mapping[str, Quantity] = NOTHING
    max_limit_request_ratio: Mapping[str, Quantity] = NOTHING


@frozen
class LimitRangeSpec(Struct):
    """The limits of a namespace."""

    limits: tuple[LimitRangeItem, ...] = ()


@frozen
class LimitRange(KubeObject):
    """Bounds and defaults of the requests in a namespace."""

    resource = LIMIT_RANGES

    spec: LimitRangeSpec = attrs.field(factory=LimitRangeSpec)


@frozen
class Overhead(Struct):
    """What a pod of a runtime class costs in addition to its containers."""

    pod_fixed: Mapping[str, Quantity] = NOTHING


@frozen
class RuntimeClass(KubeObject):
    """A way to run containers."""

    resource = RUNTIME_CLASSES

    handler: str = ""
    overhead: Overhead = attrs.field(factory=Overhead)


@frozen
class PriorityClass(KubeObject):
    """A named pod priority."""

    resource = PRIORITY_CLASSES

    value: int = attrs.field(default=0, metadata=wire(always=True))
    global_default: bool = False
    description: str = ""
    preemption_policy: str = ""


# ---- leases and events


@frozen
class LeaseSpec(Struct):
    """The leader, and since when it leads; times are seconds since the epoch."""

    holder_identity: str = ""
    lease_duration_seconds: int | None = None
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None
    lease_transitions: int = 0


@frozen
class Lease(KubeObject):
    """A lock with an expiry."""

    resource = LEASES

    spec: LeaseSpec = attrs.field(factory=LeaseSpec)


@frozen
class ObjectReference(Struct):
    """Points at an object."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


@frozen
class EventSource(Struct):
    """The component that reported an event."""

    component: str = ""
    host: str = ""


@frozen
class Event(KubeObject):
    """Something that happened to an object (core/v1).

    Attributes:
        involved_object: what it happened to.
        type: Normal or Warning.
        reason: a word for programs.
        message: a sentence for people.
        count: how often it happened.
    """

    resource = EVENTS

    involved_object: ObjectReference = attrs.field(
        factory=ObjectReference, metadata=wire(always=True)
    )
    type: str = ""
    reason: str = ""
    message: str = ""
    source: EventSource = attrs.field(factory=EventSource)
    count: int = 0
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    event_time: MicroTime | None = None
    action: str = ""
    reporting_component: str = ""
    reporting_instance: str = ""
    series: Mapping[str, Any] = NOTHING
