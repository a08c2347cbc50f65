"""The share of a node: what it borrows, relative to what it could borrow and to its weight
(KEP-1714, "Share value").

The numbers are doubles, computed in the same steps as in Kueue, because shares that differ in the
last bit lead to other decisions than equal ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from kueuelib.scheduler.quota import arithmetic
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.arithmetic import Used
from kueuelib.scheduler.quota.node import QuotaNode

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


NOTHING = Share(weightless=False, value=0.0)


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
    return weigh(node, more) if more else NOTHING


def weigh(node: QuotaNode, more: dict[FlavorResource, int]) -> Share:
    """The share of a node that borrows these amounts.

    A resource that the cohort above cannot lend does not count.
    """
    parent = node.parent
    if parent is None:
        return NOTHING
    taken: dict[str, int] = {}
    for pair, amount in more.items():
        taken[pair.resource] = taken.get(pair.resource, 0) + amount
    ratio = 0.0
    for resource, amount in taken.items():
        lendable = lendable_of(parent, resource)
        if lendable > 0:
            ratio = max(ratio, float(amount) * 1000.0 / float(lendable))
    if not ratio:
        return NOTHING
    if not node.divisor:
        return Share(weightless=True, value=ratio)
    return Share(weightless=False, value=ratio / node.divisor)


def lendable_of(cohort: QuotaNode, resource: str) -> int:
    """The most of a resource that a cohort could have, in all flavors of its tree."""
    lendable = cohort.lendable.get(resource)
    if lendable is None:
        lendable = cohort.lendable[resource] = sum(
            arithmetic.potential(cohort, pair)
            for pair in cohort.root.quota
            if pair.resource == resource
        )
    return lendable
