"""The nodes of one flavor as a tree of label values, and what is free in its leaves (KEP-2724).

A domain of level `i` is one combination of values of the first `i + 1` levels. The domains of a
level are sorted by their values, so the children of a domain are neighbours, and the position of a
domain also decides between equals. Amounts are columns: for each resource, one number per leaf.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kueuelib.api.core import PodSpec, Taint, Toleration
from kueuelib.api.nodes import required_node_affinity, term_matches, untolerated
from kueuelib.api.workload import HOST
from kueuelib.scheduler.values import value

Path = tuple[str, ...]
"""The label values of a domain, from the coarsest level."""

LeafKey = tuple[str, ...]
"""What identifies a leaf wherever its amounts are counted.

A node has one key in all topologies that end with `HOST`, so that flavors with the same nodes see
each other's pods. Other leaves belong to their flavor alone.
"""

Columns = Mapping[str, Sequence[int]]
"""Per resource, an amount for each leaf of a tree; absent: none of it anywhere."""

Charges = Mapping[LeafKey, Mapping[str, int]]
"""What pods take of leaves, by resource, the slots of pods included."""


_SHAPES: Final = 64
"""For how many pods with different needs a changed tree keeps what bars them."""
_MOST_SHAPES: Final = 1024
"""The same for a tree that does not change."""


NOTHING_BARRED: Final[Mapping[int, str]] = {}
"""What bars pods from no leaf."""


def leaf_key(flavor: str, levels: Sequence[str], values: Sequence[str]) -> LeafKey:
    """The key of a leaf.

    Args:
        flavor: the flavor of the pods.
        levels: those of an assignment or of the topology.
        values: the label values of the leaf, at least that of the last level.
    """
    return ("", values[-1]) if levels[-1] == HOST else (flavor, *values)


def noun_of(level: str) -> str:
    """What people call a domain of a level.

    Args:
        level: its label key.
    """
    return "node" if level == HOST else level.rpartition("/")[2].removeprefix("topology-")


def name_of(level: str, values: Path) -> str:
    """A domain for people: the kind of its level, and its values.

    Args:
        level: its label key.
        values: those by which it differs from others.
    """
    return f"{noun_of(level)} {'/'.join(values)}"


@value
class Leaf:
    """A domain of the last level.

    Attributes:
        key: see `LeafKey`.
        path: its label values.
        labels: of its node, if its level is `HOST`.
        taints: of its node, if its level is `HOST`.
        node: the name of that.
    """

    key: LeafKey
    path: Path
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    node: str = ""


class DomainTree:
    """The domains of a topology on the nodes of one flavor.

    Args:
        topology: the name of the Topology.
        levels: its label keys, from coarse to fine.
        leaves: the domains of the last level, in any order.

    Attributes:
        leaves: the same, sorted by path.
        paths: per level, the domains.
        children: per level but the last, the positions of a domain's children: the first one, and
            the one behind the last.
        positions: the positions of leaves by their keys.
    """

    def __init__(self, topology: str, levels: tuple[str, ...], leaves: Iterable[Leaf]) -> None:
        self.topology = topology
        self.levels = levels
        self.leaves = sorted(leaves, key=lambda leaf: leaf.path)
        self.positions = {leaf.key: index for index, leaf in enumerate(self.leaves)}
        below = [leaf.path for leaf in self.leaves]
        self.paths = [below]
        self.children: list[list[tuple[int, int]]] = []
        for depth in range(len(levels) - 1, 0, -1):
            above: list[Path] = []
            spans: list[tuple[int, int]] = []
            for index, path in enumerate(below):
                if above and above[-1] == path[:depth]:
                    spans[-1] = spans[-1][0], index + 1
                else:
                    above.append(path[:depth])
                    spans.append((index, index + 1))
            self.paths.insert(0, above)
            self.children.insert(0, spans)
            below = above
        self._tainted = sum(bool(leaf.taints) for leaf in self.leaves)
        self._barred: dict[str, tuple[PodSpec, tuple[Toleration, ...], dict[int, str]]] = {}

    def take_over(
        self, gone: Iterable[LeafKey], new: Iterable[Leaf]
    ) -> tuple[list[int], list[int]]:
        """Takes over that some leaves have gone and others have come.

        Call it on a shallow copy, as others have this tree. It costs what changes, beside copies
        of lists.

        Args:
            gone: keys of leaves.
            new: leaves with other keys than those that stay.

        Returns:
            The positions to delete from a column, and those to insert in it then, one after the
            other.
        """
        self.leaves = [*self.leaves]
        self.paths = [[*level] for level in self.paths]
        self.children = [[*level] for level in self.children]
        self._barred = {} if len(self._barred) > _SHAPES else dict(self._barred)
        removed = sorted([self.positions[key] for key in gone], reverse=True)
        for position in removed:
            self._move_domains(self.leaves.pop(position), position, -1)
        added = []
        for leaf in new:
            position = bisect_left(self.paths[-1], leaf.path)
            self.leaves.insert(position, leaf)
            self._move_domains(leaf, position, 1)
            added.append(position)
        keys = [leaf.key for leaf in self.leaves]
        self.positions = dict(zip(keys, range(len(keys)), strict=True))
        return removed, added

    def _move_domains(self, leaf: Leaf, position: int, step: int) -> None:
        """Takes over that a leaf has come (1) or gone (-1), and with it domains above it."""
        self._tainted += step * bool(leaf.taints)
        for shape, (pods, tolerations, before) in self._barred.items():
            behind = position if step > 0 else position + 1
            barred = {
                index + step * (index >= behind): why
                for index, why in before.items()
                if step > 0 or index != position
            }
            if step > 0 and (why := _bar(leaf, pods, tolerations)):
                barred[position] = why
            self._barred[shape] = pods, tolerations, barred
        path = leaf.path
        for level in range(len(self.levels) - 1, -1, -1):
            if step > 0:
                self.paths[level].insert(position, path[: level + 1])
            else:
                del self.paths[level][position]
            if not level:
                return
            spans, child = self.children[level - 1], position
            position = bisect_left(self.paths[level - 1], path[:level])
            known = self.paths[level - 1][position : position + 1] == [path[:level]]
            if known:
                first, end = spans[position]
                spans[position] = first, end + step
            else:
                spans.insert(position, (child, child + 1))
            behind = position + 1
            spans[behind:] = [(first + step, end + step) for first, end in spans[behind:]]
            if known and spans[position][0] < spans[position][1]:
                return
            if step < 0:
                del spans[position]

    def distinct(self, path: Path) -> Path:
        """The values by which a domain differs from others of its level: the last one, or all."""
        paths = self.paths[len(path) - 1]
        return path[-1:] if len({each[-1] for each in paths}) == len(paths) else path

    @property
    def ends_with_hosts(self) -> bool:
        """Whether its leaves are single nodes."""
        return self.levels[-1] == HOST

    @property
    def shown_levels(self) -> tuple[str, ...]:
        """The levels that assignments name: the name of a node says where it is."""
        return (HOST,) if self.ends_with_hosts else self.levels

    def shown(self, leaf: int) -> Path:
        """The values of a leaf in assignments."""
        path = self.leaves[leaf].path
        return path[-1:] if self.ends_with_hosts else path

    def barred(self, pods: PodSpec, tolerations: tuple[Toleration, ...]) -> Mapping[int, str]:
        """The leaves that pods may not use, and why: the first of taint, selector and affinity.

        Only single nodes have them; for other leaves these rules are left to the kube-scheduler.
        Equal pods get the same mapping, unless many others have asked since.

        Args:
            pods: their selectors, affinity and tolerations.
            tolerations: further ones, such as those of the flavor.
        """
        selects = pods.node_selector or required_node_affinity(pods) is not None
        if not self.ends_with_hosts or not (self._tainted or selects):
            return NOTHING_BARRED
        key = f"{tolerations} {node_needs(pods)}"
        tolerations += pods.tolerations
        known = self._barred.get(key)
        if known is None:
            if len(self._barred) >= _MOST_SHAPES:
                self._barred.clear()
            reasons = ((i, _bar(leaf, pods, tolerations)) for i, leaf in enumerate(self.leaves))
            barred = {index: why for index, why in reasons if why}
            known = self._barred[key] = pods, tolerations, barred
        return known[2]


def node_needs(pods: PodSpec) -> str:
    """What decides which nodes pods may use."""
    affinity = required_node_affinity(pods)
    return repr((pods.tolerations, sorted(pods.node_selector.items()), affinity))


def _bar(leaf: Leaf, pods: PodSpec, tolerations: tuple[Toleration, ...]) -> str:
    taint = untolerated(leaf.taints, tolerations)
    if taint is not None:
        text = f"{taint.key}={taint.value}" if taint.value else taint.key
        return f'taint "{text}:{taint.effect}"'
    if any(leaf.labels.get(key) != wanted for key, wanted in pods.node_selector.items()):
        return "nodeSelector"
    affinity = required_node_affinity(pods)
    if affinity is None or any(
        term_matches(term, leaf.labels, leaf.node) for term in affinity.node_selector_terms
    ):
        return ""
    return "affinity"


def total_charges(parts: Iterable[Charges]) -> Charges:
    """What several pod sets take together."""
    parts = [*parts]
    if len(parts) == 1:
        return parts[0]
    total: dict[LeafKey, dict[str, int]] = {}
    for part in parts:
        for key, amounts in part.items():
            sums = total.setdefault(key, {})
            for resource, amount in amounts.items():
                sums[resource] = sums.get(resource, 0) + amount
    return total


def charges_beyond(new: Charges, old: Charges) -> Charges:
    """What the first charges take beyond the second ones."""
    more: dict[LeafKey, dict[str, int]] = {}
    for key, amounts in new.items():
        before = old.get(key, {})
        left = {name: amount - before.get(name, 0) for name, amount in amounts.items()}
        left = {name: amount for name, amount in left.items() if amount > 0}
        if left:
            more[key] = left
    return more
