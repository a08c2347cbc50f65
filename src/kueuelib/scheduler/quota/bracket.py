"""Finds the best leaf of a tree in which every cohort sends the best of its children.

Both orders of fair sharing work like this: the next head to decide, and the next ClusterQueue to
give back quota. After a change only the path of one leaf is evaluated again, so the cost is the
depth of the tree, not the number of siblings.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import Any

from kueuelib.scheduler.quota.node import QuotaNode

_ABOVE_ROOTS = ""


class Bracket:
    """Ranks leaves against each other, cohort by cohort.

    Args:
        leaves: the ClusterQueues that take part.
        rank: the rank of a node among its siblings if it sends this leaf, smaller first; None
            leaves the node out. Roots are siblings of each other. Ranks of siblings that are equal
            are ordered by the keys of the nodes.
    """

    def __init__(
        self, leaves: Iterable[QuotaNode], rank: Callable[[QuotaNode, QuotaNode], Any]
    ) -> None:
        self._rank = rank
        self._leaves = {leaf.key: leaf for leaf in leaves}
        self._siblings: dict[str, list[tuple[Any, str]]] = {}
        self._ranks: dict[str, Any] = {}
        self._sent: dict[str, QuotaNode] = {}
        nodes = {node.key: node for leaf in self._leaves.values() for node in leaf.path}
        for node in sorted(nodes.values(), key=lambda node: -len(node.ancestors)):
            self._settle(node)

    @property
    def best(self) -> QuotaNode | None:
        """The leaf that the best root sends; None if no leaf is left."""
        return self._first(_ABOVE_ROOTS)

    def touch(self, leaf: QuotaNode) -> None:
        """Evaluates a changed leaf and the cohorts above again."""
        for node in leaf.path:
            self._settle(node)

    def drop(self, leaf: QuotaNode) -> None:
        """Removes a leaf."""
        del self._leaves[leaf.key]
        self.touch(leaf)

    def _settle(self, node: QuotaNode) -> None:
        """Puts a node in its place among its siblings."""
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
        children = self._siblings.get(cohort)
        return self._sent[children[0][1]] if children else None
