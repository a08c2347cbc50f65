"""Quota arithmetic: flavor-resource pairs, limits, and sums of whole units.

All amounts are unbounded Python integers in the unit of `kueuelib.api.quantity.amount_of`: milli-
cores for `cpu`, bytes or plain units for everything else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import attrs

from kueuelib.api.struct import frozen
from kueuelib.scheduler.topology.tree import Charges

PODS = "pods"
"""The resource that counts pods; it is requested implicitly if a ClusterQueue covers it."""


class FlavorResource(NamedTuple):
    """The unit of quota: one resource in one flavor."""

    flavor: str
    resource: str

    def __str__(self) -> str:
        return f"{self.flavor}/{self.resource}"


@lru_cache(maxsize=4096)
def pair_of(flavor: str, resource: str) -> FlavorResource:
    """The pair of a flavor and a resource; usually the same object, for fast lookups."""
    return FlavorResource(flavor, resource)


Requests = Mapping[str, int]
"""Resource name to amount."""

Amounts = Mapping[FlavorResource, int]
"""Flavor and resource to amount."""


class Charge(dict[FlavorResource, int]):
    """What a Workload takes if its pods have places: quota, and room in leaves of topologies.

    Args:
        quota: per flavor and resource.
        leaves: what its pods take of leaves.
        seen_by: the flavors in which `leaves` counts as taken; empty for all that have them.
    """

    __slots__ = ("leaves", "seen_by")

    def __init__(self, quota: Amounts, leaves: Charges, seen_by: Collection[str] = ()) -> None:
        super().__init__(quota)
        self.leaves = leaves
        self.seen_by = seen_by

    @property
    def flavors(self) -> set[str]:
        """The flavors in which quota is taken."""
        return {pair.flavor for pair in self}

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and leaves_of(other) == self.leaves

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None


_NO_LEAVES: Charges = {}


def leaves_of(amounts: object) -> Charges:
    """What is taken of leaves besides these amounts of quota."""
    return amounts.leaves if isinstance(amounts, Charge) else _NO_LEAVES


@frozen
class Limits:
    """The quota that a ClusterQueue or a cohort has for one flavor and resource.

    Attributes:
        nominal: what it owns.
        borrowing: how much more it may use of its cohort; None means without limit.
        lending: how much of `nominal` others may use; None means everything.
        guaranteed: the part of `nominal` that is never lent.
    """

    nominal: int
    borrowing: int | None = None
    lending: int | None = None
    guaranteed: int = attrs.field(init=False, eq=False, repr=False)

    @guaranteed.default
    def _guaranteed(self) -> int:
        return 0 if self.lending is None else max(0, self.nominal - self.lending)

    @property
    def lendable(self) -> int:
        """The part of `nominal` that the cohort shares."""
        return self.nominal - self.guaranteed

    @property
    def ceiling(self) -> int | None:
        """The most that the queue may ever use; None if only the cohort limits it."""
        return None if self.borrowing is None else self.nominal + self.borrowing

    def beyond(self, used: int) -> int:
        """The part of a usage that the cohort above has to provide."""
        return max(0, used - self.guaranteed)


NO_LIMITS = Limits(0)
"""The quota of an unlisted pair."""


def total_of(parts: Iterable[Amounts]) -> dict[FlavorResource, int]:
    """The sum of any number of mappings."""
    result: dict[FlavorResource, int] = {}
    for part in parts:
        for pair, amount in part.items():
            result[pair] = result.get(pair, 0) + amount
    return result


def in_flavors(requests: Requests, flavors: Mapping[str, str]) -> dict[FlavorResource, int]:
    """Requests placed in the flavors that an assignment chose; others are left out."""
    return {
        pair_of(flavors[resource], resource): amount
        for resource, amount in requests.items()
        if resource in flavors
    }


def rescaled(requests: Requests, old_count: int, new_count: int) -> dict[str, int]:
    """The total of `old_count` pods, scaled to `new_count` pods.

    Division comes first, as validation guarantees that totals are divisible. The total of zero pods
    stays zero.
    """
    if old_count <= 0:
        return dict.fromkeys(requests, 0)
    return {resource: amount // old_count * new_count for resource, amount in requests.items()}


# ---- all arithmetic of quota in a tree, for one pair of flavor and resource at a time ------------
# A node has, per pair, a subtree quota (its own quota plus what its children lend it), a guaranteed
# part of it that is never lent, and a ceiling: subtree quota plus borrowing limit. Its usage is
# that of its workloads, or what its children use beyond their guaranteed parts. All usage is read
# and written through these functions, by the keys of the nodes, so the live cache, the overlay of a
# cycle, and the numbers of a search for victims follow the same rules.
#
# Every function climbs the steps from a node to its root, so its cost is the depth of the tree.


class QuotaStep(NamedTuple):
    """The quota of one node on the way up, for one pair.

    Attributes:
        key: the key of its usage, unique among the nodes of all trees.
        nominal: the subtree quota.
        guaranteed: the part of it that is never lent.
        ceiling: the most that may be used here; None if only the cohorts above limit it.
    """

    key: str
    nominal: int
    guaranteed: int
    ceiling: int | None


class TreeNode(Protocol):
    """A ClusterQueue or a cohort."""

    @property
    def key(self) -> str:
        """The key of its usage, unique among the nodes of all trees."""

    @property
    def quota(self) -> Mapping[FlavorResource, Limits]:
        """The subtree quota as nominal quota, with the limits of the node."""


class FrozenNode(TreeNode, Protocol):
    """A place in an immutable tree."""

    @property
    def height(self) -> int:
        """0 for a leaf, otherwise the number of levels below."""

    @property
    def ancestors(self) -> Sequence[FrozenNode]:
        """The cohorts above it, the root last."""

    @property
    def steps(self) -> Mapping[FlavorResource, Sequence[QuotaStep]]:
        """The quota on the way up as numbers, for every pair."""


class Used(Protocol):
    """The usage of one pair, by node."""

    def __getitem__(self, key: str, /) -> int:
        """The usage of one node."""


class PairUsage(Used, Protocol):
    """The mutable usage of one pair, by node."""

    def __setitem__(self, key: str, used: int, /) -> None:
        """Sets the usage of one node."""


class _Nothing:
    def __getitem__(self, key: str, /) -> int:
        return 0


NOTHING = _Nothing()
"""No usage."""


def quota_of(node: FrozenNode, pair: FlavorResource) -> Limits:
    """The subtree quota of a node as nominal quota, with its limits."""
    return node.quota.get(pair, NO_LIMITS)


def steps_up(path: Sequence[TreeNode], pair: FlavorResource) -> tuple[QuotaStep, ...]:
    """The steps of a path; a root has no limit other than its own quota."""
    steps = []
    for node in path:
        quota = node.quota.get(pair, NO_LIMITS)
        steps.append(QuotaStep(node.key, quota.nominal, quota.guaranteed, quota.ceiling))
    steps[-1] = steps[-1]._replace(ceiling=steps[-1].nominal)
    return tuple(steps)


def available(node: FrozenNode, pair: FlavorResource, used: Used) -> int:
    """How much more a node can use now; negative if it or a node above uses too much."""
    return available_along(node.steps[pair], used)


def available_along(steps: Iterable[QuotaStep], used: Used) -> int:
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


def potential(node: FrozenNode, pair: FlavorResource) -> int:
    """The most that a node could ever use, with nothing running anywhere."""
    return available(node, pair, NOTHING)


def add(node: FrozenNode, pair: FlavorResource, amount: int, used: PairUsage) -> None:
    """Changes the usage of a node, and what the cohorts above provide for it.

    Adding an amount and then its negative leaves everything as it was.

    Args:
        node: the node.
        pair: the flavor and resource.
        amount: the increase; negative for less.
        used: the usage, which is changed.
    """
    add_along(node.steps[pair], amount, used)


def add_along(steps: Iterable[QuotaStep], amount: int, used: PairUsage) -> tuple[int, list[int]]:
    """The same for the steps of a node.

    Returns: The number of nodes whose usage changed, from the first one up, and the indices of
        those that began or ceased to use more than their subtree owns.
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
        if before < guaranteed or after < guaranteed:
            amount = max(0, after - guaranteed) - max(0, before - guaranteed)
        changed += 1
    return changed, turned


def borrows(node: FrozenNode, pair: FlavorResource, used: Used, amount: int = 0) -> bool:
    """Whether a node uses more than its subtree owns, or would with `amount` more."""
    return used[node.key] + amount > node.quota.get(pair, NO_LIMITS).nominal


def free(node: FrozenNode, pair: FlavorResource, used: Used) -> int:
    """The unused amount of the part that a node never lends."""
    return max(0, quota_of(node, pair).guaranteed - used[node.key])


def level(node: FrozenNode, pair: FlavorResource, amount: int, used: Used) -> tuple[int, bool]:
    """How far up a node has to borrow to use more.

    Args:
        node: the node.
        pair: the flavor and resource.
        amount: the increase.
        used: the usage.

    Returns:
        The height of the lowest node within whose quota it stays, or of the root if there is none;
        and whether that node is part of a larger tree.
    """
    rest, index, top = amount, -1, len(node.ancestors)
    for key, nominal, guaranteed, _ in node.steps[pair]:
        index += 1
        taken = used[key]
        if taken + rest <= nominal or index == top:
            break
        if guaranteed > taken:
            rest -= guaranteed - taken
    return node.ancestors[index - 1].height if index else 0, index < top
