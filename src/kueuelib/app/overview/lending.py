"""Borrowed and lent quota in a tree of cohorts, for one flavor and resource at a time.

Borrowed quota comes from a pool, so it has no definite owner. The cohort's own quota counts as lent
first. The rest is distributed over the members with unused quota to lend, in proportion to that
quota.
"""

from __future__ import annotations

import attrs

from kueuelib.scheduler.quota.amounts import NO_LIMITS, Limits


@attrs.define(eq=False)
class Node:
    """A ClusterQueue or a cohort of the tree.

    Attributes:
        limits: its own quota.
        reserved: what its own Workloads use; 0 for a cohort.
        children: what is below it.
        quota: its own quota together with what those below lend it.
        used: its usage of that, and of borrowed quota; all usage for a ClusterQueue.
        nominal: its quota and that of everything below.
        total: its usage and that of everything below.
        borrowed: what is used here and belongs to others.
        lent: what others use of the quota here.
    """

    limits: Limits = NO_LIMITS
    reserved: int = 0
    children: tuple[Node, ...] = ()
    quota: Limits = attrs.field(init=False)
    used: int = attrs.field(init=False)
    nominal: int = attrs.field(init=False)
    total: int = attrs.field(init=False)
    borrowed: int = attrs.field(init=False)
    lent: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        own = self.limits
        pooled = own.nominal + sum(each.quota.lendable for each in self.children)
        self.quota = Limits(pooled, own.borrowing, own.lending)
        self.used = self.reserved + sum(each.quota.beyond(each.used) for each in self.children)
        self.nominal = own.nominal + sum(each.nominal for each in self.children)
        self.total = self.reserved + sum(each.total for each in self.children)
        self.borrowed = max(0, self.used - self.quota.nominal)

    @property
    def lendable(self) -> int:
        """The part of its quota that is not used here and that others may use."""
        return max(0, self.quota.nominal - max(self.used, self.quota.guaranteed))


def spread(root: Node) -> None:
    """Fills in `lent` from a root down."""
    waiting = [root]
    while waiting:
        here = waiting.pop()
        waiting += here.children
        needed = here.lent - here.borrowed + sum(each.borrowed for each in here.children)
        free = [each.lendable for each in here.children]
        rest = min(max(0, needed - here.limits.nominal), sum(free))
        for child, part in zip(here.children, shares(rest, free), strict=True):
            child.lent = part


def shares(amount: int, parts: list[int]) -> list[int]:
    """An amount divided in proportion to some parts; no share exceeds its part.

    Args:
        amount: at most the sum of the parts.
        parts: not negative.
    """
    total = sum(parts)
    if not total:
        return [0] * len(parts)
    portions, before, passed = [], 0, 0
    for part in parts:
        passed += part
        until = amount * passed // total
        portions.append(until - before)
        before = until
    return portions
