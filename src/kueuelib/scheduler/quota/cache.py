"""The cache: ClusterQueues, Cohorts, flavors, checks and the workloads that hold quota.

One writer, the engine, feeds it facts; cycles read frozen parts of it. Even an inactive
member of a cohort lends its quota and is charged for its usage.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from math import inf, nextafter

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.errors import UnknownObject
from kueuelib.scheduler.quota.amounts import Charge, FlavorResource
from kueuelib.scheduler.quota.decay import Value
from kueuelib.scheduler.quota.forest import Forest
from kueuelib.scheduler.quota.holders import Holder, Priorities, Ranked, rank_of
from kueuelib.scheduler.quota.node import share_of
from kueuelib.scheduler.quota.queue_spec import (
    ACTIVE,
    Activity,
    CohortQuotas,
    Flavor,
    QueueSpec,
    activity_of,
)
from kueuelib.scheduler.quota.snapshot import Frozen, FrozenQueue, FrozenTree, Snapshot
from kueuelib.scheduler.topology.nodes import NodeCache, TopologyOfFlavor
from kueuelib.scheduler.values import changed

# ---- the mutable part of the cache: the workloads that hold quota in one ClusterQueue ------------
# Only `kueuelib.scheduler.quota.cache` writes here. Sums are running totals. Frozen parts are made
# when a cycle asks for them and dropped by the next change.


@attrs.define
class Tally:
    """Running totals of some workloads that hold quota.

    Attributes:
        reserving: their number.
        admitted: how many of them are admitted.
        reserved: their usage.
        unadmitted: the usage of those that are not admitted yet.
    """

    reserving: int = 0
    admitted: int = 0
    reserved: dict[FlavorResource, int] = attrs.field(factory=dict)
    unadmitted: dict[FlavorResource, int] = attrs.field(factory=dict)

    @property
    def used(self) -> dict[FlavorResource, int]:
        """The usage of the admitted ones, without zeros."""
        used = {pair: self.reserved[pair] - self.unadmitted.get(pair, 0) for pair in self.reserved}
        return {pair: amount for pair, amount in used.items() if amount}

    def count(self, holder: Holder, sign: int) -> None:
        """Adds or subtracts one workload."""
        self.reserving += sign
        if holder.admitted:
            self.admitted += sign
        totals = (self.reserved,) if holder.admitted else (self.reserved, self.unadmitted)
        for pair, amount in holder.usage.items():
            for total in totals:
                after = total[pair] = total.get(pair, 0) + sign * amount
                if not after:
                    del total[pair]


class QueueState:
    """The usage of one ClusterQueue.

    Usage counts every workload that holds quota, also in flavors that the spec no longer lists:
    running workloads count, whatever the spec says.
    """

    def __init__(self, spec: QueueSpec, forest: Forest) -> None:
        self.spec = spec
        self.activity = ACTIVE
        self.holders: dict[ObjectKey, Holder] = {}
        self.ranked: list[Ranked] = []
        self.tally = Tally()
        self.local: dict[ObjectKey, Tally] = {}
        self.priorities = Priorities()
        self._forest = forest
        self._frozen: FrozenQueue | None = None
        self._ranked_shared = False

    def thaw(self) -> None:
        """Forgets the frozen part, because something changed."""
        if self._frozen is not None:
            self._frozen = None
            self._forest.touch(self.spec.name)

    def freeze(self) -> FrozenQueue:
        """The frozen part, which is made again only after a change."""
        if self._frozen is None:
            self._ranked_shared = True
            self._frozen = FrozenQueue(
                self.spec,
                "" if self.activity.active else self.activity.reason,
                dict(self.tally.reserved),
                self.ranked,
                self.priorities.lowest,
            )
        return self._frozen

    def add(self, holder: Holder) -> None:
        """Charges a workload."""
        self._count(holder, 1)
        self._list(holder)
        self.priorities.add(holder.priority)

    def remove(self, key: ObjectKey) -> Holder:
        """Removes the charge of a workload."""
        holder = self.holders[key]
        self._count(holder, -1)
        self._unlist(key)
        self.priorities.remove(holder.priority)
        return holder

    def replace(self, holder: Holder) -> None:
        """Replaces the state of a workload whose charge is the same."""
        self._unlist(holder.key)
        self._list(holder)
        self.thaw()

    def _list(self, holder: Holder) -> None:
        self._own_list()
        self.holders[holder.key] = holder
        insort(self.ranked, (rank_of(holder), holder))

    def _unlist(self, key: ObjectKey) -> None:
        self._own_list()
        del self.ranked[bisect_left(self.ranked, (rank_of(self.holders.pop(key)),))]

    def _own_list(self) -> None:
        if self._ranked_shared:
            self.ranked = list(self.ranked)
            self._ranked_shared = False

    def _count(self, holder: Holder, sign: int) -> None:
        self.tally.count(holder, sign)
        self._forest.charge(self.spec.name, holder.usage, sign)
        local = self.local.get(holder.local_queue)
        if local is None:
            local = self.local[holder.local_queue] = Tally()
        local.count(holder, sign)
        if not local.reserving:
            del self.local[holder.local_queue]
        self.thaw()


# --------------------------------------------------------------------------------------------------


class QuotaCache:
    """The state that decisions are based on.

    Attributes:
        forest: the trees of cohorts. Do not change it.
    """

    def __init__(self) -> None:
        self.forest = Forest()
        self._queues: dict[str, QueueState] = {}
        self._cohorts: dict[str, CohortQuotas] = {}
        self._flavors: dict[str, Flavor] = {}
        self._checks: dict[str, bool] = {}
        self._late_checks: frozenset[str] = frozenset()
        self._delaying: frozenset[str] = frozenset()
        self._levels: dict[str, tuple[str, ...]] = {}
        self._unreadable: Mapping[str, str] = {}
        self.nodes = NodeCache()
        self._holders: dict[ObjectKey, Holder] = {}
        self._homeless: dict[str, dict[ObjectKey, Holder]] = {}
        self._flavor_users: dict[str, set[str]] = {}
        self._check_users: dict[str, set[str]] = {}
        self._not_ready: dict[ObjectKey, None] = {}
        self._assumed: dict[ObjectKey, None] = {}
        self._reservations: dict[ObjectKey, Holder] = {}
        self._decided = 0.0

    # --- ClusterQueues

    def spec(self, name: str) -> QueueSpec | None:
        """The scheduler's form of a ClusterQueue; None if it does not exist."""
        state = self._queues.get(name)
        return state.spec if state else None

    def state(self, name: str) -> QueueState | None:
        """The ClusterQueue's totals, or None. Do not change them."""
        return self._queues.get(name)

    def tally(self, name: str, local_queue: ObjectKey) -> Tally | None:
        """The totals of a LocalQueue in a ClusterQueue; None if it holds no quota there."""
        state = self._queues.get(name)
        return None if state is None else state.local.get(local_queue)

    def available(self, name: str, pair: FlavorResource) -> int:
        """How much more of a pair a ClusterQueue could use now.

        Raises:
            UnknownObject: there is no such ClusterQueue.
        """
        if name not in self._queues:
            raise UnknownObject(f"the cache has no ClusterQueue {name}")
        return self.forest.available(name, pair)

    @property
    def names(self) -> tuple[str, ...]:
        """All ClusterQueues, sorted."""
        return tuple(sorted(self._queues))

    @property
    def flavors(self) -> Mapping[str, Flavor]:
        """The ResourceFlavors that exist, by name."""
        return self._flavors

    def set_queue(self, spec: QueueSpec) -> bool:
        """Takes over a new or changed ClusterQueue; False if nothing relevant changed."""
        state = self._queues.get(spec.name)
        if state is None:
            state = self._queues[spec.name] = QueueState(spec, self.forest)
            self._attach(state)
            for holder in self._homeless.pop(spec.name, {}).values():
                state.add(holder)
        elif state.spec == spec:
            return False
        else:
            self._detach(state)
            state.spec = spec
            self._attach(state)
        return True

    def remove_queue(self, name: str) -> None:
        """Forgets a ClusterQueue; workloads that still hold quota in it are kept for its return."""
        state = self._queues.pop(name, None)
        if state is None:
            return
        self._detach(state)
        self.forest.drop_queue(name)
        if state.holders:
            self._homeless[name] = dict(state.holders)

    def _attach(self, state: QueueState) -> None:
        spec = state.spec
        for flavor in spec.flavors:
            self._flavor_users.setdefault(flavor, set()).add(spec.name)
        for check in spec.checks:
            self._check_users.setdefault(check.name, set()).add(spec.name)
        state.activity = self._activity_of(spec)
        self.forest.put_queue(spec, state.tally.reserved, active=state.activity.active)
        state.thaw()

    def _activity_of(self, spec: QueueSpec) -> Activity:
        endless = spec.cohort if self.forest.is_endless(spec.cohort) else ""
        return activity_of(spec, self._flavors, self._checks, endless, self._unreadable)

    def _detach(self, state: QueueState) -> None:
        spec = state.spec
        for flavor in spec.flavors:
            _discard(self._flavor_users, flavor, spec.name)
        for name in {check.name for check in spec.checks}:
            _discard(self._check_users, name, spec.name)

    # --- cohorts

    @property
    def cohorts(self) -> tuple[CohortQuotas, ...]:
        """The Cohorts that have an object."""
        return tuple(self._cohorts.values())

    def set_cohort(self, spec: CohortQuotas) -> bool:
        """Takes over a new or changed Cohort; False if nothing relevant changed."""
        if self._cohorts.get(spec.name) == spec:
            return False
        self._cohorts[spec.name] = spec
        self.forest.put_cohort(spec)
        self._review(self.forest.below(spec.name))
        return True

    def remove_cohort(self, name: str) -> bool:
        """Forgets a Cohort, whose name stays while others use it; False if it was not known."""
        if self._cohorts.pop(name, None) is None:
            return False
        below = self.forest.below(name)
        self.forest.drop_cohort(name)
        self._review(below)
        return True

    def root_of(self, name: str) -> str:
        """The topmost cohort above a ClusterQueue; empty if it has none or does not exist."""
        spec = self.spec(name)
        return self.forest.root_of(spec.cohort) if spec is not None and spec.cohort else ""

    # --- flavors and checks: what decides activity

    def set_flavor(self, flavor: Flavor) -> tuple[str, ...]:
        """Takes over a ResourceFlavor; returns the queues that use it, or none if it is
        unchanged.
        """
        levels = self._levels.get(flavor.topology, ()) if flavor.topology else ()
        if levels:
            flavor = changed(flavor, levels=levels)
        if self._flavors.get(flavor.name) == flavor:
            return ()
        self._flavors = {**self._flavors, flavor.name: flavor}
        self.nodes.set_flavor(flavor.name, _nodes_of(flavor))
        return self._review(self.users_of_flavor(flavor.name))

    def remove_flavor(self, name: str) -> tuple[str, ...]:
        """Forgets a ResourceFlavor; returns the queues that use it."""
        self._flavors = {key: value for key, value in self._flavors.items() if key != name}
        self.nodes.set_flavor(name, None)
        return self._review(self.users_of_flavor(name))

    def set_topology(self, name: str, levels: tuple[str, ...]) -> tuple[str, ...]:
        """Takes over a Topology (KEP-2724); returns the queues whose flavors name it.

        Args:
            name: the Topology.
            levels: its label keys, from coarse to fine; none if it is gone.
        """
        self._levels[name] = levels
        if not levels:
            del self._levels[name]
        users: set[str] = set()
        for flavor in self._flavors.values():
            if flavor.topology == name:
                users.update(self.set_flavor(changed(flavor, levels=())))
        return tuple(sorted(users))

    def set_unreadable(self, kind: str, why: str) -> tuple[str, ...]:
        """Takes over why a kind that topologies need cannot be read; returns the queues affected.

        Args:
            kind: the kind.
            why: what the API server says; empty if it can be read.
        """
        if self._unreadable.get(kind, "") == why:
            return ()
        self._unreadable = {**self._unreadable, kind: why}
        flavors = (flavor.name for flavor in self._flavors.values() if flavor.levels)
        users = {name for flavor in flavors for name in self.users_of_flavor(flavor)}
        return self._review(tuple(sorted(users)))

    def set_check(
        self, name: str, *, active: bool, late: bool = False, delays: bool = False
    ) -> tuple[str, ...]:
        """Takes over an AdmissionCheck; returns the queues that use it, or none if it is unchanged.

        Args:
            name: the check.
            active: whether its controller is alive.
            late: whether it has to pass or to ask before a preemption (KEP-993).
            delays: whether pods get no places before it has passed (KEP-2724).
        """
        known = (name in self._late_checks) is late and (name in self._delaying) is delays
        if self._checks.get(name) is active and known:
            return ()
        self._checks[name] = active
        self._late_checks = self._late_checks | {name} if late else self._late_checks - {name}
        self._delaying = self._delaying | {name} if delays else self._delaying - {name}
        return self._review(self.users_of_check(name))

    def remove_check(self, name: str) -> tuple[str, ...]:
        """Forgets an AdmissionCheck; returns the queues that use it."""
        self._checks.pop(name, None)
        self._late_checks -= {name}
        self._delaying -= {name}
        return self._review(self.users_of_check(name))

    def _review(self, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            state = self._queues[name]
            activity = self._activity_of(state.spec)
            if activity != state.activity:
                state.activity = activity
                self.forest.set_active(name, active=activity.active)
                state.thaw()
        return names

    def users_of_flavor(self, name: str) -> tuple[str, ...]:
        """The ClusterQueues that list the flavor, sorted."""
        return tuple(sorted(self._flavor_users.get(name, ())))

    def users_of_check(self, name: str) -> tuple[str, ...]:
        """The ClusterQueues that require the check, sorted."""
        return tuple(sorted(self._check_users.get(name, ())))

    def activity(self, name: str) -> Activity | None:
        """The activity of a ClusterQueue; None if it does not exist."""
        state = self._queues.get(name)
        return state.activity if state else None

    # --- workloads that hold quota

    def holder(self, key: ObjectKey) -> Holder | None:
        """The charge of a workload; None if it holds no quota."""
        return self._holders.get(key)

    @property
    def holders(self) -> Mapping[ObjectKey, Holder]:
        """All workloads that hold quota. Do not change them."""
        return self._holders

    @property
    def reservations(self) -> Mapping[ObjectKey, Holder]:
        """The workloads that hold quota and are not admitted yet. Do not change them."""
        return self._reservations

    @property
    def assumed(self) -> tuple[Holder, ...]:
        """The workloads whose reservation the API server has not confirmed yet."""
        return tuple(self._holders[key] for key in self._assumed)

    @property
    def all_ready(self) -> bool:
        """Whether the pods of every workload that holds quota are ready."""
        return not self._not_ready

    def dated(self, holder: Holder, now: float) -> Holder:
        """A new reservation with the time of its decision, later than that of all before."""
        self._decided = max(now, nextafter(self._decided, inf))
        return changed(holder, decided_at=self._decided)

    def hold(self, holder: Holder) -> Holder | None:
        """Charges a workload; returns the replaced charge."""
        key, before = holder.key, self._holders.get(holder.key)
        state = self._queues.get(holder.cluster_queue)
        if before is not None and before == holder:
            return before
        if before is not None and state is not None and before.is_charged_like(holder):
            state.replace(holder)
            self._not_ready.pop(key, None)
            self._assumed.pop(key, None)
        else:
            if before is not None:
                self.release(key)
            if state is not None:
                state.add(holder)
            else:
                self._homeless.setdefault(holder.cluster_queue, {})[key] = holder
            if isinstance(holder.usage, Charge):
                self.nodes.charge(holder.usage.leaves)
        self._holders[key] = holder
        if holder.admitted:
            self._reservations.pop(key, None)
        else:
            self._reservations[key] = holder
        if not holder.pods_ready:
            self._not_ready[key] = None
        if holder.assumed:
            self._assumed[key] = None
        return before

    def release(self, key: ObjectKey) -> Holder | None:
        """Removes and returns the charge of a workload; None if it held no quota."""
        holder = self._holders.pop(key, None)
        if holder is None:
            return None
        if isinstance(holder.usage, Charge):
            self.nodes.charge(holder.usage.leaves, -1)
        self._reservations.pop(key, None)
        self._not_ready.pop(key, None)
        self._assumed.pop(key, None)
        state = self._queues.get(holder.cluster_queue)
        if state is not None:
            state.remove(key)
        else:
            homeless = self._homeless[holder.cluster_queue]
            del homeless[key]
            if not homeless:
                del self._homeless[holder.cluster_queue]
        return holder

    def reserving(self, name: str) -> int:
        """How many workloads hold quota in a ClusterQueue, whether it exists or not."""
        state = self._queues.get(name)
        return state.tally.reserving if state else len(self._homeless.get(name, ()))

    # --- what cycles see

    def freeze(
        self, names: Iterable[str], past_usage: Mapping[ObjectKey, Value] | None = None
    ) -> Frozen:
        """The frozen parts of these ClusterQueues and of their trees.

        Args:
            names: the ClusterQueues.
            past_usage: of LocalQueues, if it counts.
        """
        parts: list[Mapping[str, FrozenQueue]] = []
        trees: dict[str, FrozenTree] = {}
        for name in names:
            state = self._queues.get(name)
            if state is None:
                continue
            cohort = state.spec.cohort
            if not cohort:
                parts.append({name: state.freeze()})
            elif cohort not in trees:
                tree = self.forest.freeze(cohort, self._part)
                trees.update(dict.fromkeys(tree.quota.rows, tree))
                parts.append(tree.members)
        if len(parts) == 1:  # shared as it is: a copy would cost all members of a large tree
            return self._frozen(parts[0], trees, past_usage)
        queues: dict[str, FrozenQueue] = {}
        for part in parts:
            queues.update(part)
        return self._frozen(queues, trees, past_usage)

    def _frozen(
        self,
        queues: Mapping[str, FrozenQueue],
        trees: Mapping[str, FrozenTree],
        past_usage: Mapping[ObjectKey, Value] | None = None,
    ) -> Frozen:
        return Frozen(
            queues,
            trees,
            self._flavors,
            self._late_checks,
            past_usage or {},
            self.nodes.freeze(),
            self._delaying,
        )

    def freeze_tree(self, cohort: str) -> Frozen | None:
        """The frozen parts of the tree of a cohort; None if nothing uses its name."""
        if not self.forest.has_cohort(cohort):
            return None
        tree = self.forest.freeze(cohort, self._part)
        trees = dict.fromkeys(tree.quota.rows, tree)
        return self._frozen(tree.members, trees)

    def _part(self, name: str) -> FrozenQueue:
        return self._queues[name].freeze()

    def rebuilt(self) -> QuotaCache:
        """A cache rebuilt from the same facts, to verify this one."""
        fresh = QuotaCache()
        for name, active in self._checks.items():
            late, delays = name in self._late_checks, name in self._delaying
            fresh.set_check(name, active=active, late=late, delays=delays)
        for name, levels in self._levels.items():
            fresh.set_topology(name, levels)
        for kind, why in self._unreadable.items():
            fresh.set_unreadable(kind, why)
        for flavor in self._flavors.values():
            fresh.set_flavor(flavor)
        for cohort in self._cohorts.values():
            fresh.set_cohort(cohort)
        for state in self._queues.values():
            fresh.set_queue(attrs.evolve(state.spec))
        self.nodes.copy_to(fresh.nodes)
        for holder in self._holders.values():
            fresh.hold(holder)
        return fresh


def _nodes_of(flavor: Flavor) -> TopologyOfFlavor | None:
    """What decides about the nodes of a flavor; None without a topology."""
    if not flavor.levels:
        return None
    return TopologyOfFlavor(flavor.topology, flavor.levels, flavor.labels, flavor.tolerations)


def _discard(index: dict[str, set[str]], key: str, member: str) -> None:
    members = index.get(key)
    if members is not None:
        members.discard(member)
        if not members:
            del index[key]


# ---- the shares that statuses and metrics show (KEP-1714) ----------------------------------------


def share_of_queue(cache: QuotaCache, name: str) -> float:
    """The share of a ClusterQueue, not rounded.

    Infinite for one that borrows with weight 0; 0 without a cohort or if it does not exist.
    """
    snapshot = Snapshot(cache.freeze((name,)))
    queue = snapshot.queue(name)
    return 0.0 if queue is None else share_of(snapshot.nodes[queue.spec.name], snapshot.used).number


def share_of_cohort(cache: QuotaCache, name: str) -> float:
    """The share of a cohort, not rounded.

    Infinite for one that borrows with weight 0; 0 for a root or a name that nothing uses.
    """
    frozen = cache.freeze_tree(name)
    if frozen is None:
        return 0.0
    node = frozen.trees[name].quota.cohort(name)
    return share_of(node, Snapshot(frozen).used).number
