"""The numbers of a ClusterQueue and the cohorts above it, for `explain`."""

from __future__ import annotations

import math
from collections.abc import Iterable

from kueuelib.api.quantity import MAX_AMOUNT
from kueuelib.api.struct import frozen
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.places import CLUSTER_QUEUE, COHORT
from kueuelib.scheduler.explain.rows import Row
from kueuelib.scheduler.quota.amounts import NO_LIMITS, FlavorResource
from kueuelib.scheduler.quota.arithmetic import Step, available_along
from kueuelib.scheduler.quota.node import QuotaNode
from kueuelib.scheduler.quota.share import share_of
from kueuelib.scheduler.quota.snapshot import Snapshot, Usage


@frozen
class TreeRow:
    """One resource in one flavor at one place; amounts as in `kueuelib.scheduler.quota.amounts`.

    Attributes:
        kind: `ClusterQueue` or `Cohort`.
        name: its name.
        flavor: the flavor.
        resource: the resource.
        own: what it owns itself.
        nominal: the same plus what everything below lends it.
        used: the usage of everything below, of that and of borrowed quota.
        borrowing_limit: how much more it may borrow; None without a limit, and for a root.
        lending_limit: how much of `nominal` it lends at most; None without a limit, and for a root.
        room: how much the ClusterQueue could get now if only this place limited it; None if it does
            not. The smallest room is what is available.
        weight: the divisor of its share; None for a root, and while shares do not decide.
        weighted_share: its share as its status shows it; None without a weight.
    """

    kind: str
    name: str
    flavor: str
    resource: str
    own: int
    nominal: int
    used: int
    borrowing_limit: int | None
    lending_limit: int | None
    room: int | None
    weight: float | None
    weighted_share: int | None


def tree_rows(
    engine: Engine, cluster_queue: str, rows: Iterable[Row], *, shares: bool
) -> tuple[TreeRow, ...]:
    """The numbers for a workload's requests, from its ClusterQueue up.

    A single cohort without an object is left out, unless shares decide.

    Args:
        engine: knows the facts that count; no cycle ran in it.
        cluster_queue: where the workload waits.
        rows: its table.
        shares: whether shares decide.
    """
    pairs = dict.fromkeys(FlavorResource(row.flavor, row.resource) for row in rows if row.flavor)
    snapshot = Snapshot(engine.cache.freeze([cluster_queue]))
    queue = snapshot.queue(cluster_queue)
    if queue is None or not pairs:
        return ()
    path = snapshot.nodes[queue.spec.name].path
    objects = {cohort.name for cohort in engine.cache.cohorts}
    if len(path) == 1 or not (shares or len(path) > 2 or path[1].name in objects):
        return ()
    return tuple(
        _row(snapshot, path[: index + 1], pair, weighted=shares and node.parent is not None)
        for index, node in enumerate(path)
        for pair in pairs
    )


def _row(
    snapshot: Snapshot, path: tuple[QuotaNode, ...], pair: FlavorResource, *, weighted: bool
) -> TreeRow:
    """The row of the last node of a path that begins with the ClusterQueue."""
    node = path[-1]
    own, used = node.limits.get(pair, NO_LIMITS), snapshot.used[pair]
    is_root = node.parent is None
    return TreeRow(
        kind=CLUSTER_QUEUE if node.is_queue else COHORT,
        name=node.name,
        flavor=pair.flavor,
        resource=pair.resource,
        own=own.nominal,
        nominal=node.quota.get(pair, NO_LIMITS).nominal,
        used=used[node.key],
        borrowing_limit=None if is_root else own.borrowing,
        lending_limit=None if is_root else own.lending,
        room=_room(path[0].steps[pair][: len(path)], used),
        weight=float(node.weight) if weighted else None,
        weighted_share=_shown(share_of(node, snapshot.used).number) if weighted else None,
    )


def _room(steps: tuple[Step, ...], used: Usage) -> int | None:
    """The available amount if only the last step limits it."""
    *below, here = steps
    if here.ceiling is None:
        return None
    return available_along([*(step._replace(ceiling=None) for step in below), here], used)


def _shown(share: float) -> int:
    return MAX_AMOUNT if math.isinf(share) else math.ceil(share)
