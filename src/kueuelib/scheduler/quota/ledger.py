"""The present quota and usage of the nodes of all quota trees.

Sums are kept on the way from a node to its root, so the cost of every change is the depth of the
tree. `kueuelib.scheduler.quota.forest` knows the parents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Final

import attrs

from kueuelib.scheduler.quota import arithmetic
from kueuelib.scheduler.quota.amounts import NO_LIMITS, FlavorResource, Limits
from kueuelib.scheduler.quota.arithmetic import Step
from kueuelib.scheduler.quota.snapshot import FrozenTree


@attrs.define(eq=False)
class Spot:
    """One node.

    Attributes:
        name: its name.
        key: its key; see `kueuelib.scheduler.quota.node.cohort_key`.
        above: the parent that it names; empty if it names none.
        parent: the cohort that it lends to; also None if it is cut off.
        limits: its own quota.
        quota: the same plus what its children lend it, for every pair in `listed`.
        listed: how often each pair is listed by the node itself and by its children.
        pairs: those with usage.
        weight: the divisor of its share of borrowed quota.
        height: see `QuotaNode`.
        counts: whether it has an object; for a ClusterQueue, whether it can admit.
        queues: the ClusterQueues that name it, by name.
        cohorts: the cohorts that name it as their parent, by name.
        borrowers: per flavor and resource, the keys of its borrowing children.
        stale: for a root, the nodes of its tree that changed since it was frozen.
        frozen: for a root, its last frozen tree.
    """

    name: str
    key: str
    above: str = ""
    parent: Spot | None = None
    limits: Mapping[FlavorResource, Limits] = attrs.field(factory=dict)
    quota: dict[FlavorResource, Limits] = attrs.field(factory=dict)
    listed: dict[FlavorResource, int] = attrs.field(factory=dict)
    pairs: dict[FlavorResource, None] = attrs.field(factory=dict)
    weight: Fraction = Fraction(1)
    height: int = 0
    counts: bool = False
    queues: dict[str, Spot] = attrs.field(factory=dict)
    cohorts: dict[str, Spot] = attrs.field(factory=dict)
    borrowers: dict[FlavorResource, frozenset[str]] = attrs.field(factory=dict)
    stale: dict[str, Spot] = attrs.field(factory=dict)
    frozen: FrozenTree | None = None

    @property
    def path(self) -> list[Spot]:
        """The node and the cohorts above it, the root last."""
        path = [self]
        while path[-1].parent is not None:
            path.append(path[-1].parent)
        return path

    @property
    def root(self) -> Spot:
        """The top of its tree."""
        top = self
        while top.parent is not None:
            top = top.parent
        return top


class Table(dict[str, int]):
    """The usage of one pair by the keys of nodes; 0 for missing ones."""

    __slots__ = ()

    def __missing__(self, key: str) -> int:
        return 0


NOBODY: Final[frozenset[str]] = frozenset()
_UNUSED: Final = Table()
"""The usage of an unused pair; never changed."""


class Ledger:
    """The sums of all nodes.

    Attributes:
        spots: the nodes, by key. Only the forest changes it.
    """

    def __init__(self) -> None:
        self.spots: dict[str, Spot] = {}
        self._used: dict[FlavorResource, Table] = {}
        self._steps: dict[tuple[str, FlavorResource], tuple[Step, ...]] = {}

    def forget(self, key: str) -> None:
        """Removes a node without connections."""
        spot = self.spots.pop(key, None)
        for pair in spot.pairs if spot is not None else ():
            table = self._used[pair]
            table.pop(key, None)
            if not table:
                del self._used[pair]
        self._steps.clear()

    # --- usage

    def used(self, spot: Spot) -> Iterator[tuple[FlavorResource, int]]:
        """The usage of a node, without zeros."""
        for pair in spot.pairs:
            yield pair, self._used[pair][spot.key]

    def available(self, key: str, pair: FlavorResource) -> int:
        """How much more a node could use now; negative if it or a node above uses too much."""
        return arithmetic.available_along(self._steps_of(key, pair), self._used.get(pair, _UNUSED))

    def add(self, spot: Spot, pair: FlavorResource, amount: int) -> None:
        """Changes the usage of a node, and notes the consequences."""
        if not amount:
            return
        steps = self._steps.get((spot.key, pair)) or self._steps_of(spot.key, pair)
        table = self._used.get(pair)
        if table is None:
            table = self._used[pair] = Table()
        changed, turned = arithmetic.add_along(steps, amount, table)
        stale = spot.root.stale
        here = spot
        for index, (key, nominal, _, _) in enumerate(steps[:changed]):
            stale[key] = here
            here.pairs[pair] = None
            used, parent = table[key], here.parent
            if not used:
                del table[key], here.pairs[pair]
            if parent is not None:
                if index in turned:
                    _set_borrower(parent, key, pair, borrows=used > nominal)
                here = parent
        if not table:
            del self._used[pair]

    def _in_use(self, spot: Spot, pair: FlavorResource) -> int:
        return self._used.get(pair, _UNUSED)[spot.key]

    def _steps_of(self, key: str, pair: FlavorResource) -> tuple[Step, ...]:
        """The quota of a pair from a node up, cached until any quota changes."""
        steps = self._steps.get((key, pair))
        if steps is None:
            steps = arithmetic.steps_up(self.spots[key].path, pair)
            self._steps[key, pair] = steps
        return steps

    # --- quota

    def connect(self, spot: Spot, parent: Spot) -> None:
        """Connects a node to its parent: it lends quota, and gets what it uses beyond its own."""
        spot.parent = parent
        self._steps.clear()
        for pair, quota in spot.quota.items():
            self._list(parent, pair)
            self._lend(parent, pair, quota.lendable)
        for pair, used in tuple(self.used(spot)):
            self.add(parent, pair, spot.quota.get(pair, NO_LIMITS).beyond(used))
            self._note(spot, pair)

    def disconnect(self, spot: Spot) -> None:
        """Undoes `connect`."""
        parent = spot.parent
        assert parent is not None, "it is connected"
        for pair, used in tuple(self.used(spot)):
            self.add(parent, pair, -spot.quota.get(pair, NO_LIMITS).beyond(used))
        for pair, quota in spot.quota.items():
            self._lend(parent, pair, -quota.lendable)
            self._unlist(parent, pair)
        for pair in tuple(parent.borrowers):
            _set_borrower(parent, spot.key, pair, borrows=False)
        spot.parent = None
        self._steps.clear()

    def own(self, cohort: Spot, limits: Mapping[FlavorResource, Limits]) -> None:
        """Changes the own quota of a cohort."""
        for pair in limits:
            self._list(cohort, pair)
        for pair in {**cohort.limits, **limits}:
            old, new = cohort.limits.get(pair, NO_LIMITS), limits.get(pair, NO_LIMITS)
            lent = cohort.quota[pair].nominal - old.nominal
            self._set(cohort, pair, attrs.evolve(new, nominal=new.nominal + lent))
        for pair in cohort.limits:
            self._unlist(cohort, pair)
        cohort.limits = limits

    def _list(self, cohort: Spot, pair: FlavorResource) -> None:
        """Counts a pair that a cohort or one of its children lists."""
        for here in cohort.path:
            here.listed[pair] = here.listed.get(pair, 0) + 1
            if here.listed[pair] > 1:
                return
            here.quota[pair] = NO_LIMITS

    def _unlist(self, cohort: Spot, pair: FlavorResource) -> None:
        """Undoes `_list`; nothing may be lent by then."""
        for here in cohort.path:
            here.listed[pair] -= 1
            if here.listed[pair]:
                return
            del here.listed[pair], here.quota[pair]

    def _lend(self, cohort: Spot, pair: FlavorResource, amount: int) -> None:
        """Changes the amount that a child lends to a cohort."""
        quota = cohort.quota[pair]
        self._set(cohort, pair, attrs.evolve(quota, nominal=quota.nominal + amount))

    def _set(self, cohort: Spot, pair: FlavorResource, quota: Limits) -> None:
        """Changes the quota of a subtree, and of the nodes above."""
        here: Spot | None = cohort
        while here is not None:
            before, used = here.quota[pair], self._in_use(here, pair)
            if quota == before:
                return
            self._steps.clear()
            here.quota[pair] = quota
            self._note(here, pair)
            here = here.parent
            if here is not None:
                self.add(here, pair, quota.beyond(used) - before.beyond(used))
                above = here.quota[pair]
                lent = above.nominal + quota.lendable - before.lendable
                quota = attrs.evolve(above, nominal=lent)

    def _note(self, spot: Spot, pair: FlavorResource) -> None:
        """Notes whether a node uses more than its subtree owns."""
        if spot.parent is not None:
            nominal = spot.quota.get(pair, NO_LIMITS).nominal
            borrows = self._in_use(spot, pair) > nominal
            _set_borrower(spot.parent, spot.key, pair, borrows=borrows)


def _set_borrower(parent: Spot, key: str, pair: FlavorResource, *, borrows: bool) -> None:
    known = parent.borrowers.get(pair, NOBODY)
    if borrows is (key in known):
        return
    borrowers = known | {key} if borrows else known - {key}
    if borrowers:
        parent.borrowers[pair] = borrowers
    else:
        del parent.borrowers[pair]
    parent.root.stale[parent.key] = parent
