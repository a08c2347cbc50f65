"""The knowledge of the engine besides single workloads, shared by all handlers of facts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import partial
from typing import Generic, TypeVar

import attrs

from kueuelib.api.kueue import LocalQueue
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.decide.preemption.guard import PreemptionHistory
from kueuelib.scheduler.events import Effects
from kueuelib.scheduler.pending.queue import Scope
from kueuelib.scheduler.pending.queues import Queues
from kueuelib.scheduler.policy import KUEUE, PreemptionPolicy
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.cache import QuotaCache
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.past_usage import PastUsage, Sample, UsageRule
from kueuelib.scheduler.quota.queue_spec import weight_of
from kueuelib.scheduler.topology.tree import Charges
from kueuelib.scheduler.values import changed

# ---- maps members to groups, in both directions --------------------------------------------------

M = TypeVar("M", bound=Hashable)
G = TypeVar("G", bound=Hashable)


class Grouping(Generic[M, G]):
    """Every member belongs to at most one group; groups remember the order of joining."""

    def __init__(self) -> None:
        self._group: dict[M, G] = {}
        self._members: dict[G, dict[M, None]] = {}

    def put(self, member: M, group: G) -> None:
        """Moves a member to a group."""
        before = self._group.get(member)
        if before is not None and before == group:
            return
        self.drop(member)
        self._group[member] = group
        self._members.setdefault(group, {})[member] = None

    def drop(self, member: M) -> None:
        """Removes a member from its group, if it is in one."""
        group = self._group.pop(member, None)
        if group is None:
            return
        members = self._members[group]
        del members[member]
        if not members:
            del self._members[group]

    def group(self, member: M) -> G | None:
        """The group of a member."""
        return self._group.get(member)

    def members(self, group: G) -> tuple[M, ...]:
        """The members of a group, in the order they joined."""
        return tuple(self._members.get(group, ()))

    def size(self, group: G) -> int:
        """How many members a group has."""
        return len(self._members.get(group, ()))


# --------------------------------------------------------------------------------------------------

FIRST_SECOND_PASS, LONGEST_SECOND_PASS = 1.0, 30.0
"""Seconds before a second pass: at first, and at most. Every failure doubles them."""

N = TypeVar("N", str, ObjectKey)


@attrs.define
class EffectsBuilder:
    """Collects the effects of one fact."""

    cluster_queues: set[str] = attrs.field(factory=set)
    local_queues: set[ObjectKey] = attrs.field(factory=set)
    workloads: set[ObjectKey] = attrs.field(factory=set)

    def take(self) -> Effects:
        """Returns the collected effects, and begins a new collection."""
        effects = Effects(
            _in_order(self.cluster_queues), _in_order(self.local_queues), _in_order(self.workloads)
        )
        self.cluster_queues, self.local_queues, self.workloads = set(), set(), set()
        return effects


def _in_order(names: set[N]) -> tuple[N, ...]:
    """The names, sorted; there is rarely more than one."""
    return tuple(sorted(names) if len(names) > 1 else names)


class EngineState:
    """Cache, queues, and relations between objects.

    Attributes:
        cache: the workloads that hold quota.
        history: past preemptions that the preemption policy needs.
        queues: the workloads that wait in a ClusterQueue.
        namespaces: the labels of the namespaces.
        local_queues: the LocalQueues.
        local_queue_of: the LocalQueue that each unfinished workload names.
        cluster_queue_of: the ClusterQueue to which each LocalQueue leads.
        waiting: the LocalQueue of each workload that waits for quota.
        in_namespace: the namespace of each unfinished workload.
        past_usage: past usage of LocalQueues; None if it does not count.
        effects: of the present fact.
        leaving: the workloads that are being evicted and still hold quota.
    """

    def __init__(
        self,
        history: PreemptionHistory,
        rule: UsageRule | None = None,
        *,
        protects_nominal: bool = False,
        parallel: bool = False,
    ) -> None:
        self._parallel = parallel
        self.cache = QuotaCache()
        self.leaving: dict[ObjectKey, Holder] = {}
        self.past_usage = None if rule is None else PastUsage(rule, self.cache.tally)
        self.history = history
        usage = None if self.past_usage is None else self.past_usage.value
        self.queues = Queues(
            self._admits, self._available, usage, protects_nominal=protects_nominal
        )
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.local_queues: dict[ObjectKey, LocalQueue] = {}
        self.local_queue_of: Grouping[ObjectKey, ObjectKey] = Grouping()
        self.cluster_queue_of: Grouping[ObjectKey, str] = Grouping()
        self.waiting: Grouping[ObjectKey, ObjectKey] = Grouping()
        self.in_namespace: Grouping[ObjectKey, str] = Grouping()
        self.effects = EffectsBuilder()
        self._second: dict[ObjectKey, tuple[float, int]] = {}

    def _admits(self, cluster_queue: str, namespace: str) -> bool:
        spec, labels = self.cache.spec(cluster_queue), self.namespaces.get(namespace)
        return spec is not None and labels is not None and spec.selector.matches(labels)

    def _available(self, cluster_queue: str, pair: FlavorResource) -> int:
        """How much a ClusterQueue could use; what leaves counts as gone if heads see it so."""
        exists = self.cache.spec(cluster_queue) is not None
        room = self.cache.forest.available(cluster_queue, pair) if exists else 0
        if self._parallel and self.leaving:
            near = self.leaving_near([cluster_queue])
            room += sum(holder.usage.get(pair, 0) for holder in near)
        return room

    def leaving_near(self, cluster_queues: Iterable[str]) -> tuple[Holder, ...]:
        """Those that leave in the trees of ClusterQueues, sorted."""
        scopes = {id(self.scope(name)) for name in cluster_queues} if self.leaving else ()
        return tuple(
            self.leaving[key]
            for key in sorted(self.leaving)
            if id(self.scope(self.leaving[key].cluster_queue)) in scopes
        )

    def named_local_queue(self, key: ObjectKey) -> ObjectKey:
        """The LocalQueue that a workload names, whether it exists or not."""
        return self.local_queue_of.group(key) or ObjectKey(key.namespace, "")

    def scope(self, cluster_queue: str) -> Scope | None:
        """The scope of a ClusterQueue and its tree; None if it does not exist."""
        queue = self.queues.cluster_queues.get(cluster_queue)
        return None if queue is None else queue.scope

    def count_usage(self, key: ObjectKey) -> None:
        """Begins or ends counting the past usage of a LocalQueue, according to its ClusterQueue."""
        if self.past_usage is None:
            return
        local_queue = self.local_queues.get(key)
        spec = None if local_queue is None else self.cache.spec(local_queue.spec.cluster_queue)
        if local_queue is None or spec is None or not spec.by_usage:
            self.past_usage.close(key)
            return
        weight = weight_of(local_queue.spec.fair_sharing)
        held = (self.cache.holder(member) for member in self.local_queue_of.members(key))
        holders = (holder for holder in held if holder is not None)
        self.past_usage.open(key, spec.name, weight, _stored(local_queue), holders)
        self.past_usage.weigh(key, weight)

    # --- second passes (KEP-2724)

    def need_second_pass(self, key: ObjectKey, now: float, *, needs: bool) -> None:
        """Notes whether a Workload that holds quota lacks places for its pods."""
        if not needs:
            self._second.pop(key, None)
        elif key not in self._second:
            self._second[key] = (now + FIRST_SECOND_PASS, 0)

    def has_second_pass(self, now: float) -> bool:
        """Whether any of them is due."""
        return any(at <= now for at, _ in self._second.values())

    def second_pass_times(self) -> list[float]:
        """When they are due, in seconds since the epoch."""
        return [at for at, _ in self._second.values()]

    def take_second_passes(self, now: float) -> list[ObjectKey]:
        """Those that are due; each is due again later, unless it no longer needs one."""
        due = sorted(key for key, (at, _) in self._second.items() if at <= now)
        for key in due:
            tries = self._second[key][1] + 1
            wait = min(FIRST_SECOND_PASS * 2**tries, LONGEST_SECOND_PASS)
            self._second[key] = (now + wait, tries)
        return due

    def note_room(self, freed: Charges, *, from_outside: bool = True) -> None:
        """Note the room that became free in leaves."""
        nodes = self.cache.nodes
        for scope in self._scopes_with(nodes.flavors_of(freed)):
            scope.note_roomier(partial(nodes.lacked, freed), from_outside=from_outside)

    def note_nodes(self, flavors: Iterable[str]) -> None:
        """Note that flavors have other nodes; as in Kueue, everybody there is tried again."""
        for scope in self._scopes_with(flavors):
            scope.note_changed()

    def _scopes_with(self, flavors: Iterable[str]) -> Iterable[Scope]:
        users = {name for flavor in flavors for name in self.cache.users_of_flavor(flavor)}
        scopes = {id(scope): scope for scope in map(self.scope, sorted(users)) if scope is not None}
        return scopes.values()

    def note_preemption(self, cluster_queue: str) -> None:
        """Note that others than before may be preempted in the tree of a ClusterQueue."""
        scope = self.scope(cluster_queue)
        if scope is not None:
            scope.note_changed(from_outside=False)

    def note_change(self, before: Holder, holder: Holder, policy: PreemptionPolicy) -> None:
        """Note that a Workload with quota may now be preempted by others than before.

        Kueue's rules look at its priority, other policies at everything but its pods' readiness.
        """
        if policy is KUEUE:
            differs = before.priority != holder.priority
        else:
            differs = changed(before, pods_ready=holder.pods_ready) != holder
        if differs:
            self.note_preemption(holder.cluster_queue)
        if differs and not holder.evicted:
            self.note_reservations(self.scope(holder.cluster_queue))

    def note_reservations(self, *trees: Scope | None) -> None:
        """Note the reservations in these trees that lack room, and may get some only now."""
        forest, near = self.cache.forest, frozenset(trees)
        for key, holder in self.cache.reservations.items():
            home = self.scope(holder.cluster_queue)
            if home is None or home not in near:
                continue
            if any(forest.exceeds(holder.cluster_queue, pair) for pair in holder.usage):
                self.effects.workloads.add(key)

    def note_all_in(self, cluster_queue: str) -> None:
        """Note all Workloads and LocalQueues of a ClusterQueue, whose activity may have changed."""
        self.effects.local_queues.update(self.cluster_queue_of.members(cluster_queue))
        queue = self.queues.cluster_queues.get(cluster_queue)
        if queue is not None:
            self.effects.workloads.update(queue.items)
        state = self.cache.state(cluster_queue)
        if state is not None:
            self.effects.workloads.update(state.holders)


def _stored(local_queue: LocalQueue) -> Sample | None:
    """The last sample of past usage in the status of a LocalQueue."""
    sharing = local_queue.status.fair_sharing
    past = None if sharing is None else sharing.admission_fair_sharing_status
    if past is None:
        return None
    consumed = {name: quantity.nanos for name, quantity in past.consumed_resources.items()}
    return Sample({name: max(0, nanos) for name, nanos in consumed.items()}, past.last_update)
