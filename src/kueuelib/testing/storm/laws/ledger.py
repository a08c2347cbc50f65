"""Trees of Cohorts with their usage: available amounts, and the shares of nodes.

Everything is computed recursively from the declared quota. Amounts of a node whose parents form a
cycle are undefined: check `endless` first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

import attrs

from kueuelib.testing.storm.laws.amounts import ZERO, Usage
from kueuelib.testing.storm.laws.quotas import Node, Pair


@attrs.frozen
class Ledger:
    """All ClusterQueues, Cohorts, and their usage.

    Attributes:
        queues: by name.
        usage: by name of a ClusterQueue.
        cohorts: the Cohorts that have an object, by name.
    """

    queues: Mapping[str, Node]
    usage: Mapping[str, Usage]
    cohorts: Mapping[str, Node] = attrs.field(factory=dict)

    # ---- where Workloads are

    def above(self, node: Node) -> Node | None:
        """The Cohort above a node; one without an object has no quota and no parent."""
        if not node.parent:
            return None
        return self.cohorts.get(node.parent) or Node(node.parent, "", {}, inner=True)

    def chain(self, node: Node) -> list[Node]:
        """The Cohorts above a node, the nearest first; it ends where a cycle closes."""
        cohorts: list[Node] = []
        here = self.above(node)
        while here is not None and here not in cohorts:
            cohorts.append(here)
            here = self.above(here)
        return cohorts

    def endless(self, node: Node) -> bool:
        """Whether the parents of a node end in a cycle."""
        return self.above([node, *self.chain(node)][-1]) is not None

    def members(self, queue: Node) -> list[Node]:
        """The ClusterQueues of its tree, itself among them."""
        here = {cohort.name for cohort in self.chain(queue)}
        return [
            one
            for one in self.queues.values()
            if one.name == queue.name or here & {cohort.name for cohort in self.chain(one)}
        ]

    def _below(self, cohort: Node) -> Iterator[Node]:
        for one in (*self.queues.values(), *self.cohorts.values()):
            if one.parent == cohort.name:
                yield one

    def pairs(self, node: Node) -> set[Pair]:
        """The pairs for which a node, or any node below it, declares quota."""
        below = self._below(node) if node.inner else ()
        return set(node.quotas).union(*(self.pairs(child) for child in below))

    # ---- amounts

    def used(self, node: Node, pair: Pair) -> Fraction:
        """The usage of a ClusterQueue, or the amount that a Cohort has to provide to those
        below it.
        """
        if not node.inner:
            return self.usage.get(node.name, {}).get(pair, ZERO)
        children = self._below(node)
        return sum((self._asked(child, pair) for child in children), start=ZERO)

    def owned(self, node: Node, pair: Pair) -> Fraction:
        """The quota of a node, with what those below a Cohort lend to it."""
        total = node.quota(pair).nominal
        for child in self._below(node) if node.inner else ():
            total += self.owned(child, pair) - self._kept(child, pair)
        return total

    def _kept(self, node: Node, pair: Pair) -> Fraction:
        """The part that a node never lends."""
        lending = node.quota(pair).lending
        return ZERO if lending is None else max(ZERO, self.owned(node, pair) - lending)

    def _asked(self, node: Node, pair: Pair) -> Fraction:
        """What a node uses of its parent: everything beyond its own guaranteed part."""
        return max(ZERO, self.used(node, pair) - self._kept(node, pair))

    def free(self, node: Node, pair: Pair) -> Fraction:
        """How much of a pair a node can still use; negative if it, or a Cohort above, uses too
        much.
        """
        if not node.inner and pair not in node.quotas:
            return -self.used(node, pair)
        owned, used, parent = self.owned(node, pair), self.used(node, pair), self.above(node)
        if parent is None:
            return owned - used
        kept, left, limit = (
            self._kept(node, pair),
            self.free(parent, pair),
            node.quota(pair).borrowing,
        )
        if limit is not None:
            left = min(left, owned - kept + limit - self._asked(node, pair))
        return max(ZERO, kept - used) + left

    def largest(self, node: Node, pair: Pair) -> Fraction:
        """How much a node could use if nothing were used."""
        return attrs.evolve(self, usage={}).free(node, pair)

    def excess(self, queue: Node, pairs: Iterable[Pair]) -> Iterator[str]:
        """The pairs that a ClusterQueue overuses."""
        for pair in sorted(pairs):
            left = self.free(queue, pair)
            if left < 0:
                flavor, resource = pair
                used = float(self.used(queue, pair))
                yield (
                    f"{resource} in flavor {flavor}: ClusterQueue {queue.name} uses {used:g}, "
                    f"{float(-left):g} more than there is"
                )

    # ---- shares

    def share(self, node: Node) -> Fraction | None:
        """The share that a node has borrowed of what its parent could lend, in thousandths.

        Divided by the weight of the node; None for a node of weight 0 that borrows.
        """
        parent = self.above(node)
        if parent is None:
            return ZERO
        borrowed: dict[str, Fraction] = defaultdict(Fraction)
        for pair in self.pairs(node):
            borrowed[pair[1]] += max(ZERO, self.used(node, pair) - self.owned(node, pair))
        there: dict[str, Fraction] = defaultdict(Fraction)
        for pair in self.pairs(self.chain(node)[-1]):
            there[pair[1]] += self.largest(parent, pair)
        ratios = [
            amount * 1000 / there[resource]
            for resource, amount in borrowed.items()
            if there[resource] > 0
        ]
        ratio = max(ratios, default=ZERO)
        if not node.weight:
            return None if ratio else ZERO
        return ratio / node.weight
