"""Changes of the workload itself."""

from __future__ import annotations

import attrs

from kueuelib.api import names
from kueuelib.api.affinity import required_node_affinity
from kueuelib.api.core import Taint, Toleration
from kueuelib.api.kueue import PodSet
from kueuelib.api.meta import ObjectKey, format_time
from kueuelib.scheduler.explain.changes import Whole
from kueuelib.scheduler.explain.world import World


@attrs.frozen
class SetPriority:
    """A higher priority."""

    key: ObjectKey
    before: int
    to: int

    kind = "priority"

    @property
    def subject(self) -> str:
        """The workload."""
        return f"Workload {self.key}"

    @property
    def text(self) -> str:
        """What to set."""
        return f"priority {self.to} or higher, instead of {self.before}"

    def apply(self, world: World) -> World:
        """The world with that priority."""
        workload = world.workloads[self.key]
        spec = attrs.evolve(workload.spec, priority=self.to)
        return world.with_workload(attrs.evolve(workload, spec=spec))


@attrs.frozen
class FewerPods:
    """Fewer pods in one pod set, and a lower minimum if there is one.

    Attributes:
        key: the workload.
        pod_set: the pod set.
        before: the present number of pods.
        to: the new number.
        least: the present minimum; None for all of them.
    """

    key: ObjectKey
    pod_set: str
    before: int
    to: int
    least: int | None = None

    kind = "pods"

    @property
    def subject(self) -> str:
        """The workload."""
        return f"Workload {self.key}"

    @property
    def text(self) -> str:
        """What to set."""
        text = f"{self.to} instead of {self.before} pods in pod set {self.pod_set}"
        if self.least is None or self.least <= self.to:
            return text
        return f"{text}, and a minimum of {self.to} instead of {self.least}"

    def apply(self, world: World) -> World:
        """The world with that many pods."""
        workload = world.workloads[self.key]
        pod_sets = tuple(
            attrs.evolve(
                one,
                count=self.to,
                min_count=None if one.min_count is None else min(one.min_count, self.to),
            )
            if one.name == self.pod_set
            else one
            for one in workload.spec.pod_sets
        )
        spec = attrs.evolve(workload.spec, pod_sets=pod_sets)
        return world.with_workload(attrs.evolve(workload, spec=spec))


@attrs.frozen
class Activate(Whole):
    """The workload is activated again."""

    key: ObjectKey

    kind = "activate"

    @property
    def subject(self) -> str:
        """The workload."""
        return f"Workload {self.key}"

    @property
    def text(self) -> str:
        """What to set."""
        return "set spec.active: true"

    def apply(self, world: World) -> World:
        """The world with it active."""
        workload = world.workloads[self.key]
        return world.with_workload(
            attrs.evolve(workload, spec=attrs.evolve(workload.spec, active=True))
        )


@attrs.frozen
class BackOffEnds(Whole):
    """The back-off after an eviction is over."""

    key: ObjectKey
    until: float

    kind = "back-off"

    @property
    def subject(self) -> str:
        """The workload."""
        return f"Workload {self.key}"

    @property
    def text(self) -> str:
        """When."""
        return f"only time helps: its back-off ends at {format_time(self.until)}"

    def apply(self, world: World) -> World:
        """The world in which it is over."""
        workload = world.workloads[self.key]
        status = attrs.evolve(workload.status, requeue_state=None)
        return world.with_workload(attrs.evolve(workload, status=status))


@attrs.frozen
class MoveTo(Whole):
    """The workload waits in another LocalQueue of its namespace."""

    key: ObjectKey
    before: str
    to: str
    cluster_queue: str

    kind = "queue"

    @property
    def subject(self) -> str:
        """The workload."""
        return f"Workload {self.key}"

    @property
    def text(self) -> str:
        """What to set."""
        return self.said_of(self.choice)

    @property
    def choice(self) -> str:
        """The other queues."""
        return f"{self.to} (ClusterQueue {self.cluster_queue})"

    def said_of(self, choice: str) -> str:
        """What to set if there is a choice."""
        return f"submit it to LocalQueue {choice} with the label {names.QUEUE_LABEL}"

    def apply(self, world: World) -> World:
        """The world with it there."""
        workload = world.workloads[self.key]
        spec = attrs.evolve(workload.spec, queue_name=self.to)
        return world.with_workload(attrs.evolve(workload, spec=spec))


@attrs.frozen
class Tolerate(Whole):
    """The pods tolerate a taint of a flavor."""

    key: ObjectKey
    flavor: str
    taint: Taint

    kind = "toleration"

    @property
    def subject(self) -> str:
        """The workload."""
        return f"Workload {self.key}"

    @property
    def text(self) -> str:
        """What to add."""
        value = f"={self.taint.value}" if self.taint.value else ""
        return (
            f"let its pods tolerate the taint {self.taint.key}{value}:{self.taint.effect} "
            f"of flavor {self.flavor}"
        )

    def apply(self, world: World) -> World:
        """The world with the toleration in every pod set."""
        workload = world.workloads[self.key]
        wanted = Toleration(
            key=self.taint.key,
            operator="Equal",
            value=self.taint.value,
            effect=self.taint.effect,
        )
        pod_sets = []
        for one in workload.spec.pod_sets:
            pod = one.template.spec
            pod = attrs.evolve(pod, tolerations=(*pod.tolerations, wanted))
            template = attrs.evolve(one.template, spec=pod)
            pod_sets.append(attrs.evolve(one, template=template))
        spec = attrs.evolve(workload.spec, pod_sets=tuple(pod_sets))
        return world.with_workload(attrs.evolve(workload, spec=spec))


def binds_to_nodes(pod_set: PodSet) -> bool:
    """Whether the pods of a pod set ask for certain nodes."""
    spec = pod_set.template.spec
    return bool(spec.node_selector) or required_node_affinity(spec) is not None


@attrs.frozen
class AnyNode(Whole):
    """The pods no longer ask for certain nodes."""

    key: ObjectKey

    kind = "node-selector"

    @property
    def subject(self) -> str:
        """The workload."""
        return f"Workload {self.key}"

    @property
    def text(self) -> str:
        """What to remove."""
        return "let its pods run on any nodes: without nodeSelector and required node affinity"

    def apply(self, world: World) -> World:
        """The world without node requirements."""
        workload = world.workloads[self.key]
        pod_sets = []
        for one in workload.spec.pod_sets:
            pod = attrs.evolve(one.template.spec, node_selector={}, affinity=None)
            pod_sets.append(attrs.evolve(one, template=attrs.evolve(one.template, spec=pod)))
        spec = attrs.evolve(workload.spec, pod_sets=tuple(pod_sets))
        return world.with_workload(attrs.evolve(workload, spec=spec))
