"""The slices of pods that kueuelib reads; what is not listed stays in `extra`."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import KubeObject, ObjectMeta
from kueuelib.api.quantity import Quantity
from kueuelib.api.struct import NOTHING, Struct, Time, frozen, wire

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"
TAINT_EFFECTS = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE)

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"


# ---- taints and affinity


@frozen
class Taint(Struct):
    """What keeps pods off a node.

    Attributes:
        key: the name of the taint.
        effect: NoSchedule, PreferNoSchedule or NoExecute.
        value: the value that belongs to the key.
        time_added: when a NoExecute taint was added.
    """

    key: str = attrs.field(metadata=wire(required=True))
    effect: str = attrs.field(default="", metadata=wire(required=True))
    value: str = ""
    time_added: Time | None = None


@frozen
class Toleration(Struct):
    """The taints that a pod tolerates.

    Attributes:
        key: the taint's key; empty for all, with the operator Exists.
        operator: Exists or Equal; empty means Equal.
        value: the taint's value, for Equal.
        effect: the taint's effect; empty for all.
        toleration_seconds: how long a NoExecute taint is tolerated.
    """

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = attrs.field(default=None, metadata=wire(format="int64"))


@frozen
class NodeSelectorRequirement(Struct):
    """One expression about a label or field of a node.

    Attributes:
        key: the label key or field name.
        operator: In, NotIn, Exists, DoesNotExist, Gt or Lt.
        values: what is compared with.
    """

    key: str = attrs.field(metadata=wire(required=True))
    operator: str = attrs.field(metadata=wire(required=True))
    values: tuple[str, ...] = ()


@frozen
class NodeSelectorTerm(Struct):
    """Expressions that must all hold; a term without any matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


@frozen
class NodeSelector(Struct):
    """Terms, one of which must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = attrs.field(
        default=(), metadata=wire(required=True)
    )


@frozen
class NodeAffinity(Struct):
    """The nodes that a pod requires."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


@frozen
class Affinity(Struct):
    """Where a pod must run."""

    node_affinity: NodeAffinity | None = None


# ---- pods


@frozen
class ResourceRequirements(Struct):
    """The requests and limits of a container."""

    requests: Mapping[str, Quantity] = NOTHING
    limits: Mapping[str, Quantity] = NOTHING


@frozen
class ContainerPort(Struct):
    """A port of a container."""

    container_port: int = attrs.field(default=0, metadata=wire(required=True))
    name: str = ""
    host_port: int = 0
    protocol: str = ""
    host_ip: str = attrs.field(default="", metadata=wire("hostIP"))


@frozen
class Container(Struct):
    """One container of a pod.

    Attributes:
        name: unique in its pod.
        image: what runs in it.
        resources: requests and limits.
        ports: the ports it listens on.
        restart_policy: `Always` makes an init container a sidecar.
    """

    name: str = attrs.field(default="", metadata=wire(required=True))
    image: str = ""
    resources: ResourceRequirements = attrs.field(factory=ResourceRequirements)
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


@frozen
class PodSchedulingGate(Struct):
    """A name that keeps a pod from being scheduled."""

    name: str = attrs.field(metadata=wire(required=True))


@frozen
class PodSpec(Struct):
    """What a pod runs and where.

    Attributes:
        containers: run side by side.
        init_containers: run before, one after the other.
        node_selector: labels that the node must have.
        affinity: further demands on the node.
        tolerations: taints that are tolerated.
        overhead: what the pod itself costs in addition to its containers.
        resources: requests and limits of the pod as a whole.
        scheduling_gates: keep the pod from being scheduled.
    """

    containers: tuple[Container, ...] = attrs.field(
        default=(), metadata=wire(required=True, always=True)
    )
    init_containers: tuple[Container, ...] = ()
    node_selector: Mapping[str, str] = NOTHING
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    node_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    runtime_class_name: str = ""
    overhead: Mapping[str, Quantity] = NOTHING
    resources: ResourceRequirements | None = None
    restart_policy: str = ""
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    termination_grace_period_seconds: int | None = attrs.field(
        default=None, metadata=wire(format="int64")
    )
    active_deadline_seconds: int | None = attrs.field(default=None, metadata=wire(format="int64"))


@frozen
class PodTemplateSpec(Struct):
    """The template of pods."""

    metadata: ObjectMeta = attrs.field(factory=ObjectMeta)
    spec: PodSpec = attrs.field(factory=PodSpec)


@frozen
class PodCondition(Struct):
    """One observation about a pod or node; reason and message are optional."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None


@frozen
class PodStatus(Struct):
    """The state of a pod."""

    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    reason: str = ""
    message: str = ""
    start_time: Time | None = None


@frozen
class Pod(KubeObject):
    """A pod."""

    resource = PODS

    spec: PodSpec = attrs.field(factory=PodSpec)
    status: PodStatus = attrs.field(factory=PodStatus)
