"""A naive model of quota in a tree (KEP-79, KEP-1714).

It shares no code with the scheduler. A world is a scenario in the form of
`kueuelib.testing.scenarios`; every number is computed by walking the tree, nothing is remembered
but usage. A pair is a tuple of flavor and resource, an amount a whole number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf
from typing import Any

Pair = tuple[str, str]
Amounts = dict[Pair, int]


@dataclass(eq=False)
class Work:
    """A workload that holds quota."""

    name: str
    queue: str
    priority: int
    created: float
    reserved: float
    evicted: bool
    usage: Amounts


@dataclass(eq=False)
class Node:
    """A ClusterQueue or a cohort; `spec` is what the scenario says about it."""

    name: str
    is_queue: bool
    spec: Mapping[str, Any] = field(default_factory=dict)
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    nominal: Amounts = field(default_factory=dict)
    borrowing: Amounts = field(default_factory=dict)
    lending: Amounts = field(default_factory=dict)
    weight: float = 1.0
    usage: Amounts = field(default_factory=dict)
    active: bool = True

    def path(self) -> Iterator[Node]:
        """This node and everything above it; endless below a cycle."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    @property
    def root(self) -> Node:
        *_, root = self.path()
        return root

    @property
    def cyclic(self) -> bool:
        """Whether the chain of parents never ends."""
        seen = set()
        for node in self.path():
            if id(node) in seen:
                return True
            seen.add(id(node))
        return False

    def queues(self) -> Iterator[Node]:
        """The active ClusterQueues in the subtree."""
        if self.is_queue:
            if self.active:
                yield self
            return
        for child in self.children:
            yield from child.queues()

    # --- quota

    def pairs(self) -> set[Pair]:
        """The pairs that the subtree has quota for."""
        return set(self.nominal).union(*(child.pairs() for child in self.children))

    def subtree(self, x: Pair) -> int:
        """S: the quota of the subtree."""
        lent = sum(child.subtree(x) - child.guaranteed(x) for child in self.children)
        return self.nominal.get(x, 0) + lent

    def guaranteed(self, x: Pair) -> int:
        """G: what is never lent."""
        return max(0, self.subtree(x) - self.lending[x]) if x in self.lending else 0

    def potential(self, x: Pair) -> int:
        """The most that could ever be used."""
        if self.parent is None:
            return self.subtree(x)
        most = self.guaranteed(x) + self.parent.potential(x)
        if x in self.borrowing:
            most = min(most, self.subtree(x) + self.borrowing[x])
        return most

    def height(self) -> int:
        """The height of the subtree, stopped ClusterQueues left out."""
        members = [child for child in self.children if not child.is_queue or child.active]
        if self.is_queue or not members:
            return 0
        return 1 + max((child.height() for child in members if not child.is_queue), default=0)

    # --- usage

    def used(self, x: Pair) -> int:
        return self.usage.get(x, 0)

    def free(self, x: Pair) -> int:
        """F: what is free of the guaranteed part."""
        return max(0, self.guaranteed(x) - self.used(x))

    def available(self, x: Pair) -> int:
        """What can be taken now; may be negative."""
        if self.parent is None:
            return self.subtree(x) - self.used(x)
        shared = self.parent.available(x)
        if x in self.borrowing:
            beyond = max(0, self.used(x) - self.guaranteed(x))
            most = self.subtree(x) - self.guaranteed(x) - beyond + self.borrowing[x]
            shared = min(shared, most)
        return self.free(x) + shared

    def add(self, usage: Mapping[Pair, int]) -> None:
        for x, amount in usage.items():
            rest = amount
            for node in self.path():
                free = node.free(x)
                node.usage[x] = node.used(x) + rest
                rest -= free
                if rest <= 0:
                    break

    def remove(self, usage: Mapping[Pair, int]) -> None:
        for x, amount in usage.items():
            rest = amount
            for node in self.path():
                beyond = node.used(x) - node.guaranteed(x)
                node.usage[x] = node.used(x) - rest
                rest = min(rest, beyond)
                if rest <= 0:
                    break

    def fits(self, usage: Mapping[Pair, int]) -> bool:
        return all(amount <= max(0, self.available(x)) for x, amount in usage.items())

    def within(self, pairs: Iterable[Pair]) -> bool:
        """Whether usage is within nominal quota for all pairs."""
        return all(self.used(x) <= self.subtree(x) for x in pairs)

    def level(self, x: Pair, amount: int) -> tuple[int, bool]:
        """How far up a queue has to borrow, and whether a smaller tree than the whole fits."""
        if self.used(x) + amount <= self.nominal.get(x, 0) or self.parent is None:
            return 0, self.parent is not None
        rest = amount - self.free(x)
        for node in self.parent.path():
            if node.used(x) + rest <= node.subtree(x):
                return node.height(), node.parent is not None
            rest -= node.free(x)
        return self.root.height(), False

    # --- share

    def borrows(self) -> list[Pair]:
        """The pairs of which more is used than the subtree has; a root borrows nothing."""
        if self.parent is None:
            return []
        return [x for x in self.pairs() if self.used(x) > self.subtree(x)]

    def share(self) -> tuple[int, float]:
        """The share as a key: higher is worse. Weight 0 that borrows is above all others."""
        taken: dict[str, int] = {}
        for x in self.borrows():
            taken[x[1]] = taken.get(x[1], 0) + self.used(x) - self.subtree(x)
        ratio = 0.0
        for resource, amount in taken.items():
            assert self.parent is not None
            known = [x for x in self.root.pairs() if x[1] == resource]
            lendable = sum(self.parent.potential(x) for x in known)
            if lendable > 0:
                ratio = max(ratio, float(amount) * 1000.0 / float(lendable))
        if ratio == 0:
            return 0, 0.0
        return (1, ratio) if self.weight == 0 else (0, ratio / self.weight)

    def weighted_share(self) -> float:
        """The share as a number, infinite for a weight of 0 that borrows."""
        above, share = self.share()
        return inf if above else share


class World:
    """The tree of a scenario with what holds quota before the first cycle."""

    def __init__(self, scenario: Mapping[str, Any]) -> None:
        self.scenario = scenario
        self.queues: dict[str, Node] = {}
        self.cohorts: dict[str, Node] = {}
        for name, spec in scenario["cqs"].items():
            node = self.queues[name] = Node(name, is_queue=True, spec=spec)
            node.active = spec.get("active", True) and spec.get("stopPolicy", "None") == "None"
            self._put(node, spec, spec.get("cohort", ""))
        for spec in scenario.get("cohorts", ()):
            self._put(self._cohort(spec["name"]), spec, spec.get("parent", ""))
        self.holders: dict[str, Work] = {}
        for workload in scenario.get("admitted", ()):
            usage: Amounts = {}
            for pod_set in workload.get("podsets") or [workload]:
                flavors = pod_set.get("flv") or workload.get("flv", {})
                for resource, amount in pod_set["req"].items():
                    flavor = flavors if isinstance(flavors, str) else flavors[resource]
                    total = amount * pod_set.get("assigned", pod_set.get("count", 1))
                    usage[flavor, resource] = usage.get((flavor, resource), 0) + total
            work = Work(
                workload["name"],
                workload["cq"],
                workload.get("prio", 0),
                workload.get("created", 0),
                workload.get("t", 0),
                bool(workload.get("evicted")),
                usage,
            )
            self.holders[work.name] = work
            if not self.queues[work.queue].cyclic:
                self.queues[work.queue].add(usage)

    def _cohort(self, name: str) -> Node:
        return self.cohorts.setdefault(name, Node(name, is_queue=False))

    def _put(self, node: Node, spec: Mapping[str, Any], parent: str) -> None:
        node.spec = spec
        weight = spec.get("fairSharing", {}).get("weight", 1)
        node.weight = float(Fraction(str(weight)))
        for group in spec.get("groups", ()):
            for flavor, quotas in group.items():
                for resource, quota in quotas.items():
                    parts = [*str(quota).split("/"), "-", "-"]
                    tables = (node.nominal, node.borrowing, node.lending)
                    for table, part in zip(tables, parts, strict=False):
                        if part != "-":
                            table[flavor, resource] = int(part)
        if parent:
            node.parent = self._cohort(parent)
            node.parent.children.append(node)

    def running(self, queue: Node) -> list[Work]:
        return [work for work in self.holders.values() if work.queue == queue.name]

    def take(self, work: Work) -> None:
        """Takes a workload out, with its usage."""
        del self.holders[work.name]
        self.queues[work.queue].remove(work.usage)

    def give(self, work: Work) -> None:
        self.holders[work.name] = work
        self.queues[work.queue].add(work.usage)
