"""All arithmetic of quota in a tree, for one pair of flavor and resource at a time.

A node has, per pair, a subtree quota (what it owns together with what its children lend it), a
guaranteed part of it that is never lent, and a ceiling: subtree quota plus borrowing limit. It uses
what its workloads use, or what its children use beyond what is guaranteed to them. All owners of
usage read and write it through these functions, by the keys of the nodes: the live cache, the
overlay of a cycle, and the plain numbers of a search for victims follow the same rules.

Every function climbs the steps from a node to its root, so that it costs the depth of the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from kueuelib.scheduler.quota.amounts import NO_LIMITS, FlavorResource, Limits


class Step(NamedTuple):
    """The quota of one node on the way up, of one pair.

    Attributes:
        key: what usage is kept by, unique among the nodes of all trees.
        nominal: the subtree quota.
        guaranteed: the part of it that is never lent.
        ceiling: the most that may be used here, None when only the cohorts above limit it.
    """

    key: str
    nominal: int
    guaranteed: int
    ceiling: int | None


class TreeNode(Protocol):
    """A ClusterQueue or a cohort."""

    @property
    def key(self) -> str:
        """What usage is kept by, unique among the nodes of all trees."""

    @property
    def quota(self) -> Mapping[FlavorResource, Limits]:
        """The subtree quota as nominal quota, with the limits of the node."""


class Node(TreeNode, Protocol):
    """A place in a tree that does not change."""

    @property
    def height(self) -> int:
        """0 for a leaf, else how many levels are below."""

    @property
    def ancestors(self) -> Sequence[Node]:
        """The cohorts above it, the root last."""

    @property
    def steps(self) -> Mapping[FlavorResource, Sequence[Step]]:
        """The same as numbers, for every pair."""


class Used(Protocol):
    """What the nodes use of one pair."""

    def __getitem__(self, key: str, /) -> int:
        """What one node uses."""


class Column(Used, Protocol):
    """What the nodes use of one pair, to be changed."""

    def __setitem__(self, key: str, used: int, /) -> None:
        """Replaces what one node uses."""


class _Nothing:
    def __getitem__(self, key: str, /) -> int:
        return 0


NOTHING = _Nothing()
"""Nobody uses anything."""


def quota_of(node: Node, pair: FlavorResource) -> Limits:
    """The subtree quota of a node as nominal quota, with its limits."""
    return node.quota.get(pair, NO_LIMITS)


def steps_up(path: Sequence[TreeNode], pair: FlavorResource) -> tuple[Step, ...]:
    """The steps of a path; nobody limits a root, which can use what it owns."""
    steps = []
    for node in path:
        quota = node.quota.get(pair, NO_LIMITS)
        steps.append(Step(node.key, quota.nominal, quota.guaranteed, quota.ceiling))
    steps[-1] = steps[-1]._replace(ceiling=steps[-1].nominal)
    return tuple(steps)


def available(node: Node, pair: FlavorResource, used: Used) -> int:
    """What a node can use more, now; negative when it or a node above uses too much."""
    return available_along(node.steps[pair], used)


def available_along(steps: Iterable[Step], used: Used) -> int:
    """The same for the steps of a node."""
    least: int | None = None
    unused = 0
    for key, _, guaranteed, ceiling in steps:
        taken = used[key]
        if ceiling is not None:
            left = unused + ceiling - taken
            if least is None or left < least:
                least = left
        if guaranteed > taken:
            unused += guaranteed - taken
    assert least is not None, "a root has a ceiling"
    return least


def potential(node: Node, pair: FlavorResource) -> int:
    """The most that a node could ever use, with nothing running anywhere."""
    return available(node, pair, NOTHING)


def add(node: Node, pair: FlavorResource, amount: int, used: Column) -> None:
    """Changes what a node uses, and what the cohorts above provide for it.

    Adding an amount and then its negative leaves everything as it was.

    Args:
        node: where.
        pair: of what.
        amount: how much more; negative for less.
        used: what is changed.
    """
    add_along(node.steps[pair], amount, used)


def add_along(steps: Iterable[Step], amount: int, used: Column) -> tuple[int, list[int]]:
    """The same for the steps of a node.

    Returns: The number of nodes whose usage changed, from the first one up; and the indices of
        those that began to use more than their subtree owns, or ceased to.
    """
    changed = 0
    turned = []
    for key, nominal, guaranteed, _ in steps:
        if not amount:
            break
        before = used[key]
        after = used[key] = before + amount
        if (before > nominal) is not (after > nominal):
            turned.append(changed)
        amount = (after - guaranteed if after > guaranteed else 0) - (
            before - guaranteed if before > guaranteed else 0
        )
        changed += 1
    return changed, turned


def borrows(node: Node, pair: FlavorResource, used: Used, amount: int = 0) -> bool:
    """Whether a node uses more than its subtree owns, or would with `amount` more."""
    return used[node.key] + amount > node.quota.get(pair, NO_LIMITS).nominal


def free(node: Node, pair: FlavorResource, used: Used) -> int:
    """What a node has left of the part that it never lends."""
    return max(0, quota_of(node, pair).guaranteed - used[node.key])


def level(node: Node, pair: FlavorResource, amount: int, used: Used) -> tuple[int, bool]:
    """How far up a node has to borrow to use more.

    Args:
        node: where.
        pair: of what.
        amount: how much more.
        used: what is used.

    Returns:
        The height of the lowest node within whose quota it stays, the root if there is none; and
        whether that node is a part of a larger tree.
    """
    rest, index, top = amount, -1, len(node.ancestors)
    for key, nominal, guaranteed, _ in node.steps[pair]:
        index += 1
        taken = used[key]
        if taken + rest <= nominal or index == top:
            break
        rest -= max(0, guaranteed - taken)
    return node.ancestors[index - 1].height if index else 0, index < top
