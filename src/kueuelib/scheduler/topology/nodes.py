"""The nodes of all flavors that have a topology, kept up to date (KEP-2724).

A node counts for a flavor if it is ready, not cordoned, has the labels of the flavor and a value
for every level. Pods of others take room on it, and so does every Workload with a placement. A
change of amounts costs what it changes; so does a node that comes, goes or changes its labels, when
the tree of its flavors is next needed.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import attrs

from kueuelib.api.codec import decode
from kueuelib.api.core import Taint, Toleration
from kueuelib.api.meta import is_true, labels_of
from kueuelib.api.nodes import allocatable
from kueuelib.api.quantity import amount_of
from kueuelib.api.struct import frozen
from kueuelib.api.workload import HOST
from kueuelib.scheduler.topology.counting import Moment, beginning
from kueuelib.scheduler.topology.leaf_room import FlavorNodes
from kueuelib.scheduler.topology.tree import Charges, DomainTree, Leaf, LeafKey, leaf_key

Amounts = Mapping[str, int]
"""Per resource, in the units of `amount_of`."""

_NOTHING: Final[Amounts] = {}
_FEW: Final = 0.1
"""If more of the leaves than that have changed, the whole tree is built."""


@frozen
class NodeFacts:
    """What counts of a Node.

    Attributes:
        name: its name.
        labels: its labels.
        taints: its taints.
        capacity: what its pods may request together, in the units of `amount_of`.
        ready: whether it is ready.
        cordoned: whether no further pods may be placed on it.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    capacity: Mapping[str, int]
    ready: bool
    cordoned: bool = False

    @property
    def usable(self) -> bool:
        """Whether it takes pods."""
        return self.ready and not self.cordoned


def node_facts(node: Mapping[str, Any]) -> NodeFacts:
    """What counts of a Node.

    Args:
        node: the raw object.
    """
    spec = node.get("spec") or {}
    return NodeFacts(
        node["metadata"]["name"],
        labels_of(node),
        tuple(decode(Taint, taint) for taint in spec.get("taints") or ()),
        {name: amount_of(name, quantity) for name, quantity in allocatable(node).items()},
        is_true(node, "Ready"),
        bool(spec.get("unschedulable")),
    )


@frozen
class TopologyOfFlavor:
    """What decides which nodes a flavor has, and how they form a tree.

    Attributes:
        topology: the name of the Topology.
        levels: its label keys, from coarse to fine.
        labels: those that its nodes must have.
        tolerations: those that it adds to its pods.
        mixed: see `FlavorNodes`.
    """

    topology: str
    levels: tuple[str, ...]
    labels: Mapping[str, str]
    tolerations: tuple[Toleration, ...]
    mixed: bool = True

    def counts(self, node: NodeFacts) -> bool:
        """Whether a node belongs to the flavor."""
        return node.usable and self.fits(node)

    def fits(self, node: NodeFacts) -> bool:
        """Whether a node belongs to the flavor as soon as it is usable."""
        return all(node.labels.get(key) == wanted for key, wanted in self.labels.items()) and all(
            level in node.labels for level in self.levels
        )


@attrs.define
class TreeOfFlavor:
    """The nodes of a flavor.

    Attributes:
        flavor: its name.
        spec: which nodes it has.
        leaf_of: the key of the leaf of each node.
        members: the nodes of each leaf, by name.
        leaves: the leaves of an earlier tree that are still the same.
        tree: None until it is needed.
        changed: the leaves that it does not show as they are now.
        capacity: see `FlavorNodes`.
        free: see `FlavorNodes`.
        empty: see `FlavorNodes`.
        now: see `FlavorNodes`.
        frozen: the last state that was asked for, if it has these columns; then they are copied
            before a change.
    """

    flavor: str
    spec: TopologyOfFlavor
    leaf_of: dict[str, LeafKey] = attrs.field(factory=dict)
    members: dict[LeafKey, dict[str, NodeFacts]] = attrs.field(factory=dict)
    leaves: dict[LeafKey, Leaf] = attrs.field(factory=dict)
    tree: DomainTree | None = None
    changed: set[LeafKey] = attrs.field(factory=set)
    capacity: dict[str, list[int]] = attrs.field(factory=dict)
    free: dict[str, list[int]] = attrs.field(factory=dict)
    empty: Moment = attrs.field(factory=beginning)
    now: Moment = attrs.field(factory=beginning)
    frozen: FlavorNodes | None = None

    def drop(self, name: str) -> bool:
        """Forgets a node; whether it was known."""
        key = self.leaf_of.pop(name, None)
        if key is None:
            return False
        members = self.members[key]
        del members[name]
        if not members:
            del self.members[key]
        self._changes(key)
        return True

    def add(self, node: NodeFacts) -> None:
        """Takes over a node that counts."""
        spec = self.spec
        key = leaf_key(self.flavor, spec.levels, [node.labels[level] for level in spec.levels])
        self.leaf_of[node.name] = key
        self.members.setdefault(key, {})[node.name] = node
        self._changes(key)

    def _changes(self, key: LeafKey) -> None:
        self.leaves.pop(key, None)
        if self.tree is not None:
            self.changed.add(key)

    def leaf(self, key: LeafKey) -> Leaf:
        """A leaf with the name, labels and taints of the first of its nodes."""
        leaf = self.leaves.get(key)
        if leaf is None:
            members = self.members[key]
            node = members[min(members)]
            path = tuple([node.labels[level] for level in self.spec.levels])
            hosts = self.spec.levels[-1] == HOST
            of_node = (node.labels, node.taints, node.name) if hosts else ({}, (), "")
            leaf = self.leaves[key] = Leaf(key, path, *of_node)
        return leaf

    def freeze(self, taken: Mapping[str, Amounts], used: Mapping[LeafKey, Amounts]) -> FlavorNodes:
        """The present state, which does not change.

        Args:
            taken: what pods of others take, by node.
            used: what Workloads take, by leaf.
        """
        if self.tree is None or len(self.changed) > len(self.tree.leaves) * _FEW:
            self._build(taken, used)
        elif self.changed:
            self._patch(self.tree, taken, used)
        if self.frozen is None:
            assert self.tree is not None, "it was built"
            self.frozen = FlavorNodes(
                self.tree,
                self.spec.tolerations,
                self.capacity,
                self.free,
                self.empty,
                self.now,
                self.spec.mixed,
            )
        return self.frozen

    def _build(self, taken: Mapping[str, Amounts], used: Mapping[LeafKey, Amounts]) -> None:
        """Makes the tree and its columns."""
        leaves = map(self.leaf, self.members)
        tree = self.tree = DomainTree(self.spec.topology, self.spec.levels, leaves)
        self.changed, self.frozen, self.capacity = set(), None, {}
        self.empty, self.now = beginning(), beginning()
        for position, leaf in enumerate(tree.leaves):
            for resource, amount in self.offered(leaf.key, taken):
                _add(self.capacity, resource, position, amount, len(tree.leaves))
        self.free = {name: [*column] for name, column in self.capacity.items()}
        for key, position in tree.positions.items():
            for resource, amount in used.get(key, _NOTHING).items():
                _add(self.free, resource, position, -amount, len(tree.leaves))

    def _patch(
        self,
        before: DomainTree,
        taken: Mapping[str, Amounts],
        used: Mapping[LeafKey, Amounts],
    ) -> None:
        """Brings the tree and its columns in line with a few changed leaves."""
        self._own_columns()
        gone = [key for key in self.changed if key in before.positions]
        new = [key for key in self.changed if key in self.members]
        tree = copy.copy(before)
        removed, added = tree.take_over(gone, map(self.leaf, new))
        self.tree, self.changed = tree, set()
        self.empty, self.now = beginning(), beginning()
        for column in (*self.capacity.values(), *self.free.values()):
            for position in removed:
                del column[position]
            for position in added:
                column.insert(position, 0)
        size = len(tree.leaves)
        for key in new:
            position = tree.positions[key]
            for resource, amount in self.offered(key, taken):
                _add(self.capacity, resource, position, amount, size)
                _add(self.free, resource, position, amount, size)
            for resource, amount in used.get(key, _NOTHING).items():
                _add(self.free, resource, position, -amount, size)

    def offered(self, key: LeafKey, taken: Mapping[str, Amounts]) -> Iterator[tuple[str, int]]:
        """What the nodes of a leaf have, and what pods of others take of it."""
        for name, node in self.members[key].items():
            yield from node.capacity.items()
            for resource, amount in taken.get(name, _NOTHING).items():
                yield resource, -amount

    def _own_columns(self) -> None:
        """Copies the columns if somebody has them."""
        if self.frozen is not None:
            self.capacity = {name: [*column] for name, column in self.capacity.items()}
            self.free = {name: [*column] for name, column in self.free.items()}
            self.frozen = None

    def shift(self, key: LeafKey, amounts: Mapping[str, int], sign: int, *, of_nodes: bool) -> None:
        """Changes the room in a leaf, and its capacity as well if pods of others do that."""
        tree = self.tree
        position = None if tree is None else tree.positions.get(key)
        if tree is None or position is None:
            return
        self._own_columns()
        self.now = self.now.after(position, len(tree.leaves))
        if of_nodes:
            self.empty = self.empty.after(position, len(tree.leaves))
        for columns in (self.capacity, self.free) if of_nodes else (self.free,):
            for resource, amount in amounts.items():
                _add(columns, resource, position, sign * amount, len(tree.leaves))


def _add(
    columns: dict[str, list[int]], resource: str, position: int, amount: int, size: int
) -> None:
    column = columns.get(resource)
    if column is None:
        column = columns[resource] = [0] * size
    column[position] += amount


class NodeCache:
    """Nodes, the pods on them that are nobody's Workload, and what Workloads take.

    Attributes:
        mixed: see `FlavorNodes`; set before there are flavors.
    """

    def __init__(self) -> None:
        self.mixed = True
        self._flavors: dict[str, TreeOfFlavor] = {}
        self._nodes: dict[str, NodeFacts] = {}
        self._pods: dict[object, tuple[str, Mapping[str, int]]] = {}
        self._taken: dict[str, dict[str, int]] = {}
        self._used: dict[LeafKey, dict[str, int]] = {}
        self._frozen: dict[str, FlavorNodes] | None = None

    @property
    def flavors(self) -> Mapping[str, tuple[str, ...]]:
        """The levels of each flavor that has a topology."""
        return {name: each.spec.levels for name, each in self._flavors.items()}

    def spec(self, flavor: str) -> TopologyOfFlavor | None:
        """Which nodes a flavor has; None without a topology."""
        trees = self._flavors.get(flavor)
        return None if trees is None else trees.spec

    def set_flavor(self, name: str, spec: TopologyOfFlavor | None) -> bool:
        """Takes over which nodes a flavor has; None for one without a topology.

        Returns:
            Whether anything changed.
        """
        known = self._flavors.get(name)
        spec = spec if spec is None or self.mixed else attrs.evolve(spec, mixed=False)
        if (None if known is None else known.spec) == spec:
            return False
        self._flavors.pop(name, None)
        self._frozen = None
        if spec is not None:
            trees = self._flavors[name] = TreeOfFlavor(name, spec)
            for node in self._nodes.values():
                if spec.counts(node):
                    trees.add(node)
        return True

    def flavors_of(self, leaves: Collection[LeafKey]) -> list[str]:
        """The flavors that have any of the leaves."""
        return [
            name
            for name, each in self._flavors.items()
            if any(leaf in each.members for leaf in leaves)
        ]

    def lacked(self, freed: Charges, needs: Charges) -> bool:
        """Whether a leaf had too little room for pods until something became free there.

        Args:
            freed: what has become free in each leaf.
            needs: what the pods need.
        """
        for key in freed.keys() & needs.keys():
            free = Counter({name: -amount for name, amount in freed[key].items()})
            free.subtract(self._used.get(key, _NOTHING))
            for each in self._flavors.values():
                if key in each.members:
                    for resource, amount in each.offered(key, self._taken):
                        free[resource] += amount
                    break
            if any(amount > max(0, free[resource]) for resource, amount in needs[key].items()):
                return True
        return False

    def set_node(self, node: NodeFacts) -> set[str]:
        """Takes over a new or changed node; returns the flavors that it belonged or belongs to.

        Nothing is returned if nothing that counts has changed.
        """
        before = self._nodes.get(node.name)
        if before == node:
            return set()
        self._nodes[node.name] = node
        changed = set()
        for name, trees in self._flavors.items():
            key, counts = trees.leaf_of.get(node.name), trees.spec.counts(node)
            if key is None and not counts:
                continue
            changed.add(name)
            same = before is not None and attrs.evolve(before, capacity=node.capacity) == node
            if before is not None and key is not None and counts and same:
                trees.members[key][node.name] = node
                trees.shift(key, before.capacity, -1, of_nodes=True)
                trees.shift(key, node.capacity, 1, of_nodes=True)
                continue
            trees.drop(node.name)
            if counts:
                trees.add(node)
        if changed:
            self._frozen = None
        return changed

    def drop_node(self, name: str) -> set[str]:
        """Forgets a node; returns the flavors that it belonged to."""
        self._nodes.pop(name, None)
        changed = {flavor for flavor, trees in self._flavors.items() if trees.drop(name)}
        if changed:
            self._frozen = None
        return changed

    def set_pod(self, key: object, node: str, request: Mapping[str, int] | None) -> Charges:
        """Takes over a pod that is nobody's Workload.

        Args:
            key: the pod.
            node: where it runs.
            request: what it takes, the slot of a pod included; None if it takes nothing now.

        Returns:
            What has become free in each leaf.
        """
        after = None if request is None or not node else (node, request)
        before = self._pods.get(key)
        if before == after:
            return {}
        freed: Charges = {}
        if before is not None:
            del self._pods[key]
            freed = self._shift_node(*before, 1)
        if after is not None:
            self._pods[key] = after
            self._shift_node(*after, -1)
        return freed

    def _shift_node(self, node: str, amounts: Amounts, sign: int) -> Charges:
        taken = self._taken.setdefault(node, {})
        for resource, amount in amounts.items():
            taken[resource] = taken.get(resource, 0) - sign * amount
            if not taken[resource]:
                del taken[resource]
        if not taken:
            del self._taken[node]
        shifted: dict[LeafKey, Amounts] = {}
        for trees in self._flavors.values():
            leaf = trees.leaf_of.get(node)
            if leaf is not None:
                trees.shift(leaf, amounts, sign, of_nodes=True)
                shifted[leaf] = amounts
        if shifted:
            self._frozen = None
        return shifted

    def charge(self, charges: Charges, sign: int = 1) -> None:
        """Counts what the pods of a Workload take, or ends counting it if the sign is -1."""
        for key, amounts in charges.items():
            used = self._used.setdefault(key, {})
            for resource, amount in amounts.items():
                used[resource] = used.get(resource, 0) + sign * amount
                if not used[resource]:
                    del used[resource]
            if not used:
                del self._used[key]
            for trees in self._flavors.values():
                trees.shift(key, amounts, -sign, of_nodes=False)
        if charges:
            self._frozen = None

    def freeze(self) -> Mapping[str, FlavorNodes]:
        """The present state of all flavors with a topology, by name; it does not change."""
        if self._frozen is None:
            self._frozen = {
                name: each.freeze(self._taken, self._used) for name, each in self._flavors.items()
            }
        return self._frozen

    def copy_to(self, other: NodeCache) -> None:
        """Gives another cache all nodes and pods of this one."""
        for node in self._nodes.values():
            other.set_node(node)
        for key, (name, request) in self._pods.items():
            other.set_pod(key, name, request)

    def rebuilt(self) -> NodeCache:
        """A cache rebuilt from the same facts, to verify this one."""
        fresh = NodeCache()
        fresh.mixed = self.mixed
        for name, trees in self._flavors.items():
            fresh.set_flavor(name, trees.spec)
        self.copy_to(fresh)
        fresh.charge(self._used)
        return fresh
