"""The facts that the engine receives: one class per kind of change.

They carry typed values as the API server has them. `Assumed`, `Forgotten`, `NotPlaced` and
`EvictionFailed` come from the writer of admissions; everything else from watches, and from the
answers to our own writes.
"""

from __future__ import annotations

from collections.abc import Mapping

from kueuelib.api.core import LimitRange, RuntimeClass
from kueuelib.api.kueue import (
    Admission,
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Topology,
    Workload,
)
from kueuelib.api.meta import ObjectKey
from kueuelib.api.struct import frozen
from kueuelib.scheduler.topology.nodes import NodeFacts
from kueuelib.scheduler.values import record


@frozen
class ClusterQueueSet:
    """A ClusterQueue was created or changed."""

    cluster_queue: ClusterQueue


@frozen
class ClusterQueueGone:
    """A ClusterQueue was deleted."""

    name: str


@frozen
class CohortChanged:
    """A Cohort was created or changed."""

    cohort: Cohort


@frozen
class CohortDeleted:
    """A Cohort was deleted."""

    name: str


@frozen
class LocalQueueSet:
    """A LocalQueue was created or changed."""

    local_queue: LocalQueue


@frozen
class LocalQueueGone:
    """A LocalQueue was deleted."""

    key: ObjectKey


@frozen
class FlavorSet:
    """A ResourceFlavor was created or changed."""

    flavor: ResourceFlavor


@frozen
class FlavorGone:
    """A ResourceFlavor was deleted."""

    name: str


@frozen
class CheckSet:
    """An AdmissionCheck was created or changed."""

    check: AdmissionCheck


@frozen
class CheckGone:
    """An AdmissionCheck was deleted."""

    name: str


@frozen
class TopologySet:
    """A Topology was created or changed (KEP-2724)."""

    topology: Topology


@frozen
class TopologyGone:
    """A Topology was deleted."""

    name: str


@frozen
class NodeSet:
    """A node was created or changed."""

    node: NodeFacts


@frozen
class NodeGone:
    """A node was deleted."""

    name: str


@frozen
class ForeignPod:
    """A pod that belongs to no Workload was bound to a node, changed or ended.

    Attributes:
        key: the pod.
        node: the name of its node; empty if it has none.
        request: what it takes of that, its slot included; None if nothing now.
    """

    key: ObjectKey
    node: str
    request: Mapping[str, int] | None


@frozen
class Unreadable:
    """The manager may not read the objects of a kind that topologies need (KEP-2724).

    Attributes:
        kind: for example `Node`.
        why: what the API server says; empty if it may read them.
    """

    kind: str
    why: str


@frozen
class NamespaceSet:
    """A namespace was created or its labels changed."""

    name: str
    labels: Mapping[str, str]


@frozen
class NamespaceGone:
    """A namespace was deleted."""

    name: str


@frozen
class LimitRangeSet:
    """A LimitRange was created or changed."""

    limit_range: LimitRange


@frozen
class LimitRangeGone:
    """A LimitRange was deleted."""

    key: ObjectKey


@frozen
class RuntimeClassSet:
    """A RuntimeClass was created or changed."""

    runtime_class: RuntimeClass


@frozen
class RuntimeClassGone:
    """A RuntimeClass was deleted."""

    name: str


@frozen
class WorkloadSet:
    """A Workload was created or changed."""

    workload: Workload


@frozen
class WorkloadGone:
    """A Workload was deleted."""

    key: ObjectKey


@frozen
class Assumed:
    """Quota is being reserved for a Workload outside `Engine.settle`.

    The Workload is charged from now on, before the API server knows.
    """

    key: ObjectKey
    admission: Admission


@frozen
class Forgotten:
    """Reserving quota for an assumed Workload failed: the charge is undone.

    The Workload, if it still exists, is queued again at once. It has no effect on a Workload that
    is not assumed or has another UID; an empty UID stands for any.
    """

    key: ObjectKey
    uid: str = ""


@frozen
class NotPlaced:
    """New places for the pods of a Workload with quota could not be written.

    Those that its object has count again. It has no effect on a Workload that gets no places, or
    has another UID; an empty UID stands for any.
    """

    key: ObjectKey
    uid: str = ""


@frozen
class EvictionFailed:
    """A victim of a preemption could not be evicted.

    It counts as staying again, and its preemptor searches for other victims at once. It has no
    effect on a Workload with another UID; an empty UID stands for any.

    Attributes:
        key: the victim.
        uid: its UID.
        why: the answer of an API server that refuses the write; the victim is then left out for a
            while. Empty if the eviction had become void.
    """

    key: ObjectKey
    uid: str = ""
    why: str = ""


Event = (
    ClusterQueueSet
    | ClusterQueueGone
    | CohortChanged
    | CohortDeleted
    | LocalQueueSet
    | LocalQueueGone
    | FlavorSet
    | FlavorGone
    | CheckSet
    | CheckGone
    | TopologySet
    | TopologyGone
    | NodeSet
    | NodeGone
    | ForeignPod
    | Unreadable
    | NamespaceSet
    | NamespaceGone
    | LimitRangeSet
    | LimitRangeGone
    | RuntimeClassSet
    | RuntimeClassGone
    | WorkloadSet
    | WorkloadGone
    | Assumed
    | Forgotten
    | NotPlaced
    | EvictionFailed
)


@record
class Effects:
    """The objects whose status may have changed; each list is sorted.

    Attributes:
        cluster_queues: ClusterQueues whose counts, usage or activity may have changed.
        local_queues: the same for LocalQueues.
        workloads: Workloads whose standing may have changed for a reason outside their own object.
    """

    cluster_queues: tuple[str, ...] = ()
    local_queues: tuple[ObjectKey, ...] = ()
    workloads: tuple[ObjectKey, ...] = ()
