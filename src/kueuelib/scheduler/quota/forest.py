"""All present quota trees: parents, and the ledger of quota and usage of each node.

A cohort name without an object is a root without quota. A cohort in or below a cycle of parents is
cut off from its parent, so that every walk up ends: it becomes a root, and everything below it is
inactive. Running workloads there continue. As soon as the cycle is broken, the sums above equal
those of a tree that never had one.

The cost of a change of usage is the depth of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Final

import attrs

from kueuelib.scheduler.quota.amounts import (
    NO_LIMITS,
    Amounts,
    FlavorResource,
    Limits,
    QuotaStep,
    add_along,
    available_along,
    steps_up,
)
from kueuelib.scheduler.quota.node import CohortRow, QuotaTree, cohort_key
from kueuelib.scheduler.quota.queue_spec import CohortQuotas, QueueSpec
from kueuelib.scheduler.quota.snapshot import FrozenQueue, FrozenTree

# ---- the present quota and usage of the nodes of all quota trees ---------------------------------
# Sums are kept on the way from a node to its root, so the cost of every change is the depth of the
# tree. `kueuelib.scheduler.quota.forest` knows the parents.


@attrs.define(eq=False)
class NodeUsage:
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
    parent: NodeUsage | None = None
    limits: Mapping[FlavorResource, Limits] = attrs.field(factory=dict)
    quota: dict[FlavorResource, Limits] = attrs.field(factory=dict)
    listed: dict[FlavorResource, int] = attrs.field(factory=dict)
    pairs: dict[FlavorResource, None] = attrs.field(factory=dict)
    weight: Fraction = Fraction(1)
    height: int = 0
    counts: bool = False
    queues: dict[str, NodeUsage] = attrs.field(factory=dict)
    cohorts: dict[str, NodeUsage] = attrs.field(factory=dict)
    borrowers: dict[FlavorResource, frozenset[str]] = attrs.field(factory=dict)
    stale: dict[str, NodeUsage] = attrs.field(factory=dict)
    frozen: FrozenTree | None = None

    @property
    def path(self) -> list[NodeUsage]:
        """The node and the cohorts above it, the root last."""
        path = [self]
        while path[-1].parent is not None:
            path.append(path[-1].parent)
        return path

    @property
    def root(self) -> NodeUsage:
        """The top of its tree."""
        top = self
        while top.parent is not None:
            top = top.parent
        return top


class UsageByNode(dict[str, int]):
    """The usage of one pair by the keys of nodes; 0 for missing ones."""

    __slots__ = ()

    def __missing__(self, key: str) -> int:
        return 0


NOBODY: Final[frozenset[str]] = frozenset()
_UNUSED: Final = UsageByNode()
"""The usage of an unused pair; never changed."""


class Ledger:
    """The sums of all nodes.

    Attributes:
        spots: the nodes, by key. Only the forest changes it.
    """

    def __init__(self) -> None:
        self.spots: dict[str, NodeUsage] = {}
        self._used: dict[FlavorResource, UsageByNode] = {}
        self._steps: dict[tuple[str, FlavorResource], tuple[QuotaStep, ...]] = {}

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

    def used(self, spot: NodeUsage) -> Iterator[tuple[FlavorResource, int]]:
        """The usage of a node, without zeros."""
        for pair in spot.pairs:
            yield pair, self._used[pair][spot.key]

    def available(self, key: str, pair: FlavorResource) -> int:
        """How much more a node could use now; negative if it or a node above uses too much."""
        return available_along(self._steps_of(key, pair), self._used.get(pair, _UNUSED))

    def add(self, spot: NodeUsage, pair: FlavorResource, amount: int) -> None:
        """Changes the usage of a node, and notes the consequences."""
        if not amount:
            return
        steps = self._steps.get((spot.key, pair)) or self._steps_of(spot.key, pair)
        table = self._used.get(pair)
        if table is None:
            table = self._used[pair] = UsageByNode()
        changed, turned = add_along(steps, amount, table)
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

    def _in_use(self, spot: NodeUsage, pair: FlavorResource) -> int:
        return self._used.get(pair, _UNUSED)[spot.key]

    def _steps_of(self, key: str, pair: FlavorResource) -> tuple[QuotaStep, ...]:
        """The quota of a pair from a node up, cached until any quota changes."""
        steps = self._steps.get((key, pair))
        if steps is None:
            steps = steps_up(self.spots[key].path, pair)
            self._steps[key, pair] = steps
        return steps

    # --- quota

    def connect(self, spot: NodeUsage, parent: NodeUsage) -> None:
        """Connects a node to its parent: it lends quota, and gets what it uses beyond its own."""
        spot.parent = parent
        self._steps.clear()
        for pair, quota in spot.quota.items():
            self._list(parent, pair)
            self._lend(parent, pair, quota.lendable)
        for pair, used in tuple(self.used(spot)):
            self.add(parent, pair, spot.quota.get(pair, NO_LIMITS).beyond(used))
            self._note(spot, pair)

    def disconnect(self, spot: NodeUsage) -> None:
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

    def own(self, cohort: NodeUsage, limits: Mapping[FlavorResource, Limits]) -> None:
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

    def _list(self, cohort: NodeUsage, pair: FlavorResource) -> None:
        """Counts a pair that a cohort or one of its children lists."""
        for here in cohort.path:
            here.listed[pair] = here.listed.get(pair, 0) + 1
            if here.listed[pair] > 1:
                return
            here.quota[pair] = NO_LIMITS

    def _unlist(self, cohort: NodeUsage, pair: FlavorResource) -> None:
        """Undoes `_list`; nothing may be lent by then."""
        for here in cohort.path:
            here.listed[pair] -= 1
            if here.listed[pair]:
                return
            del here.listed[pair], here.quota[pair]

    def _lend(self, cohort: NodeUsage, pair: FlavorResource, amount: int) -> None:
        """Changes the amount that a child lends to a cohort."""
        quota = cohort.quota[pair]
        self._set(cohort, pair, attrs.evolve(quota, nominal=quota.nominal + amount))

    def _set(self, cohort: NodeUsage, pair: FlavorResource, quota: Limits) -> None:
        """Changes the quota of a subtree, and of the nodes above."""
        here: NodeUsage | None = cohort
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

    def _note(self, spot: NodeUsage, pair: FlavorResource) -> None:
        """Notes whether a node uses more than its subtree owns."""
        if spot.parent is not None:
            nominal = spot.quota.get(pair, NO_LIMITS).nominal
            borrows = self._in_use(spot, pair) > nominal
            _set_borrower(spot.parent, spot.key, pair, borrows=borrows)


def _set_borrower(parent: NodeUsage, key: str, pair: FlavorResource, *, borrows: bool) -> None:
    known = parent.borrowers.get(pair, NOBODY)
    if borrows is (key in known):
        return
    borrowers = known | {key} if borrows else known - {key}
    if borrowers:
        parent.borrowers[pair] = borrowers
    else:
        del parent.borrowers[pair]
    parent.root.stale[parent.key] = parent


# --------------------------------------------------------------------------------------------------


class Forest:
    """All ClusterQueues and cohorts."""

    def __init__(self) -> None:
        self._ledger = Ledger()

    @property
    def _spots(self) -> dict[str, NodeUsage]:
        return self._ledger.spots

    # --- ClusterQueues

    def put_queue(self, spec: QueueSpec, used: Amounts, *, active: bool) -> None:
        """Takes over a new or changed ClusterQueue.

        Args:
            spec: the ClusterQueue.
            used: the usage of its workloads.
            active: whether it can admit workloads.
        """
        self.drop_queue(spec.name)
        spot = NodeUsage(spec.name, spec.name, spec.cohort, limits=spec.limits)
        spot.quota, spot.counts = dict(spec.limits), active
        self._spots[spec.name] = spot
        for pair, amount in used.items():
            self._ledger.add(spot, pair, amount)
        if spec.cohort:
            cohort = self._cohort(spec.cohort)
            cohort.queues[spec.name] = spot
            self._link(spot, cohort)

    def drop_queue(self, name: str) -> None:
        """Forgets a ClusterQueue, if it is known."""
        spot = self._spots.get(name)
        if spot is not None and spot.parent is not None:
            cohort = spot.parent
            del cohort.queues[name]
            self._unlink(spot)
            self._prune(cohort)
        self._ledger.forget(name)

    def set_active(self, name: str, *, active: bool) -> None:
        """Sets whether a ClusterQueue can admit workloads."""
        spot = self._spots[name]
        if spot.counts is not active:
            spot.counts = active
            self.touch(name)
            if spot.parent is not None:
                self._settle(spot.parent)

    def touch(self, name: str) -> None:
        """Notes a change in a ClusterQueue other than usage and quota."""
        spot = self._ledger.spots[name]
        spot.root.stale[name] = spot

    def charge(self, name: str, amounts: Amounts, sign: int) -> None:
        """Changes the usage of a ClusterQueue.

        Args:
            name: the ClusterQueue.
            amounts: the change.
            sign: 1 for more, -1 for less.
        """
        spot = self._ledger.spots[name]
        for pair, amount in amounts.items():
            self._ledger.add(spot, pair, sign * amount)

    def available(self, name: str, pair: FlavorResource) -> int:
        """How much more a ClusterQueue could use now; never negative."""
        return max(0, self._ledger.available(name, pair))

    def exceeds(self, name: str, pair: FlavorResource) -> bool:
        """Whether a ClusterQueue, or a cohort above it, uses more than it may."""
        return self._ledger.available(name, pair) < 0

    def borrows(self, name: str, pair: FlavorResource) -> bool:
        """Whether a ClusterQueue, or a cohort above it, borrows."""
        spot = self._ledger.spots[name]
        while spot.parent is not None:
            if spot.key in spot.parent.borrowers.get(pair, ()):
                return True
            spot = spot.parent
        return False

    # --- cohorts

    def put_cohort(self, spec: CohortQuotas) -> None:
        """Takes over a new or changed Cohort."""
        spot = self._cohort(spec.name)
        spot.counts, spot.weight = True, spec.weight
        self._ledger.own(spot, spec.limits)
        self._move(spot, spec.parent)
        self._changed(spot)

    def drop_cohort(self, name: str) -> None:
        """Forgets a Cohort; while others are below it, its name stays a root without quota."""
        spot = self._spots.get(cohort_key(name))
        if spot is not None:
            spot.counts, spot.weight = False, Fraction(1)
            self._ledger.own(spot, {})
            self._move(spot, "")
            self._changed(spot)
            self._prune(spot)

    def has_cohort(self, name: str) -> bool:
        """Whether the Cohort exists or is named."""
        return cohort_key(name) in self._spots

    def below(self, name: str) -> tuple[str, ...]:
        """The ClusterQueues below a cohort, sorted, including those below cut-off cohorts."""
        spot = self._spots.get(cohort_key(name))
        cohorts = () if spot is None else _subtree(spot)
        return tuple(sorted(queue for cohort in cohorts for queue in cohort.queues))

    def cycle_above(self, name: str) -> tuple[str, ...]:
        """The cohorts of the cycle above a cohort, each before its parent.

        The alphabetically smallest is the first; empty if there is no cycle.
        """
        seen: list[str] = []
        while name and name not in seen:
            seen.append(name)
            spot = self._spots.get(cohort_key(name))
            name = "" if spot is None else spot.above
        if not name:
            return ()
        cycle = seen[seen.index(name) :]
        first = cycle.index(min(cycle))
        return (*cycle[first:], *cycle[:first])

    def is_endless(self, name: str) -> bool:
        """Whether the parents of a cohort lead into a cycle."""
        return bool(self.cycle_above(name))

    def path(self, cohort: str) -> tuple[str, ...]:
        """A cohort and those above it, the root last; only the name if it is not known."""
        names = [cohort]
        spot = self._spots.get(cohort_key(cohort))
        while spot is not None and spot.parent is not None:
            spot = spot.parent
            names.append(spot.name)
        return tuple(names)

    def cohorts_below(self, name: str) -> tuple[str, ...]:
        """A cohort and those below it; only the name if it is not known."""
        spot = self._spots.get(cohort_key(name))
        return (name,) if spot is None else tuple(each.name for each in _subtree(spot))

    def subtree_quota(self, cohort: str) -> Mapping[FlavorResource, Limits] | None:
        """The nominal quota of a cohort and everything below it; None if it is not known.

        Do not change it.
        """
        spot = self._spots.get(cohort_key(cohort))
        return None if spot is None else spot.quota

    def root_of(self, cohort: str) -> str:
        """The top of the tree of a cohort; the cohort itself if it is cut off or not known."""
        spot = self._ledger.spots.get(cohort_key(cohort))
        return cohort if spot is None else spot.root.name

    # --- what cycles see

    def freeze(self, cohort: str, part: Callable[[str], FrozenQueue]) -> FrozenTree:
        """The frozen tree of a cohort; only changed parts are made again.

        Args:
            cohort: any cohort of the tree.
            part: returns the frozen part of a ClusterQueue.
        """
        root = self._spots[cohort_key(cohort)].root
        known, stale = root.frozen, root.stale
        if known is None:
            spots = [spot for spot in _subtree(root) if spot is root or spot.parent is not None]
            rows = {spot.name: _row(spot) for spot in spots}
            names = sorted(name for spot in spots for name in spot.queues)
            root.frozen = FrozenTree(
                QuotaTree(root.name, rows),
                {name: part(name) for name in names},
                {spot.key: dict(self._ledger.used(spot)) for spot in spots},
                {spot.key: dict(spot.borrowers) for spot in spots},
            )
        elif stale:
            members, used = dict(known.members), dict(known.used)
            borrowers = dict(known.borrowers)
            for key, spot in stale.items():
                if key in members:
                    members[key] = part(key)
                else:
                    used[key], borrowers[key] = dict(self._ledger.used(spot)), dict(spot.borrowers)
            root.frozen = FrozenTree(known.quota, members, used, borrowers)
        stale.clear()
        assert root.frozen is not None, "it was made"
        return root.frozen

    # --- structure

    def _cohort(self, name: str) -> NodeUsage:
        key = cohort_key(name)
        spot = self._spots.get(key)
        if spot is None:
            spot = self._spots[key] = NodeUsage(name, key)
        return spot

    def _prune(self, cohort: NodeUsage) -> None:
        """Forgets a cohort that has no object and is not named."""
        if not (cohort.counts or cohort.queues or cohort.cohorts):
            self._ledger.forget(cohort.key)

    def _move(self, spot: NodeUsage, above: str) -> None:
        """Changes the parent of a cohort."""
        if above == spot.above:
            return
        before, spot.above = self._spots.get(cohort_key(spot.above)), above
        if before is not None:
            del before.cohorts[spot.name]
        if spot.parent is not None:
            self._unlink(spot)
        if above:
            self._cohort(above).cohorts[spot.name] = spot
        endless = self.is_endless(spot.name)
        for cohort in tuple(_subtree(spot)):
            if endless and cohort.parent is not None:
                self._unlink(cohort)
            elif not endless and cohort.parent is None and cohort.above:
                self._link(cohort, self._cohort(cohort.above))
        if before is not None:
            self._prune(before)

    def _link(self, spot: NodeUsage, parent: NodeUsage) -> None:
        self._changed(spot)
        self._ledger.connect(spot, parent)
        self._changed(parent)
        self._settle(parent)

    def _unlink(self, spot: NodeUsage) -> None:
        parent = spot.parent
        assert parent is not None, "it is linked"
        self._ledger.disconnect(spot)
        self._changed(spot)
        self._changed(parent)
        self._settle(parent)

    def _settle(self, cohort: NodeUsage) -> None:
        """Corrects heights from a cohort up, after a child was added or removed."""
        here: NodeUsage | None = cohort
        while here is not None:
            heights = [each.height for each in here.cohorts.values() if each.parent is here]
            height = 1 + max(heights, default=0)
            if not heights and not any(queue.counts for queue in here.queues.values()):
                height = 0
            if height == here.height:
                return
            here.root.frozen = None
            here.height, here = height, here.parent

    def _changed(self, spot: NodeUsage) -> None:
        """Notes a change other than usage in the tree of a node: nothing of it stays frozen."""
        root = spot.root
        root.frozen = None
        root.stale.clear()


def _row(spot: NodeUsage) -> CohortRow:
    parent = "" if spot.parent is None else spot.parent.name
    return CohortRow(parent, spot.limits, dict(spot.quota), spot.height, spot.weight)


def _subtree(spot: NodeUsage) -> Iterator[NodeUsage]:
    """A cohort and all its direct and indirect children."""
    seen = {spot.name}
    waiting = [spot]
    while waiting:
        current = waiting.pop()
        yield current
        for below in current.cohorts.values():
            if below.name not in seen:
                seen.add(below.name)
                waiting.append(below)
