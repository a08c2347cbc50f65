"""The facts that a decision depends on, as one immutable value with changed copies.

An engine is built from a world, never the other way round: a "what if" question changes the world
and lets a new engine decide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import attrs

from kueuelib.api import kueue
from kueuelib.api.core import LimitRange, RuntimeClass
from kueuelib.api.kueue import (
    AdmissionCheck,
    ClusterQueue,
    ClusterQueueSpec,
    Cohort,
    CohortSpec,
    LocalQueue,
    ResourceFlavor,
    ResourceQuota,
    Topology,
    Workload,
)
from kueuelib.api.meta import ObjectKey
from kueuelib.api.struct import frozen
from kueuelib.api.workload_state import has_quota, is_finished
from kueuelib.errors import UnknownObject
from kueuelib.scheduler import events
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.events import Event, ForeignPod
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.pending.workload_info import (
    gates_of,
    missing_pods,
    order_of,
    waits_for_victims,
)
from kueuelib.scheduler.quota.decay import UNUSED, Value
from kueuelib.scheduler.settings import DEFAULTS, Settings
from kueuelib.scheduler.topology.nodes import NodeFacts

MOST_BEHIND = 20
"""The maximum number of Workloads behind the one in question that take part in trials."""


@frozen(eq=False)
class World:
    """All facts, by name or key. Immutable: `with_` makes another world.

    Attributes:
        cluster_queues: ClusterQueues by name.
        cohorts: Cohorts by name.
        local_queues: LocalQueues by key.
        flavors: ResourceFlavors by name.
        checks: AdmissionChecks by name.
        namespaces: labels of the namespaces by name.
        workloads: Workloads by key, with or without quota.
        limit_ranges: LimitRanges by key.
        runtime_classes: RuntimeClasses by name.
        topologies: Topologies by name (KEP-2724).
        nodes: what counts of nodes by name; only needed if a flavor has a topology.
        foreign_pods: pods on them that belong to no Workload, by key.
        settings: the administrator's choices.
        usage: past usage by LocalQueue, if it counts (KEP-4136); `with_usage` fills it in.
    """

    cluster_queues: Mapping[str, ClusterQueue] = attrs.field(factory=dict)
    cohorts: Mapping[str, Cohort] = attrs.field(factory=dict)
    local_queues: Mapping[ObjectKey, LocalQueue] = attrs.field(factory=dict)
    flavors: Mapping[str, ResourceFlavor] = attrs.field(factory=dict)
    checks: Mapping[str, AdmissionCheck] = attrs.field(factory=dict)
    namespaces: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    workloads: Mapping[ObjectKey, Workload] = attrs.field(factory=dict)
    limit_ranges: Mapping[ObjectKey, LimitRange] = attrs.field(factory=dict)
    runtime_classes: Mapping[str, RuntimeClass] = attrs.field(factory=dict)
    topologies: Mapping[str, Topology] = attrs.field(factory=dict)
    nodes: Mapping[str, NodeFacts] = attrs.field(factory=dict)
    foreign_pods: Mapping[ObjectKey, ForeignPod] = attrs.field(factory=dict)
    settings: Settings = DEFAULTS
    usage: Mapping[ObjectKey, Value] = attrs.field(factory=dict)

    def with_usage(self, now: float) -> World:
        """The same world with the past usage of its LocalQueues; itself if that never counts.

        Args:
            now: seconds since the epoch.
        """
        if self.settings.past_usage is None:
            return self
        holding = {key: workload for key, workload in self.workloads.items() if has_quota(workload)}
        past = attrs.evolve(self, workloads=holding).engine(now).past_usage
        return self if past is None else attrs.evolve(self, usage=past.values())

    def with_cluster_queue(self, queue: ClusterQueue) -> World:
        """The same world with this ClusterQueue instead of the one of its name."""
        return attrs.evolve(self, cluster_queues={**self.cluster_queues, queue.name: queue})

    def with_cohort(self, cohort: Cohort) -> World:
        """The same world with this Cohort."""
        return attrs.evolve(self, cohorts={**self.cohorts, cohort.name: cohort})

    def with_local_queue(self, local_queue: LocalQueue) -> World:
        """The same world with this LocalQueue."""
        return attrs.evolve(self, local_queues={**self.local_queues, local_queue.key: local_queue})

    def with_flavor(self, flavor: ResourceFlavor) -> World:
        """The same world with this ResourceFlavor."""
        return attrs.evolve(self, flavors={**self.flavors, flavor.name: flavor})

    def with_check(self, check: AdmissionCheck) -> World:
        """The same world with this AdmissionCheck."""
        return attrs.evolve(self, checks={**self.checks, check.name: check})

    def with_node(self, node: NodeFacts) -> World:
        """The same world with this node."""
        return attrs.evolve(self, nodes={**self.nodes, node.name: node})

    def with_namespace(self, name: str, labels: Mapping[str, str]) -> World:
        """The same world with these labels on a namespace."""
        return attrs.evolve(self, namespaces={**self.namespaces, name: labels})

    def with_workload(self, workload: Workload) -> World:
        """The same world with this Workload."""
        return attrs.evolve(self, workloads={**self.workloads, workload.key: workload})

    def without_workloads(self, *keys: ObjectKey) -> World:
        """The same world without some Workloads."""
        kept = {key: workload for key, workload in self.workloads.items() if key not in keys}
        return attrs.evolve(self, workloads=kept)

    # --- relations between objects

    def local_queue_of(self, workload: Workload) -> LocalQueue | None:
        """The LocalQueue that a Workload names, None when it does not exist."""
        return self.local_queues.get(_local_queue_key(workload))

    def cluster_queue_of(self, workload: Workload) -> ClusterQueue | None:
        """The ClusterQueue in which a Workload waits, None when there is none."""
        local_queue = self.local_queue_of(workload)
        return (
            None if local_queue is None else self.cluster_queues.get(local_queue.spec.cluster_queue)
        )

    def scope_of(self, cluster_queue: ClusterQueue) -> frozenset[str]:
        """The names of the ClusterQueues that share quota with one, itself included."""
        if not cluster_queue.spec.cohort_name:
            return frozenset((cluster_queue.name,))
        mine = self._tree_of(cluster_queue.spec.cohort_name)
        return frozenset(
            name
            for name, each in self.cluster_queues.items()
            if each.spec.cohort_name and self._tree_of(each.spec.cohort_name) == mine
        )

    def places(self, names: Collection[str]) -> bool:
        """Whether any of some ClusterQueues has a flavor with a topology."""
        placing = {name for name, each in self.flavors.items() if each.spec.topology_name}
        return bool(self.settings.places_pods and placing) and any(
            flavor.name in placing
            for name in names
            for group in self.cluster_queues[name].spec.resource_groups
            for flavor in group.flavors
        )

    def _sharing_nodes(self, queue: ClusterQueue) -> frozenset[str]:
        """The ClusterQueues in whose trees the same nodes may be used, if any are."""
        if not self.places(self.scope_of(queue)):
            return frozenset()
        placing = [name for name in self.cluster_queues if self.places([name])]
        return frozenset().union(*(self.scope_of(self.cluster_queues[name]) for name in placing))

    def above(self, cohort: str) -> tuple[str, ...]:
        """A cohort and those above it, the root last; each cohort of a cycle once. Empty for an
        empty name.
        """
        return tuple(self._chain(cohort)[0])

    def cohorts_of(self, cluster_queues: Collection[str]) -> tuple[str, ...]:
        """The cohorts of the trees of some ClusterQueues, with an object or not, sorted."""
        roots = {
            self._tree_of(cohort)
            for name in cluster_queues
            if (cohort := self.cluster_queues[name].spec.cohort_name)
        }
        return tuple(name for name in self.all_cohorts() if self._tree_of(name) in roots)

    def below(self, cohort: str) -> tuple[set[str], set[str]]:
        """The ClusterQueues below a cohort, and the cohorts below it with itself."""
        queues = {
            name
            for name, each in self.cluster_queues.items()
            if cohort in self.above(each.spec.cohort_name)
        }
        return queues, {name for name in self.all_cohorts() if cohort in self.above(name)}

    def all_cohorts(self) -> tuple[str, ...]:
        """All cohorts, with an object or only named by others, sorted."""
        cohorts = set(self.cohorts)
        cohorts.update(each.spec.parent_name for each in self.cohorts.values())
        cohorts.update(each.spec.cohort_name for each in self.cluster_queues.values())
        return tuple(sorted(cohorts - {""}))

    def has_trees_of(self, other: World) -> bool:
        """Whether every ClusterQueue of another world has the same cohorts above it here."""
        if self.cohorts is not other.cohorts:
            parents = {name: each.spec.parent_name for name, each in self.cohorts.items()}
            if parents != {name: each.spec.parent_name for name, each in other.cohorts.items()}:
                return False
        return all(
            self.cluster_queues[name].spec.cohort_name == each.spec.cohort_name
            for name, each in other.cluster_queues.items()
        )

    def cycle_above(self, cohort: str) -> tuple[str, ...]:
        """The cohorts of the cycle above a cohort; empty if there is none.

        Each comes before its parent, the alphabetically smallest first.
        """
        chain, again = self._chain(cohort)
        if not again:
            return ()
        cycle = chain[chain.index(again) :]
        first = cycle.index(min(cycle))
        return (*cycle[first:], *cycle[:first])

    def _tree_of(self, cohort: str) -> str:
        """The root of the tree of a cohort; for a cycle, the alphabetically smallest name."""
        cycle = self.cycle_above(cohort)
        return cycle[0] if cycle else self._chain(cohort)[0][-1]

    def _chain(self, cohort: str) -> tuple[list[str], str]:
        """A cohort and those above it, and the one that repeats; empty if none does."""
        seen: list[str] = []
        while cohort and cohort not in seen:
            seen.append(cohort)
            declared = self.cohorts.get(cohort)
            cohort = "" if declared is None else declared.spec.parent_name
        return seen, cohort

    def home_of(self, workload: Workload) -> str:
        """The ClusterQueue that a Workload holds quota in or waits in, empty for none."""
        admission = workload.status.admission
        if admission is not None and has_quota(workload):
            return admission.cluster_queue
        local_queue = self.local_queue_of(workload)
        return "" if local_queue is None else local_queue.spec.cluster_queue

    def narrowed(self, key: ObjectKey) -> World:
        """The part of the world that may matter to one Workload: its tree of cohorts.

        Workloads behind it in a StrictFIFO queue never come first, and are left out, unless they
        wait for victims. In other queues, many of them are left out as well, because they hardly
        ever matter. If past usage counts, other LocalQueues may come first later, so all of theirs
        stay. Nothing is left out if the whole cluster counts (`block_admission`).
        """
        workload = self.workloads.get(key)
        queue = None if workload is None else self.cluster_queue_of(workload)
        if workload is None or queue is None or self.settings.block_admission:
            return self
        scope = self.scope_of(queue) | self._sharing_nodes(queue)
        timestamp = self.settings.queue_timestamp
        mine = (order_of(workload, timestamp), key)
        kept = {
            each: other for each, other in self.workloads.items() if self.home_of(other) in scope
        }
        behind = [
            each
            for each, other in kept.items()
            if (order_of(other, timestamp), each) > mine
            and not waits_for_victims(other)
            and not has_quota(other)
            and self.home_of(other) == queue.name
            and not (self.usage and _local_queue_key(other) != _local_queue_key(workload))
        ]
        if queue.spec.queueing_strategy == kueue.STRICT_FIFO or len(behind) > MOST_BEHIND:
            for each in behind:
                del kept[each]
        return attrs.evolve(
            self,
            workloads=kept,
            cluster_queues={name: self.cluster_queues[name] for name in sorted(scope)},
            local_queues={
                each: local_queue
                for each, local_queue in self.local_queues.items()
                if local_queue.spec.cluster_queue in scope
            },
        )

    def workload(self, key: ObjectKey) -> Workload:
        """The Workload of this key.

        Raises:
            UnknownObject: there is none.
        """
        workload = self.workloads.get(key)
        if workload is None:
            problem = f"the world has no Workload {key}"
            fix = "" if isinstance(key, ObjectKey) else "; a key is an ObjectKey(namespace, name)"
            raise UnknownObject(problem + fix)
        return workload

    def alone(self, key: ObjectKey) -> World:
        """The same world in which nothing else waits."""
        kept = {
            each: workload
            for each, workload in self.workloads.items()
            if each == key or has_quota(workload)
        }
        return attrs.evolve(self, workloads=kept)

    def lines(self) -> dict[str, tuple[ObjectKey, ...]]:
        """The Workloads that wait in every ClusterQueue, in the order of the queue."""
        by_queue: dict[str, list[tuple[Any, ...]]] = {name: [] for name in self.cluster_queues}
        for workload in self.workloads.values():
            home = self.home_of(workload)
            if home in by_queue and self._waits(workload):
                by_queue[home].append(self._place_of(workload))
        return {
            name: tuple(place[-1] for place in sorted(places)) for name, places in by_queue.items()
        }

    def ahead_of(self, key: ObjectKey) -> tuple[ObjectKey, ...]:
        """The Workloads that wait before one in its ClusterQueue, in the order of the queue."""
        workload = self.workloads[key]
        home, mine = self.home_of(workload), self._place_of(workload)
        places = [
            self._place_of(other)
            for other in self.workloads.values()
            if self._waits(other) and self.home_of(other) == home
        ]
        return tuple(place[-1] for place in sorted(places) if place < mine)

    def _place_of(self, workload: Workload) -> tuple[Value, QueueOrder, ObjectKey]:
        usage = self.usage.get(_local_queue_key(workload), UNUSED)
        return usage, order_of(workload, self.settings.queue_timestamp), workload.key

    def used_less(self, key: ObjectKey) -> tuple[ObjectKey, ...]:
        """The LocalQueues with less past usage that have Workloads ahead of one, in their order."""
        mine = self.usage.get(_local_queue_key(self.workloads[key]), UNUSED)
        queues = dict.fromkeys(
            _local_queue_key(self.workloads[each]) for each in self.ahead_of(key)
        )
        return tuple(queue for queue in queues if self.usage.get(queue, UNUSED) < mine)

    def behind(self, key: ObjectKey) -> int:
        """How many Workloads wait after one in its ClusterQueue."""
        home = self.home_of(self.workloads[key])
        total = sum(
            1
            for other in self.workloads.values()
            if self._waits(other) and self.home_of(other) == home
        )
        return max(0, total - 1 - len(self.ahead_of(key)))

    def _waits(self, workload: Workload) -> bool:
        return (
            workload.spec.active
            and not is_finished(workload)
            and not has_quota(workload)
            and workload.metadata.deletion_timestamp is None
            and not gates_of(workload)
            and not missing_pods(workload)
            and self._queue_moves(workload)
        )

    def _queue_moves(self, workload: Workload) -> bool:
        local_queue = self.local_queue_of(workload)
        return local_queue is not None and local_queue.spec.stop_policy == kueue.NONE

    # --- the engine

    def events(self) -> Iterator[Event]:
        """All facts, in an order where nothing has to be evaluated twice."""
        yield from (events.NamespaceSet(*entry) for entry in self.namespaces.items())
        yield from (events.LimitRangeSet(limit_range) for limit_range in self.limit_ranges.values())
        yield from (
            events.RuntimeClassSet(runtime_class) for runtime_class in self.runtime_classes.values()
        )
        yield from (events.TopologySet(topology) for topology in self.topologies.values())
        yield from (events.NodeSet(node) for node in self.nodes.values())
        yield from self.foreign_pods.values()
        yield from (events.FlavorSet(flavor) for flavor in self.flavors.values())
        yield from (events.CheckSet(check) for check in self.checks.values())
        yield from (events.CohortChanged(cohort) for cohort in self.cohorts.values())
        yield from (events.ClusterQueueSet(queue) for queue in self.cluster_queues.values())
        yield from (events.LocalQueueSet(local_queue) for local_queue in self.local_queues.values())
        yield from (events.WorkloadSet(workload) for workload in self.workloads.values())

    def engine(self, now: float) -> Engine:
        """A new engine that knows all facts.

        Args:
            now: seconds since the epoch.
        """
        engine = Engine(self.settings)
        for event in self.events():
            engine.observe(event, now)
        return engine


def _local_queue_key(workload: Workload) -> ObjectKey:
    return ObjectKey(workload.namespace, workload.spec.queue_name)


def _itself(pod: ForeignPod) -> ForeignPod:
    return pod


def _pod_gone(key: ObjectKey) -> ForeignPod:
    return ForeignPod(key, "", None)


def difference(before: World, after: World) -> Iterator[Event]:
    """The events that turn one world into another with the same settings."""
    kinds: tuple[tuple[str, Any, Any], ...] = (
        ("namespaces", events.NamespaceSet, events.NamespaceGone),
        ("limit_ranges", events.LimitRangeSet, events.LimitRangeGone),
        ("runtime_classes", events.RuntimeClassSet, events.RuntimeClassGone),
        ("topologies", events.TopologySet, events.TopologyGone),
        ("nodes", events.NodeSet, events.NodeGone),
        ("foreign_pods", _itself, _pod_gone),
        ("flavors", events.FlavorSet, events.FlavorGone),
        ("checks", events.CheckSet, events.CheckGone),
        ("cohorts", events.CohortChanged, events.CohortDeleted),
        ("cluster_queues", events.ClusterQueueSet, events.ClusterQueueGone),
        ("local_queues", events.LocalQueueSet, events.LocalQueueGone),
        ("workloads", events.WorkloadSet, events.WorkloadGone),
    )
    for name, present, gone in kinds:
        old, new = getattr(before, name), getattr(after, name)
        if old is new:
            continue
        yield from (gone(key) for key in old if key not in new)
        for key, obj in new.items():
            if old.get(key) is not obj:
                yield present(key, obj) if name == "namespaces" else present(obj)


# ---- clusterQueues and Cohorts as places in a tree, with their common properties -----------------

CLUSTER_QUEUE: Final = "ClusterQueue"
COHORT: Final = "Cohort"


@frozen
class QuotaOwner:
    """A ClusterQueue or a Cohort that exists as an object.

    Attributes:
        kind: `ClusterQueue` or `Cohort`.
        name: its name.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def parent_field(self) -> str:
        """The field of its spec that names the cohort above, spelled as in YAML."""
        return "cohortName" if self.kind == CLUSTER_QUEUE else "parentName"

    def spec(self, world: World) -> ClusterQueueSpec | CohortSpec:
        """Its spec."""
        if self.kind == CLUSTER_QUEUE:
            return world.cluster_queues[self.name].spec
        return world.cohorts[self.name].spec

    def parent(self, world: World) -> str:
        """The cohort above, empty for none."""
        spec = self.spec(world)
        return spec.cohort_name if isinstance(spec, ClusterQueueSpec) else spec.parent_name

    def quotas(self, world: World) -> dict[tuple[str, str], ResourceQuota]:
        """Its quotas by flavor and resource."""
        return {
            (flavor.name, quota.name): quota
            for group in self.spec(world).resource_groups
            for flavor in group.flavors
            for quota in flavor.resources
        }

    def below(self, world: World, parent: str) -> World:
        """The world in which it is below another cohort, or below none."""
        field = "cohort_name" if self.kind == CLUSTER_QUEUE else "parent_name"
        return self.changed(world, **{field: parent})

    def changed(self, world: World, **fields: Any) -> World:
        """The world in which fields of its spec are different."""
        if self.kind == CLUSTER_QUEUE:
            queue = world.cluster_queues[self.name]
            spec = attrs.evolve(queue.spec, **fields)
            return world.with_cluster_queue(attrs.evolve(queue, spec=spec))
        cohort = world.cohorts[self.name]
        return world.with_cohort(attrs.evolve(cohort, spec=attrs.evolve(cohort.spec, **fields)))
