"""All arithmetic of quota in a tree, for one pair of flavor and resource at a time.

A node has, per pair, a subtree quota `S` (what it owns together with what its children lend it), a
guaranteed part `G` of it that is never lent, and a borrowing limit `B`. It uses `U`: a leaf what
its workloads use, an inner node what its children use beyond what is guaranteed to them. Whoever
keeps usage, lets these functions read and write it by the keys of the nodes: the live cache, the
overlay of a cycle, and the plain numbers of a search for victims follow the same rules.

Every function climbs from a node to its root, so that it costs the depth of the tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from kueuelib.scheduler.amounts import NO_LIMITS, FlavorResource, Limits


class Node(Protocol):
    """A place in a tree: a ClusterQueue or a cohort."""

    @property
    def key(self) -> str:
        """What usage is kept by, unique among the nodes of all trees."""

    @property
    def parent(self) -> Node | None:
        """The cohort above, None for a root."""

    @property
    def quota(self) -> Mapping[FlavorResource, Limits]:
        """The subtree quota as nominal quota, with the limits of the node."""

    @property
    def height(self) -> int:
        """0 for a leaf, else how many levels are below."""


class Used(Protocol):
    """What the nodes use of one pair."""

    def __getitem__(self, key: str, /) -> int:
        """What one node uses."""


class Column(Used, Protocol):
    """What the nodes use of one pair, to be changed."""

    def __setitem__(self, key: str, used: int, /) -> None:
        """Replaces what one node uses."""


class Level(NamedTuple):
    """How far up a request has to borrow.

    Attributes:
        height: of the lowest node within whose quota it stays, the root if there is none.
        has_parent: whether that node is a part of a larger tree.
    """

    height: int
    has_parent: bool


def quota_of(node: Node, pair: FlavorResource) -> Limits:
    """The subtree quota of a node as nominal quota, with its limits."""
    return node.quota.get(pair, NO_LIMITS)


def available(node: Node, pair: FlavorResource, used: Used) -> int:
    """What a node can use more, now; negative when it or a node above uses too much."""
    found: int | None = None
    unused = 0
    here: Node | None = node
    while here is not None:
        quota, taken, parent = here.quota.get(pair, NO_LIMITS), used[here.key], here.parent
        most: int | None = None
        if parent is None:
            most = unused + quota.nominal - taken
        else:
            own = quota.guaranteed - taken
            if own > 0:
                unused += own
            if quota.borrowing is not None:
                most = unused + quota.lendable + min(0, own) + quota.borrowing
        if most is not None and (found is None or most < found):
            found = most
        here = parent
    assert found is not None, "there is a root"
    return found


def potential(node: Node, pair: FlavorResource) -> int:
    """The most that a node could ever use, with nothing running anywhere."""
    found: int | None = None
    guaranteed = 0
    here: Node | None = node
    while here is not None:
        quota, parent = here.quota.get(pair, NO_LIMITS), here.parent
        ceiling = quota.nominal if parent is None else quota.ceiling
        if ceiling is not None and (found is None or guaranteed + ceiling < found):
            found = guaranteed + ceiling
        guaranteed += quota.guaranteed
        here = parent
    assert found is not None, "there is a root"
    return found


def add(node: Node, pair: FlavorResource, amount: int, used: Column) -> None:
    """Changes what a node uses, and what the cohorts above provide for it.

    Adding an amount and then its negative leaves everything as it was.

    Args:
        node: where.
        pair: of what.
        amount: how much more; negative for less.
        used: what is changed.
    """
    here: Node | None = node
    while here is not None and amount:
        before = used[here.key]
        after = used[here.key] = before + amount
        quota = here.quota.get(pair, NO_LIMITS)
        amount = quota.beyond(after) - quota.beyond(before)
        here = here.parent


def borrows(node: Node, pair: FlavorResource, used: Used, amount: int = 0) -> bool:
    """Whether a node uses more than its subtree owns, or would with `amount` more."""
    return used[node.key] + amount > node.quota.get(pair, NO_LIMITS).nominal


def free(node: Node, pair: FlavorResource, used: Used) -> int:
    """What a node has left of the part that it never lends."""
    return max(0, quota_of(node, pair).guaranteed - used[node.key])


def level(node: Node, pair: FlavorResource, amount: int, used: Used) -> Level:
    """How far up a node has to borrow to use more.

    Args:
        node: where.
        pair: of what.
        amount: how much more.
        used: what is used.
    """
    here, rest = node, amount
    while here.parent is not None and borrows(here, pair, used, rest):
        rest -= free(here, pair, used)
        here = here.parent
    return Level(0 if here is node else here.height, here.parent is not None)
