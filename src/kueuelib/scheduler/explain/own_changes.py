"""Changes of the workload itself."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from kueuelib.api import names
from kueuelib.api.core import Taint, Toleration
from kueuelib.api.kueue import PodSet, Workload
from kueuelib.api.meta import find, format_time
from kueuelib.api.nodes import required_node_affinity
from kueuelib.api.struct import frozen
from kueuelib.scheduler.explain.changes import OfWorkload, UnsizedChange
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.pending.workload_info import gates_of, missing_pods
from kueuelib.scheduler.topology.demand import layers_of


@frozen
class SetPriority(OfWorkload):
    """A higher priority."""

    before: int
    to: int

    kind = "priority"

    @property
    def text(self) -> str:
        """What to set."""
        return f"priority {self.to} or higher, instead of {self.before}"

    def apply(self, world: World) -> World:
        """The world with that priority."""
        workload = world.workloads[self.key]
        spec = attrs.evolve(workload.spec, priority=self.to)
        return world.with_workload(attrs.evolve(workload, spec=spec))


@frozen
class OfJob(OfWorkload):
    """A change of what the workload is made from, so that it has to be made there.

    Attributes:
        job: the object that it stands for, as kind and name; empty for a workload of its own.
    """

    job: str = attrs.field(default="", kw_only=True)

    @property
    def subject(self) -> str:
        """The job, or a workload of its own."""
        return self.job or super().subject


def job_of(workload: Workload) -> str:
    """The object that a workload stands for, as kind and name; empty for none."""
    owner = workload.metadata.controller
    return "" if owner is None else f"{owner.kind} {workload.namespace}/{owner.name}"


@frozen
class FewerPods(OfJob):
    """Fewer pods in one pod set, and a lower minimum if there is one.

    Attributes:
        pod_set: the pod set.
        before: the present number of pods.
        to: the new number.
        least: the present minimum; None for all of them.
        unit: how many are taken away at once: the pods of a slice of a topology, otherwise 1.
    """

    pod_set: str
    before: int
    to: int
    least: int | None = None
    unit: int = 1

    kind = "pods"

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


def slice_of(pod_set: PodSet) -> int:
    """How many pods must stay together when a pod set shrinks: those of a slice, otherwise 1."""
    layers = layers_of(pod_set.topology_request)
    size = layers[0].size if layers else 1
    return size if size > 0 and pod_set.count % size == 0 else 1


@frozen
class Activate(OfWorkload, UnsizedChange):
    """The workload is activated again.

    Attributes:
        limit: the maximum execution time after which it was deactivated; None if for something
            else.
    """

    limit: int | None = None

    kind = "activate"

    @property
    def text(self) -> str:
        """What to set."""
        if self.limit is None:
            return "set spec.active: true"
        return (
            f"raise or remove spec.maximumExecutionTimeSeconds, and set spec.active: true: "
            f"its time starts again, and after {self.limit} s it would be deactivated again"
        )

    def apply(self, world: World) -> World:
        """The world with it active."""
        workload = world.workloads[self.key]
        return world.with_workload(
            attrs.evolve(workload, spec=attrs.evolve(workload.spec, active=True))
        )


@frozen
class Ungate(OfJob, UnsizedChange):
    """The gates of the job are removed."""

    kind = "gates"

    @property
    def text(self) -> str:
        """What to remove."""
        return f"remove its gates, the annotation {names.ADMISSION_GATED_BY}"

    def apply(self, world: World) -> World:
        """The world without the gates."""
        workload = world.workloads[self.key]
        kept = {
            key: text
            for key, text in workload.metadata.annotations.items()
            if key != names.ADMISSION_GATED_BY
        }
        metadata = attrs.evolve(workload.metadata, annotations=kept)
        return world.with_workload(attrs.evolve(workload, metadata=metadata))


def time_limit(workload: Workload) -> int | None:
    """The maximum execution time after which a workload was deactivated; None if for another
    reason.
    """
    evicted = find(workload.status.conditions, names.EVICTED)
    ran_out = evicted is not None and evicted.reason.endswith(names.REASON_MAXIMUM_EXECUTION)
    return workload.spec.maximum_execution_time_seconds if ran_out else None


def is_group(workload: Workload) -> bool:
    """Whether it stands for a group of pods, whose missing pods can be replaced."""
    return workload.metadata.annotations.get(names.IS_GROUP_WORKLOAD) == "true"


@frozen
class PodsReturn(OfWorkload, UnsizedChange):
    """The pods for which a group stays out of its queue exist again."""

    kind = "pods-return"

    @property
    def text(self) -> str:
        """What to create."""
        return "create the missing pods of the group"

    def apply(self, world: World) -> World:
        """The world in which they exist."""
        workload = world.workloads[self.key]
        kept = tuple(one for one in workload.status.conditions if one.type != names.REQUEUED)
        status = attrs.evolve(workload.status, conditions=kept)
        return world.with_workload(attrs.evolve(workload, status=status))


@frozen
class BackOffEnds(OfWorkload, UnsizedChange):
    """The back-off after an eviction is over."""

    until: float

    kind = "back-off"

    @property
    def text(self) -> str:
        """When."""
        return f"only time helps: its back-off ends at {format_time(self.until)}"

    def apply(self, world: World) -> World:
        """The world in which it is over."""
        workload = world.workloads[self.key]
        status = attrs.evolve(workload.status, requeue_state=None)
        return world.with_workload(attrs.evolve(workload, status=status))


def returns(
    workload: Workload, now: float
) -> Iterator[Activate | Ungate | PodsReturn | BackOffEnds]:
    """The changes that end a wait outside its queue for which the workload is the cause.

    Args:
        workload: the object.
        now: seconds since the epoch.
    """
    key, state = workload.key, workload.status.requeue_state
    if not workload.spec.active:
        yield Activate(key, time_limit(workload))
    if gates_of(workload):
        yield Ungate(key, job=job_of(workload))
    if missing_pods(workload) and is_group(workload):
        yield PodsReturn(key)
    if state is not None and state.requeue_at is not None and state.requeue_at > now:
        yield BackOffEnds(key, state.requeue_at)


@frozen
class MoveTo(OfJob, UnsizedChange):
    """The workload waits in another LocalQueue of its namespace."""

    before: str
    to: str
    cluster_queue: str

    kind = "queue"

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


@frozen
class Tolerate(OfJob, UnsizedChange):
    """The pods tolerate a taint.

    Attributes:
        where: the flavor, or the nodes, that have it, for people.
        taint: the taint.
    """

    where: str
    taint: Taint

    kind = "toleration"

    @property
    def text(self) -> str:
        """What to add."""
        value = f"={self.taint.value}" if self.taint.value else ""
        return (
            f"let its pods tolerate the taint {self.taint.key}{value}:{self.taint.effect} "
            f"of {self.where}"
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


def node_demands(workload: Workload) -> tuple[str, ...]:
    """What the pods of a workload ask of their nodes, each by its field."""
    demands = []
    for one in workload.spec.pod_sets:
        spec = one.template.spec
        demands += [f"nodeSelector {key}={value}" for key, value in spec.node_selector.items()]
        if required_node_affinity(spec) is not None:
            demands.append("required node affinity")
    return tuple(dict.fromkeys(demands))


@frozen
class AnyNode(OfJob, UnsizedChange):
    """The pods no longer ask for certain nodes.

    A job has to be submitted again: its Workload keeps the node selector that it was made with.

    Attributes:
        demands: what they ask for now.
    """

    demands: tuple[str, ...]

    kind = "node-selector"

    @property
    def text(self) -> str:
        """What to remove."""
        how = "submit it again for" if self.job else "let its pods run on"
        return f"{how} any nodes: without {', '.join(self.demands)}"

    def apply(self, world: World) -> World:
        """The world without node requirements."""
        workload = world.workloads[self.key]
        pod_sets = []
        for one in workload.spec.pod_sets:
            pod = attrs.evolve(one.template.spec, node_selector={}, affinity=None)
            pod_sets.append(attrs.evolve(one, template=attrs.evolve(one.template, spec=pod)))
        spec = attrs.evolve(workload.spec, pod_sets=tuple(pod_sets))
        return world.with_workload(attrs.evolve(workload, spec=spec))
