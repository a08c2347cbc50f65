"""The quota of a tree of cohorts at one time, the shares in it, and its best leaf; immutable.

Usage is kept elsewhere, because it changes often and quota rarely.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from heapq import heappop, heappush
from math import inf
from typing import Any, NamedTuple

import attrs

from kueuelib.api.struct import frozen
from kueuelib.scheduler.quota.amounts import (
    NOTHING,
    FlavorResource,
    Limits,
    QuotaStep,
    Used,
    available_along,
    potential,
    steps_up,
)
from kueuelib.scheduler.quota.queue_spec import QueueSpec


def cohort_key(name: str) -> str:
    """The key of a cohort. The key of a ClusterQueue is its name, which never contains a slash."""
    return f"/{name}"


def cohort_name(key: str) -> str:
    """The name of a cohort with a key."""
    return key[1:]


class _Steps(dict[FlavorResource, tuple["QuotaStep", ...]]):
    __slots__ = ("_path",)

    def __init__(self, path: tuple[QuotaNode, ...]) -> None:
        super().__init__()
        self._path = path

    def __missing__(self, pair: FlavorResource) -> tuple[QuotaStep, ...]:
        steps = self[pair] = steps_up(self._path, pair)
        return steps


class _Capacity(dict[FlavorResource, int]):
    __slots__ = ("_steps",)

    def __init__(self, steps: Mapping[FlavorResource, tuple[QuotaStep, ...]]) -> None:
        super().__init__()
        self._steps = steps

    def __missing__(self, pair: FlavorResource) -> int:
        capacity = self[pair] = available_along(self._steps[pair], NOTHING)
        return capacity


@frozen(eq=False)
class QuotaNode:
    """A ClusterQueue or a cohort.

    Attributes:
        name: its name.
        is_queue: whether it is a ClusterQueue.
        limits: its own quota.
        quota: the same plus what its children lend it: the nominal quota is that of the subtree.
        height: 0 for a leaf and for a cohort without active ClusterQueues, otherwise the number of
            levels below.
        weight: the divisor of its share of borrowed quota.
        ancestors: the cohorts above it, the parent first and the root last.
        divisor: the weight in the form for computing shares.
        lendable: the most that it could have, per resource; computed on demand.
        key: the key of its usage.
        place: the path from the root for messages: `/root/cohort/queue`.
    """

    name: str
    is_queue: bool
    limits: Mapping[FlavorResource, Limits]
    quota: Mapping[FlavorResource, Limits]
    height: int = 0
    weight: Fraction = Fraction(1)
    ancestors: tuple[QuotaNode, ...] = ()
    lendable: dict[str, int] = attrs.field(factory=dict, init=False)
    divisor: float = attrs.field(init=False)
    key: str = attrs.field(init=False)
    parent: QuotaNode | None = attrs.field(init=False)
    """The cohort above; None for a root."""
    place: str = attrs.field(init=False)
    steps: Mapping[FlavorResource, tuple[QuotaStep, ...]] = attrs.field(init=False)
    """The quota of every pair from this node up; see `kueuelib.scheduler.quota.amounts`."""
    capacity: Mapping[FlavorResource, int] = attrs.field(init=False)
    """The most of every pair that the node could ever use, with nothing running anywhere."""

    @divisor.default
    def _divisor(self) -> float:
        return float(self.weight)

    @key.default
    def _key(self) -> str:
        return self.name if self.is_queue else cohort_key(self.name)

    @parent.default
    def _parent(self) -> QuotaNode | None:
        return self.ancestors[0] if self.ancestors else None

    @place.default
    def _place(self) -> str:
        return f"{self.parent.place if self.parent else ''}/{self.name}"

    @steps.default
    def _steps(self) -> Mapping[FlavorResource, tuple[QuotaStep, ...]]:
        return _Steps(self.path)

    @capacity.default
    def _capacity(self) -> Mapping[FlavorResource, int]:
        return _Capacity(self.steps)

    @property
    def root(self) -> QuotaNode:
        """The top of the tree."""
        return self.ancestors[-1] if self.ancestors else self

    @property
    def path(self) -> tuple[QuotaNode, ...]:
        """The node itself and the cohorts above it, the root last."""
        return (self, *self.ancestors)


@frozen
class CohortRow:
    """A cohort in a tree; the attributes are those of `QuotaNode`."""

    parent: str
    limits: Mapping[FlavorResource, Limits]
    quota: Mapping[FlavorResource, Limits]
    height: int
    weight: Fraction


@frozen(eq=False)
class QuotaTree:
    """The cohorts of one tree.

    Attributes:
        root: the name of the topmost cohort.
        rows: the cohorts, by name.
    """

    root: str
    rows: Mapping[str, CohortRow]
    _nodes: dict[str, QuotaNode] = attrs.field(factory=dict, init=False)

    def queue(self, spec: QueueSpec) -> QuotaNode:
        """The node of a ClusterQueue of this tree; always the same one."""
        node = self._nodes.get(spec.name)
        if node is None:
            node = self._nodes[spec.name] = leaf(spec, self.cohort(spec.cohort).path)
        return node

    def cohort(self, name: str) -> QuotaNode:
        """The node of a cohort of this tree; always the same one."""
        missing = []
        while name and cohort_key(name) not in self._nodes:
            missing.append(name)
            name = self.rows[name].parent
        above = self._nodes[cohort_key(name)].path if name else ()
        for each in reversed(missing):
            row = self.rows[each]
            node = QuotaNode(each, False, row.limits, row.quota, row.height, row.weight, above)
            self._nodes[node.key] = node
            above = node.path
        return above[0]


def alone(spec: QueueSpec) -> QuotaNode:
    """The node of a ClusterQueue that no cohort is above; always the same one."""
    if not spec.alone:
        spec.alone.append(leaf(spec))
    node: QuotaNode = spec.alone[0]
    return node


def leaf(spec: QueueSpec, ancestors: tuple[QuotaNode, ...] = ()) -> QuotaNode:
    """The node of a ClusterQueue.

    Args:
        spec: its quota.
        ancestors: the cohorts above it, the parent first; empty if there are none.
    """
    return QuotaNode(spec.name, True, spec.limits, spec.limits, 0, spec.weight, ancestors)


# ---- the share of a node: what it borrows, relative to what it could borrow and to its weight ----
# (KEP-1714, "Share value").
#
# The numbers are doubles, computed in the same steps as in Kueue, because shares that differ in the
# last bit lead to other decisions than equal ones.

Usages = Mapping[FlavorResource, Used]
"""The usage of a pair by all nodes."""


class Share(NamedTuple):
    """The share of a node as a sort key; a larger one is further above its fair share.

    Attributes:
        weightless: whether the node borrows with weight 0, which is above every other share.
        value: thousandths of what the cohort above could lend, divided by the weight unless that is
            0.
    """

    weightless: bool
    value: float

    @property
    def number(self) -> float:
        """The share as one number, infinite for a node that borrows with weight 0."""
        return inf if self.weightless else self.value


NO_SHARE = Share(weightless=False, value=0.0)


def borrowed(node: QuotaNode, usages: Usages) -> dict[FlavorResource, int]:
    """How much more than its subtree owns a node uses, for the listed pairs.

    A root borrows nothing.
    """
    if node.parent is None:
        return {}
    key, excess = node.key, {}
    for pair, quota in node.quota.items():
        more = usages[pair][key] - quota.nominal
        if more > 0:
            excess[pair] = more
    return excess


def share_of(node: QuotaNode, usages: Usages) -> Share:
    """The largest share of any resource that a node borrows."""
    more = borrowed(node, usages)
    return weigh(node, more) if more else NO_SHARE


def weigh(node: QuotaNode, more: dict[FlavorResource, int]) -> Share:
    """The share of a node that borrows these amounts.

    A resource that the cohort above cannot lend does not count.
    """
    parent = node.parent
    if parent is None:
        return NO_SHARE
    taken: dict[str, int] = {}
    for pair, amount in more.items():
        taken[pair.resource] = taken.get(pair.resource, 0) + amount
    ratio = 0.0
    for resource, amount in taken.items():
        lendable = lendable_of(parent, resource)
        if lendable > 0:
            ratio = max(ratio, float(amount) * 1000.0 / float(lendable))
    if not ratio:
        return NO_SHARE
    if not node.divisor:
        return Share(weightless=True, value=ratio)
    return Share(weightless=False, value=ratio / node.divisor)


def lendable_of(cohort: QuotaNode, resource: str) -> int:
    """The most of a resource that a cohort could have, in all flavors of its tree."""
    lendable = cohort.lendable.get(resource)
    if lendable is None:
        lendable = cohort.lendable[resource] = sum(
            potential(cohort, pair) for pair in cohort.root.quota if pair.resource == resource
        )
    return lendable


# ---- finds the best leaf of a tree in which every cohort sends the best of its children ----------
# Both orders of fair sharing work like this: the next head to decide, and the next ClusterQueue to
# give back quota. After a change only the path of one leaf is evaluated again, so the cost is the
# depth of the tree, not the number of siblings. Searches for victims keep one bracket of borrowers
# per cycle, and take into their own only those that they look at.

_ABOVE_ROOTS = ""


class Bracket:
    """Ranks leaves against each other, cohort by cohort.

    Args:
        leaves: the ClusterQueues that take part.
        rank: the rank of a node among its siblings if it sends this leaf, smaller first; None
            leaves the node out. Roots are siblings of each other. Ranks of siblings that are equal
            are ordered by the keys of the nodes.
        later: other leaves, whose ranks there are no larger than here. They take part as soon as
            they may come first, so those that do not cost nothing.
    """

    def __init__(
        self,
        leaves: Iterable[QuotaNode],
        rank: Callable[[QuotaNode, QuotaNode], Any],
        later: Bracket | None = None,
    ) -> None:
        self._rank = rank
        self._later = later
        self._leaves = {leaf.key: leaf for leaf in leaves}
        self._siblings: dict[str, list[tuple[Any, str]]] = {}
        self._ranks: dict[str, Any] = {}
        self._sent: dict[str, QuotaNode] = {}
        self._entered: dict[str, int] = {}
        self._nodes = {node.key: node for leaf in self._leaves.values() for node in leaf.path}
        for node in sorted(self._nodes.values(), key=lambda node: -len(node.ancestors)):
            self._settle(node)

    @property
    def best(self) -> QuotaNode | None:
        """The leaf that the best root sends; None if no leaf is left."""
        return self._first(_ABOVE_ROOTS)

    def touch(self, leaf: QuotaNode) -> None:
        """Evaluates a new or changed leaf and the cohorts above."""
        self._leaves[leaf.key] = leaf
        self._climb(leaf)

    def drop(self, leaf: QuotaNode) -> None:
        """Removes a leaf."""
        del self._leaves[leaf.key]
        self._climb(leaf)

    def leaves_below(self, cohort: QuotaNode, but: QuotaNode) -> Iterator[tuple[Any, QuotaNode]]:
        """The leaves below a cohort with their ranks, in their order, but for those of one child.

        A cohort must have the rank of the leaf that it sends.
        """
        heap: list[tuple[Any, str, int, list[tuple[Any, str]]]] = []

        def go_on(siblings: list[tuple[Any, str]], index: int) -> None:
            if index < len(siblings) and siblings[index][1] == but.key:
                index += 1
            if index < len(siblings):
                heappush(heap, (*siblings[index], index, siblings))

        go_on(self._siblings.get(cohort.key, []), 0)
        while heap:
            rank, key, index, siblings = heappop(heap)
            go_on(siblings, index + 1)
            if key in self._leaves:
                yield rank, self._leaves[key]
            else:
                go_on(self._siblings[key], 0)

    def _climb(self, leaf: QuotaNode) -> None:
        for node in leaf.path:
            self._settle(node)

    def _settle(self, node: QuotaNode) -> None:
        """Puts a node in its place among its siblings."""
        self._nodes[node.key] = node
        above = _ABOVE_ROOTS if node.parent is None else node.parent.key
        siblings = self._siblings.setdefault(above, [])
        before = self._ranks.pop(node.key, None)
        if before is not None:
            del siblings[bisect_left(siblings, (before, node.key))]
        leaf = self._leaves.get(node.key) if node.is_queue else self._first(node.key)
        rank = None if leaf is None else self._rank(node, leaf)
        if leaf is not None and rank is not None:
            self._ranks[node.key], self._sent[node.key] = rank, leaf
            insort(siblings, (rank, node.key))

    def _first(self, cohort: str) -> QuotaNode | None:
        children = self._siblings.setdefault(cohort, [])
        if self._later is not None:
            self._enter(self._later, cohort, children)
        return self._sent[children[0][1]] if children else None

    def _enter(self, later: Bracket, cohort: str, children: list[tuple[Any, str]]) -> None:
        """Lets the children of a cohort take part that may come before its best one."""
        waiting, index = later._siblings.get(cohort, ()), self._entered.get(cohort, 0)
        while index < len(waiting) and (not children or waiting[index] < children[0]):
            node = later._nodes[waiting[index][1]]
            index += 1
            self._entered[cohort] = index
            if node.key not in self._nodes:
                if node.is_queue:
                    self._leaves[node.key] = node
                self._settle(node)
