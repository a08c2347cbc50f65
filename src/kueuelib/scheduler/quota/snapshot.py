"""The state that a cycle sees: frozen parts of the cache, and an overlay that can be undone.

The cache freezes a ClusterQueue or a tree of cohorts when a cycle first needs it, and keeps the
frozen part until it changes. So the cost of a snapshot depends on the changes, not on the size. A
cycle never writes to frozen parts: `Snapshot` holds the differences and an undo log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Any, NamedTuple

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.errors import UnknownObject
from kueuelib.scheduler.quota.amounts import (
    NO_LIMITS,
    NOTHING,
    Amounts,
    Charge,
    FlavorResource,
    Limits,
    Used,
    add_along,
    available_along,
)
from kueuelib.scheduler.quota.decay import UNUSED, Value
from kueuelib.scheduler.quota.holders import Holder, Ranked
from kueuelib.scheduler.quota.node import (
    Bracket,
    QuotaNode,
    QuotaTree,
    alone,
    cohort_key,
    cohort_name,
)
from kueuelib.scheduler.quota.queue_spec import Flavor, QueueSpec
from kueuelib.scheduler.topology.leaf_room import NO_NODES, FlavorNodes, LeafRoom
from kueuelib.scheduler.values import value


@value
class FrozenQueue:
    """One ClusterQueue at the time of a cycle.

    Attributes:
        spec: its quotas and policies.
        inactive: why it cannot admit anything; empty if it can.
        usage: of the workloads that hold quota, including pairs without quota.
        ranked: these workloads, in the order of preemption.
        lowest_priority: the lowest priority among them, or None (KEP-83).
    """

    spec: QueueSpec
    inactive: str
    usage: Mapping[FlavorResource, int]
    ranked: Sequence[Ranked]
    lowest_priority: int | None


@value
class FrozenTree:
    """A tree of cohorts at the time of a cycle.

    Attributes:
        quota: of the cohorts.
        members: the ClusterQueues, by name.
        used: what each cohort provides for its children, by key.
        borrowers: for each cohort, by key, the keys of its borrowing children, per flavor and
            resource.
    """

    quota: QuotaTree
    members: Mapping[str, FrozenQueue]
    used: Mapping[str, Amounts]
    borrowers: Mapping[str, Mapping[FlavorResource, AbstractSet[str]]]


@value
class Frozen:
    """The frozen parts that one cycle needs: the heads' queues, their trees, the flavors.

    Attributes:
        queues: the ClusterQueues, by name.
        trees: the trees of cohorts, by the name of each of their cohorts.
        flavors: the ResourceFlavors that exist, by name.
        late_checks: the AdmissionChecks before which nothing is preempted (KEP-993).
        past_usage: of LocalQueues, if it counts (KEP-4136).
        nodes: those of the flavors that have a topology (KEP-2724).
        delaying: the AdmissionChecks before which pods get no places.
    """

    queues: Mapping[str, FrozenQueue]
    trees: Mapping[str, FrozenTree]
    flavors: Mapping[str, Flavor]
    late_checks: frozenset[str] = frozenset()
    past_usage: Mapping[ObjectKey, Value] = attrs.field(factory=dict)
    nodes: Mapping[str, FlavorNodes] = NO_NODES
    delaying: frozenset[str] = frozenset()


NOBODY: AbstractSet[str] = frozenset()


class Usage(dict[str, int]):
    """The usage of one pair by the nodes; copied when first needed.

    Args:
        base: the initial usage, by key.
    """

    __slots__ = ("_base",)

    def __init__(self, base: Used) -> None:
        super().__init__()
        self._base = base

    def __missing__(self, key: str) -> int:
        used = self[key] = self._base[key]
        return used


class _FrozenUsage(Usage):
    __slots__ = ("_frozen", "_pair")

    def __init__(self, frozen: Frozen, pair: FlavorResource) -> None:
        super().__init__(NOTHING)
        self._frozen = frozen
        self._pair = pair

    def __missing__(self, key: str) -> int:
        queue = self._frozen.queues.get(key)
        usage = self._frozen.trees[cohort_name(key)].used[key] if queue is None else queue.usage
        used = self[key] = usage.get(self._pair, 0)
        return used


class _Usages(dict[FlavorResource, Usage]):
    __slots__ = ("_frozen",)

    def __init__(self, frozen: Frozen) -> None:
        super().__init__()
        self._frozen = frozen

    def __missing__(self, pair: FlavorResource) -> Usage:
        usage = self[pair] = _FrozenUsage(self._frozen, pair)
        return usage


class _Nodes(dict[str, QuotaNode]):
    __slots__ = ("_frozen",)

    def __init__(self, frozen: Frozen) -> None:
        super().__init__()
        self._frozen = frozen

    def __missing__(self, name: str) -> QuotaNode:
        spec = self._frozen.queues[name].spec
        tree = self._frozen.trees.get(spec.cohort)
        node = self[name] = alone(spec) if tree is None else tree.quota.queue(spec)
        return node


class Reclaimable(NamedTuple):
    """The borrowing ClusterQueues that share a lowest common cohort with another one.

    Attributes:
        cohort: the lowest cohort above both.
        queues: these ClusterQueues.
    """

    cohort: QuotaNode
    queues: tuple[FrozenQueue, ...]


class Snapshot:
    """Frozen parts plus the changes that a cycle tries out.

    `add` and `remove` change usage, `take_out` removes a workload that holds quota, `put_back`
    brings it back; `mark` and `undo` restore an earlier state exactly. All reads take the changes
    into account.

    Attributes:
        flavors: the ResourceFlavors that exist, by name.
        nodes: the places of the ClusterQueues in their trees, by name.
        used: the usage of a pair by all nodes. Only the methods above change it.
        leaves: the room in the leaves of topologies. Only the methods above change it.
    """

    def __init__(self, frozen: Frozen) -> None:
        self._frozen = frozen
        self._queues = frozen.queues
        self.flavors = frozen.flavors
        self.nodes: Mapping[str, QuotaNode] = _Nodes(frozen)
        self.used: Mapping[FlavorResource, Usage] = _Usages(frozen)
        self.leaves = LeafRoom(frozen.nodes)
        self._borrowers: dict[tuple[str, FlavorResource], set[str]] = {}
        self._gone: dict[ObjectKey, Holder] = {}
        self._held: Snapshot | None = None
        self._charges = 0
        self._brackets: dict[object, tuple[Bracket, int]] = {}
        self._changed: dict[str, list[str]] = {}
        self._log: list[tuple[str, Amounts, int, Holder | None]] = []

    @property
    def late_checks(self) -> frozenset[str]:
        """The AdmissionChecks that have to pass or to ask before a preemption."""
        return self._frozen.late_checks

    @property
    def delaying(self) -> frozenset[str]:
        """The AdmissionChecks before which pods get no places."""
        return self._frozen.delaying

    def past_usage(self, local_queue: ObjectKey) -> Value:
        """The past usage of a LocalQueue as a number; 0 if it does not count."""
        return self._frozen.past_usage.get(local_queue, UNUSED)

    def queue(self, name: str) -> FrozenQueue | None:
        """The frozen ClusterQueue; None if it does not exist."""
        return self._queues.get(name)

    def tree_of(self, queue: FrozenQueue) -> FrozenTree | None:
        """The tree of a ClusterQueue; None if it has no cohort."""
        return self._frozen.trees.get(queue.spec.cohort)

    def places(self, cluster_queues: Iterable[str]) -> dict[str, str]:
        """The path from its root to each ClusterQueue, as `/root/cohort/queue`."""
        return {name: self.nodes[name].place for name in cluster_queues}

    # --- changes

    def add(self, queue: FrozenQueue, amounts: Amounts) -> None:
        """Increases usage."""
        self._charges += 1
        self._log.append((queue.spec.name, amounts, 1, None))
        self._apply(queue, amounts, 1)

    def remove(self, queue: FrozenQueue, amounts: Amounts) -> None:
        """Decreases usage."""
        self._charges += 1
        self._log.append((queue.spec.name, amounts, -1, None))
        self._apply(queue, amounts, -1)

    def take_out(self, holder: Holder) -> None:
        """Removes a workload that holds quota, as if it had been preempted.

        Raises:
            UnknownObject: it was taken out before, or its ClusterQueue is not in the snapshot.
        """
        if holder.key in self._gone or holder.cluster_queue not in self._queues:
            raise UnknownObject(f"{holder.key} holds no quota in this snapshot")
        queue = self._queues[holder.cluster_queue]
        self._gone[holder.key] = holder
        self._log.append((queue.spec.name, holder.usage, -1, holder))
        self._apply(queue, holder.usage, -1)
        if self._held is not None:
            self._held.take_out(holder)

    def put_back(self, holder: Holder) -> None:
        """Brings a workload back that was taken out.

        Raises:
            UnknownObject: it was not taken out.
        """
        if holder.key not in self._gone:
            raise UnknownObject(f"{holder.key} was not taken out of this snapshot")
        queue = self._queues[holder.cluster_queue]
        del self._gone[holder.key]
        self._log.append((queue.spec.name, holder.usage, 1, holder))
        self._apply(queue, holder.usage, 1)
        if self._held is not None:
            self._held.put_back(holder)

    def mark(self) -> int:
        """A mark of the present state, for `undo`."""
        return len(self._log)

    def undo(self, mark: int) -> None:
        """Undoes everything since `mark`."""
        while len(self._log) > mark:
            name, amounts, sign, gone = self._log.pop()
            self._apply(self._queues[name], amounts, -sign)
            if gone is None:
                self._charges -= 1
                continue
            if sign < 0:
                del self._gone[gone.key]
            else:
                self._gone[gone.key] = gone
            if self._held is not None:
                (self._held.put_back if sign < 0 else self._held.take_out)(gone)

    def _apply(self, queue: FrozenQueue, amounts: Amounts, sign: int) -> None:
        node = self.nodes[queue.spec.name]
        if self._changed and node.root.key in self._changed:
            self._changed[node.root.key].append(node.key)
        if isinstance(amounts, Charge):
            self.leaves.take(amounts.leaves, sign, amounts.seen_by)
        for pair, amount in amounts.items():
            if amount:
                used = self.used[pair]
                steps = node.steps[pair]
                _, turned = add_along(steps, sign * amount, used)
                for index in turned:
                    if index + 1 < len(steps):
                        at = (steps[index + 1].key, pair)
                        if at not in self._borrowers:
                            self._borrowers[at] = set(self._children_that_borrow(*at))
                        self._borrowers[at] ^= {steps[index].key}

    # --- reads

    @property
    def gone(self) -> Collection[ObjectKey]:
        """The workloads that were taken out."""
        return self._gone

    @property
    def held(self) -> Snapshot:
        """This state with only what Workloads hold that were not taken out; it follows changes.

        It is the state itself if nothing else was added or removed.
        """
        if not self._charges:
            return self
        if self._held is None:
            self._held = Snapshot(self._frozen)
            for holder in self._gone.values():
                self._held.take_out(holder)
        return self._held

    def limits(self, queue: FrozenQueue, pair: FlavorResource) -> Limits:
        """The quota of the ClusterQueue; zero for unlisted pairs."""
        return queue.spec.limits.get(pair, NO_LIMITS)

    def usage(self, queue: FrozenQueue, pair: FlavorResource) -> int:
        """The usage of the ClusterQueue."""
        return self.used[pair][queue.spec.name]

    def capacity(self, queue: FrozenQueue, pair: FlavorResource) -> int:
        """The most the ClusterQueue could ever use, with nothing running."""
        return self.nodes[queue.spec.name].capacity[pair]

    def available(self, queue: FrozenQueue, pair: FlavorResource) -> int:
        """How much more the ClusterQueue could use now; not negative, even if it uses too much."""
        steps = self.nodes[queue.spec.name].steps[pair]
        return max(0, available_along(steps, self.used[pair]))

    def lacks(self, queue: FrozenQueue, amounts: Amounts) -> dict[FlavorResource, int]:
        """How much more than is available the ClusterQueue would need."""
        steps, lacks = self.nodes[queue.spec.name].steps, {}
        for pair, amount in amounts.items():
            lack = amount - available_along(steps[pair], self.used[pair])
            if lack > 0:
                lacks[pair] = lack
        return lacks

    def reclaimable(
        self, queue: FrozenQueue, pairs: Collection[FlavorResource]
    ) -> list[Reclaimable]:
        """The other active ClusterQueues that borrow any of the pairs, from the nearest up.

        A ClusterQueue is left out if its side of the tree, below the lowest common cohort, does not
        borrow.
        """
        tree, below = self.tree_of(queue), self.nodes[queue.spec.name]
        levels = []
        for cohort in below.ancestors:
            assert tree is not None, "it has a cohort"
            borrowers = []
            waiting = [cohort]
            while waiting:
                here, keys = waiting.pop(), {below.key}
                for pair in pairs:
                    keys |= self._children_that_borrow(here.key, pair)
                keys.discard(below.key)
                for key in sorted(keys):
                    member = tree.members.get(key)
                    if member is None:
                        waiting.append(tree.quota.cohort(cohort_name(key)))
                    elif not member.inactive:
                        borrowers.append(member)
            levels.append(Reclaimable(cohort, tuple(borrowers)))
            below = cohort
        return levels

    def others_borrow(self, queue: FrozenQueue, pairs: Collection[FlavorResource]) -> bool:
        """Whether `reclaimable` may name any ClusterQueue."""
        path = self.nodes[queue.spec.name].path
        for below, cohort in pairwise(path):
            for pair in pairs:
                borrowers = self._children_that_borrow(cohort.key, pair)
                if len(borrowers) > (below.key in borrowers):
                    return True
        return False

    def borrowers(self, queue: FrozenQueue, pairs: Collection[FlavorResource]) -> list[FrozenQueue]:
        """The other active ClusterQueues of the tree that borrow any of the pairs, by name."""
        tree = self.tree_of(queue)
        if tree is None:
            return []
        keys = {
            key
            for name in tree.quota.rows
            for pair in pairs
            for key in self._children_that_borrow(cohort_key(name), pair)
        }
        members = [tree.members[key] for key in sorted(keys & tree.members.keys())]
        return [one for one in members if one is not queue and not one.inactive]

    def bracket(
        self,
        queue: FrozenQueue,
        pairs: frozenset[FlavorResource],
        name: str,
        rank: Callable[[QuotaNode, QuotaNode], Any],
    ) -> Bracket:
        """The ClusterQueues of a tree that borrow any of the pairs, ranked against each other.

        It is kept, and whatever changed since the last call is ranked again.

        Args:
            queue: any ClusterQueue of the tree.
            pairs: the pairs.
            name: of the order; each has its own.
            rank: see `Bracket`; it depends on this state only.
        """
        root = self.nodes[queue.spec.name].root.key
        changed, key = self._changed.setdefault(root, []), (root, pairs, name)
        if key in self._brackets:
            bracket, seen = self._brackets[key]
            for changed_queue in dict.fromkeys(changed[seen:]):
                bracket.touch(self.nodes[changed_queue])
        else:
            borrowers = (queue, *self.held.borrowers(queue, pairs))
            bracket = Bracket((self.nodes[each.spec.name] for each in borrowers), rank)
        self._brackets[key] = bracket, len(changed)
        return bracket

    def _children_that_borrow(self, cohort: str, pair: FlavorResource) -> AbstractSet[str]:
        """The keys of the children of a cohort, by its key."""
        changed = self._borrowers.get((cohort, pair))
        if changed is not None:
            return changed
        return self._frozen.trees[cohort_name(cohort)].borrowers[cohort].get(pair, NOBODY)

    def fits(self, queue: FrozenQueue, amounts: Amounts) -> bool:
        """Whether all amounts are available now; a request for nothing always is."""
        if isinstance(amounts, Charge) and not self.leaves.holds(amounts.leaves, amounts.flavors):
            return False
        steps = self.nodes[queue.spec.name].steps
        for pair, amount in amounts.items():
            if amount > 0 and amount > available_along(steps[pair], self.used[pair]):
                return False
        return True

    def lacks_places(self, queue: FrozenQueue, amounts: Amounts) -> bool:
        """Whether all amounts of quota are available, but not the places of pods."""
        if not isinstance(amounts, Charge) or self.leaves.holds(amounts.leaves, amounts.flavors):
            return False
        return self.fits(queue, dict(amounts))
