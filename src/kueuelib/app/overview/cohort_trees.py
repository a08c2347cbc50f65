"""The trees of cohorts with the use of their quota."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from kueuelib.api.kueue import ClusterQueue, PodSet
from kueuelib.api.quantity import amount_of
from kueuelib.app.overview.values import CohortTree, QueueOrCohort, QuotaUse
from kueuelib.scheduler.decide.offers import mismatch_of
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.pending.workload_info import WorkloadInfo
from kueuelib.scheduler.quota.amounts import (
    NO_LIMITS,
    Amounts,
    FlavorResource,
    Limits,
    pair_of,
    total_of,
)
from kueuelib.scheduler.quota.queue_spec import Flavor, FlavorGroup, QueueSpec

# ---- borrowed and lent quota in a tree of cohorts, for one flavor and resource at a time ---------
# Borrowed quota comes from a pool, so it has no definite owner. The cohort's own quota counts as
# lent first. The rest is distributed over the members with unused quota to lend, in proportion to
# that quota.


@attrs.define(eq=False)
class LendingNode:
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
    children: tuple[LendingNode, ...] = ()
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


def spread(root: LendingNode) -> None:
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


# --------------------------------------------------------------------------------------------------

CLUSTER_QUEUE, COHORT = "ClusterQueue", "Cohort"


@attrs.frozen
class Load:
    """The load of one ClusterQueue.

    Attributes:
        reserved: the usage of Workloads with quota.
        asked: the requests of Workloads without quota, at the first flavor that their pods can use.
        running: how many hold quota.
        waiting: how many have none.
    """

    reserved: Amounts
    asked: Amounts
    running: int
    waiting: int


def load_of(engine: Engine, name: str) -> Load:
    """The load of an existing ClusterQueue, from the engine."""
    state, waiting = engine.cache.state(name), engine.pending(name)
    assert state is not None, "it exists"
    asked = total_of(_asked(state.spec, info, engine.cache.flavors) for info in waiting)
    return Load(dict(state.tally.reserved), asked, state.tally.reserving, len(waiting))


def reported_load(queue: ClusterQueue) -> Load:
    """The load in the status of a ClusterQueue, as a manager wrote it."""
    status = queue.status
    reserved = {
        pair_of(flavor.name, one.name): amount_of(one.name, one.total)
        for flavor in status.flavors_reservation
        for one in flavor.resources
    }
    return Load(reserved, {}, status.reserving_workloads, status.pending_workloads)


def _asked(spec: QueueSpec, info: WorkloadInfo, flavors: Mapping[str, Flavor]) -> Amounts:
    amounts: dict[FlavorResource, int] = {}
    for pod_set in info.pod_sets:
        for name, amount in pod_set.requests(pod_set.count, count_pods=spec.counts_pods).items():
            group = spec.group_of(name)
            if group is not None and group.flavors:
                pair = pair_of(_flavor_for(pod_set.spec, group, flavors), name)
                amounts[pair] = amounts.get(pair, 0) + amount
    return amounts


def _flavor_for(pods: PodSet, group: FlavorGroup, flavors: Mapping[str, Flavor]) -> str:
    """The first flavor whose taints and labels suit some pods; the first when none does."""
    spec = pods.template.spec
    suits = (
        name
        for name in group.flavors
        if name in flavors and mismatch_of(flavors[name], spec) is None
    )
    return next(suits, group.flavors[0])


@attrs.define(eq=False)
class _Branch:
    """A place with its children; `load` is None for a cohort."""

    name: str
    limits: Mapping[FlavorResource, Limits]
    load: Load | None
    problem: str
    below: list[_Branch] = attrs.field(factory=list)
    depth: int = 0


def trees_of(engine: Engine, loads: Mapping[str, Load]) -> tuple[CohortTree, ...]:
    """All trees, sorted by name; ClusterQueues without a cohort come last.

    A cohort whose parents never end is a tree of its own, as for quota.

    Args:
        engine: knows the ClusterQueues and cohorts.
        loads: by name of the ClusterQueue.
    """
    cache = engine.cache
    specs = {name: spec for name in cache.names if (spec := cache.spec(name)) is not None}
    owned = {one.name: one.limits for one in cache.cohorts}
    names = {spec.cohort for spec in specs.values()} | {each.parent for each in cache.cohorts}
    cohorts = {
        name: _Branch(name, owned.get(name, {}), None, _cycle(cache.forest.cycle_above(name)))
        for name in sorted((names | owned.keys()) - {""})
    }
    roots: list[_Branch] = []
    for name, branch in cohorts.items():
        above = cache.forest.path(name)[1:2]
        (cohorts[above[0]].below if above else roots).append(branch)
    alone: list[_Branch] = []
    for name, spec in specs.items():
        activity = engine.activity(name)
        problem = "" if activity.active else activity.message
        leaf = _Branch(name, spec.limits, loads[name], problem)
        (cohorts[spec.cohort].below if spec.cohort else alone).append(leaf)
    return tuple(_tree(branch) for branch in (*roots, *alone))


def _cycle(names: Sequence[str]) -> str:
    return f"its parents form a cycle: {', '.join(names)}" if names else ""


def _tree(root: _Branch) -> CohortTree:
    branches = list(_downwards(root))
    sums: dict[int, Load] = {}
    for branch in reversed(branches):
        parts = [sums[id(each)] for each in branch.below]
        sums[id(branch)] = _sum([*parts, branch.load] if branch.load else parts)
    uses: dict[int, list[QuotaUse]] = {id(branch): [] for branch in branches}
    for pair in _pairs(branches):
        nodes: dict[int, LendingNode] = {}
        for branch in reversed(branches):
            reserved = branch.load.reserved.get(pair, 0) if branch.load else 0
            below = tuple(nodes[id(each)] for each in branch.below)
            nodes[id(branch)] = LendingNode(branch.limits.get(pair, NO_LIMITS), reserved, below)
        spread(nodes[id(root)])
        for branch in branches:
            node, asked = nodes[id(branch)], sums[id(branch)].asked.get(pair, 0)
            own = node.total - node.borrowed
            use = QuotaUse(pair, node.nominal, own, node.borrowed, node.lent, asked)
            if use != QuotaUse(pair) or pair in branch.limits:
                uses[id(branch)].append(use)
    places = [_place(branch, uses[id(branch)], sums[id(branch)]) for branch in branches]
    return CohortTree(root.name, tuple(places))


def _downwards(root: _Branch) -> Iterator[_Branch]:
    """A place and those below it, its ClusterQueues before its cohorts."""
    waiting = [root]
    while waiting:
        branch = waiting.pop()
        yield branch
        branch.below.sort(key=lambda one: (one.load is None, one.name))
        for each in reversed(branch.below):
            each.depth = branch.depth + 1
            waiting.append(each)


def _sum(parts: Sequence[Load]) -> Load:
    return Load(
        {},
        total_of(part.asked for part in parts),
        sum(part.running for part in parts),
        sum(part.waiting for part in parts),
    )


def _pairs(branches: Iterable[_Branch]) -> tuple[FlavorResource, ...]:
    """Flavors and resources with quota or usage anywhere."""
    pairs: dict[FlavorResource, None] = {}
    for branch in branches:
        pairs |= dict.fromkeys(branch.limits)
        pairs |= dict.fromkeys(sorted(branch.load.reserved) if branch.load else ())
    return tuple(pairs)


def _place(branch: _Branch, uses: Sequence[QuotaUse], load: Load) -> QueueOrCohort:
    kind = COHORT if branch.load is None else CLUSTER_QUEUE
    return QueueOrCohort(
        kind,
        branch.name,
        branch.depth,
        tuple(uses),
        load.waiting,
        load.running,
        branch.problem,
    )
