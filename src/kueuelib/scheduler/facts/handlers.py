"""The table of all events with their handlers, and the facts about queues, flavors and checks.

Facts about workloads are in `kueuelib.scheduler.facts.workloads`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kueuelib.api import names
from kueuelib.api.kueue import AFTER_CHECK_PASSED_OR_ON_DEMAND, FairSharing, LocalQueue
from kueuelib.api.meta import is_true
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.preemption.guard import PreemptionHistory
from kueuelib.scheduler.events import Effects, Event
from kueuelib.scheduler.facts.state import EngineState
from kueuelib.scheduler.facts.workloads import WorkloadFacts
from kueuelib.scheduler.object_reasons import LocalQueueFacts
from kueuelib.scheduler.quota.cache import QuotaCache
from kueuelib.scheduler.quota.queue_spec import QueueSpec, cohort_spec, flavor_of, queue_spec
from kueuelib.scheduler.settings import Settings

_PROVISIONING = "kueue.x-k8s.io/provisioning-request"
"""The controller of checks that make nodes: pods get their places once these exist."""


class Facts:
    """All facts that the engine received, and their consequences.

    Attributes:
        state: the knowledge besides workloads.
        workloads: the knowledge about single workloads.
    """

    def __init__(self, settings: Settings, history: PreemptionHistory) -> None:
        self._settings = settings
        self.state = EngineState(
            history,
            settings.past_usage,
            protects_nominal=settings.protects_nominal,
            parallel=settings.parallel_preemptors,
        )
        self.state.cache.nodes.mixed = settings.mixed_profile
        self.workloads = WorkloadFacts(self.state, settings)
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            events.ClusterQueueSet: self._cluster_queue_set,
            events.ClusterQueueGone: self._cluster_queue_gone,
            events.CohortChanged: self._cohort_changed,
            events.CohortDeleted: self._cohort_deleted,
            events.LocalQueueSet: self._local_queue_set,
            events.LocalQueueGone: self._local_queue_gone,
            events.FlavorSet: self._flavor_set,
            events.FlavorGone: self._flavor_gone,
            events.CheckSet: self._check_set,
            events.CheckGone: self._check_gone,
            events.TopologySet: self._topology_set,
            events.TopologyGone: self._topology_gone,
            events.NodeSet: self._node_set,
            events.NodeGone: self._node_gone,
            events.ForeignPod: self._foreign_pod,
            events.Unreadable: self._unreadable,
            events.NamespaceSet: self._namespace_set,
            events.NamespaceGone: self._namespace_gone,
            events.LimitRangeSet: self.workloads.limit_range_set,
            events.LimitRangeGone: self.workloads.limit_range_gone,
            events.RuntimeClassSet: self.workloads.runtime_class_set,
            events.RuntimeClassGone: self.workloads.runtime_class_gone,
            events.WorkloadSet: self.workloads.workload_set,
            events.WorkloadGone: self.workloads.workload_gone,
            events.Assumed: self.workloads.assumed,
            events.Forgotten: self.workloads.forgotten,
            events.NotPlaced: self.workloads.not_placed,
            events.EvictionFailed: self.workloads.eviction_failed,
        }

    def observe(self, event: Event, now: float) -> Effects:
        """Takes over one fact; returns its effects."""
        self._handlers[type(event)](event, now)
        return self.state.effects.take()

    # --- ClusterQueues

    def _cluster_queue_set(self, event: events.ClusterQueueSet, now: float) -> None:
        ignores = self._settings.resources.ignores_undeclared
        spec = queue_spec(event.cluster_queue, ignores_undeclared=ignores)
        known = self.state.queues.cluster_queues.get(spec.name)
        if not self.state.cache.set_queue(spec):
            return
        self.state.effects.cluster_queues.add(spec.name)
        before = self.state.scope(spec.name)
        self._sync_queue(spec, now)
        self.state.note_reservations(before, self.state.scope(spec.name))
        self._count_usage(spec.name)
        if known is None:
            for local_queue in self.state.cluster_queue_of.members(spec.name):
                self.workloads.place_all(local_queue, now)
        else:
            self.state.note_all_in(spec.name)

    def _count_usage(self, name: str) -> None:
        if self.state.past_usage is not None:
            for local_queue in self.state.cluster_queue_of.members(name):
                self.state.count_usage(local_queue)

    def _sync_queue(self, spec: QueueSpec, now: float) -> None:
        activity = self.state.cache.activity(spec.name)
        assert activity is not None, "it exists"
        root = (
            (self.state.cache.forest.root_of(spec.cohort), "") if spec.cohort else ("", spec.name)
        )
        self.state.queues.set_queue(spec, root, active=activity.active, now=now)

    def _cluster_queue_gone(self, event: events.ClusterQueueGone, now: float) -> None:
        if self.state.queues.cluster_queues.get(event.name) is None:
            return
        before = self.state.scope(event.name)
        self.state.cache.remove_queue(event.name)
        for key in self.state.queues.remove_queue(event.name):
            self.workloads.place(key, now)
            self.state.effects.workloads.add(key)
        self.state.note_reservations(before)
        self._count_usage(event.name)
        self.state.effects.cluster_queues.add(event.name)
        self.state.effects.local_queues.update(self.state.cluster_queue_of.members(event.name))

    # --- Cohorts

    def _cohort_changed(self, event: events.CohortChanged, now: float) -> None:
        spec = cohort_spec(event.cohort)
        before = self.state.cache.forest.root_of(spec.name)
        if self.state.cache.set_cohort(spec):
            self._tree_changed(spec.name, before, now)

    def _cohort_deleted(self, event: events.CohortDeleted, now: float) -> None:
        before = self.state.cache.forest.root_of(event.name)
        if self.state.cache.remove_cohort(event.name):
            self._tree_changed(event.name, before, now)

    def _tree_changed(self, cohort: str, before: str, now: float) -> None:
        """Handle a change of a cohort's quota or parent; it may have had another root before."""
        forest = self.state.cache.forest
        self._review(forest.below(cohort), now)
        scopes = self.state.queues.scopes
        trees = [scopes.get((root, "")) for root in {before: None, forest.root_of(cohort): None}]
        for tree in trees:
            if tree is not None:
                tree.note_changed()
        self.state.note_reservations(*trees)

    # --- what ClusterQueues depend on

    def _review(self, users: tuple[str, ...], now: float) -> None:
        """Handle a change of flavors, checks or Cohorts, which may affect activity and verdicts."""
        for name in users:
            spec = self.state.cache.spec(name)
            if spec is not None:
                self._sync_queue(spec, now)
                self.state.effects.cluster_queues.add(name)
                self.state.note_all_in(name)
        self.state.note_reservations(*map(self.state.scope, users))

    def _flavor_set(self, event: events.FlavorSet, now: float) -> None:
        flavor = flavor_of(event.flavor, places_pods=self._settings.places_pods)
        self._change_flavors(lambda cache: cache.set_flavor(flavor), now)

    def _flavor_gone(self, event: events.FlavorGone, now: float) -> None:
        self._change_flavors(lambda cache: cache.remove_flavor(event.name), now)

    def _change_flavors(self, change: Callable[[QuotaCache], tuple[str, ...]], now: float) -> None:
        """Takes over a change of flavors or their topologies.

        Workloads may have been known before these, for example after a restart. So what they take
        of nodes is charged again.
        """
        cache = self.state.cache
        before = cache.nodes.flavors
        users = change(cache)
        if cache.nodes.flavors != before:
            self.workloads.charge_again(now)
        self._review(users, now)

    def _check_set(self, event: events.CheckSet, now: float) -> None:
        active = is_true(event.check, names.ACTIVE)
        late = event.check.spec.preemption_policy == AFTER_CHECK_PASSED_OR_ON_DEMAND
        delays = event.check.spec.controller_name == _PROVISIONING
        users = self.state.cache.set_check(
            event.check.name, active=active, late=late, delays=delays
        )
        self._review(users, now)

    def _check_gone(self, event: events.CheckGone, now: float) -> None:
        self._review(self.state.cache.remove_check(event.name), now)

    # --- topologies and their nodes

    def _topology_set(self, event: events.TopologySet, now: float) -> None:
        topology = event.topology
        levels = tuple(level.node_label for level in topology.spec.levels)
        self._change_flavors(lambda cache: cache.set_topology(topology.name, levels), now)

    def _topology_gone(self, event: events.TopologyGone, now: float) -> None:
        self._change_flavors(lambda cache: cache.set_topology(event.name, ()), now)

    def _node_set(self, event: events.NodeSet, _: float) -> None:
        self.state.note_nodes(self.state.cache.nodes.set_node(event.node))

    def _node_gone(self, event: events.NodeGone, _: float) -> None:
        self.state.note_nodes(self.state.cache.nodes.drop_node(event.name))

    def _foreign_pod(self, event: events.ForeignPod, _: float) -> None:
        nodes = self.state.cache.nodes
        self.state.note_room(nodes.set_pod(event.key, event.node, event.request))

    def _unreadable(self, event: events.Unreadable, now: float) -> None:
        self._review(self.state.cache.set_unreadable(event.kind, event.why), now)

    # --- LocalQueues

    def _local_queue_set(self, event: events.LocalQueueSet, now: float) -> None:
        new = event.local_queue
        old = self.state.local_queues.get(new.key)
        self.state.local_queues[new.key] = new
        self.state.cluster_queue_of.put(new.key, new.spec.cluster_queue)
        if old is not None and _matters_of(old) == _matters_of(new):
            return
        self.state.effects.local_queues.add(new.key)
        self.state.count_usage(new.key)
        self.workloads.place_all(new.key, now)

    def _local_queue_gone(self, event: events.LocalQueueGone, now: float) -> None:
        if self.state.local_queues.pop(event.key, None) is None:
            return
        self.state.cluster_queue_of.drop(event.key)
        self.state.count_usage(event.key)
        self.state.effects.local_queues.add(event.key)
        self.workloads.place_all(event.key, now)

    def _namespace_set(self, event: events.NamespaceSet, now: float) -> None:
        if self.state.namespaces.get(event.name) == event.labels:
            return
        self.state.namespaces[event.name] = event.labels
        items = map(self.state.queues.get, self.state.in_namespace.members(event.name))
        for home in sorted({item.queue.name for item in items if item is not None}):
            self.state.queues.let_in(home, namespace=event.name, now=now)

    def _namespace_gone(self, event: events.NamespaceGone, _: float) -> None:
        self.state.namespaces.pop(event.name, None)


def _matters_of(local_queue: LocalQueue) -> tuple[LocalQueueFacts, FairSharing | None]:
    """The parts of a LocalQueue that the engine reads."""
    return LocalQueueFacts.of(local_queue), local_queue.spec.fair_sharing
