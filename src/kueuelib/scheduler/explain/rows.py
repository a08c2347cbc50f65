"""The numbers of every flavor that a workload could use: the table of `explain`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.api.quantity import MAX_AMOUNT
from kueuelib.api.struct import frozen
from kueuelib.scheduler.decide.offers import mismatch_of
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.world import CLUSTER_QUEUE, COHORT
from kueuelib.scheduler.flavor_reasons import (
    ExceedsCapacity,
    FlavorMissing,
    FlavorReason,
    NoPlaces,
    QuotaInUse,
    TopologyMismatch,
)
from kueuelib.scheduler.pending.workload_info import PodSetNeeds
from kueuelib.scheduler.quota.amounts import (
    NO_LIMITS,
    PODS,
    FlavorResource,
    QuotaStep,
    available_along,
)
from kueuelib.scheduler.quota.node import QuotaNode, share_of
from kueuelib.scheduler.quota.snapshot import FrozenQueue, Snapshot, Usage
from kueuelib.scheduler.reasons import NoFlavors, Preempting, Reason


class Fit(Enum):
    """The result for one request in one flavor, by itself."""

    FITS = "fits"
    IN_USE = "quota in use"
    EXCEEDS = "exceeds quota"
    CUT_OFF = "cut off: its cohorts form a cycle"
    NO_PLACES = "no room on nodes"
    NO_MATCH = "does not match"
    MISSING = "flavor missing"
    NO_TOPOLOGY = "the flavor's Topology is missing"
    UNCOVERED = "not offered"


@frozen
class Row:
    """One resource of one pod set in one flavor; amounts as in `kueuelib.scheduler.quota.amounts`.

    Attributes:
        pod_set: the pod set.
        count: the number of pods.
        resource: the resource.
        flavor: the flavor; empty if the ClusterQueue does not offer the resource.
        requested: the request of all pods together.
        used: what the ClusterQueue uses now.
        nominal: what it owns.
        borrowing_limit: how much more it may borrow; None if only the cohort limits it.
        available: what it could get now, borrowing included.
        capacity: the most that it could get if nothing ran.
        fit: the verdict.
        reasons: why it does not fit, from the last evaluation if there was one.
        min_count: the fewest pods that are enough; None for all of them.
    """

    pod_set: str
    count: int
    resource: str
    flavor: str
    requested: int
    used: int
    nominal: int
    borrowing_limit: int | None
    available: int
    capacity: int
    fit: Fit
    reasons: tuple[FlavorReason, ...] = ()
    min_count: int | None = None


def rows_of(
    engine: Engine, key: ObjectKey, reason: Reason | None, *, places_pods: bool
) -> tuple[Row, ...]:
    """The table of a workload that waits in a ClusterQueue; empty if it does not.

    Args:
        engine: has the relevant facts, but has run no cycle.
        key: the workload.
        reason: the result of its evaluation.
        places_pods: whether flavors with a topology need it.
    """
    name = engine.standing(key).cluster_queue
    infos = [info for info in engine.pending(name) if info.key == key] if name else []
    if not infos:
        return ()
    snapshot = Snapshot(engine.cache.freeze([name]))
    queue = snapshot.queue(name)
    if queue is None:
        return ()
    known = _known(reason)
    endless = engine.cache.forest.is_endless(queue.spec.cohort)
    count_pods = queue.spec.group_of(PODS) is not None
    rows: list[Row] = []
    for pod_set in infos[0].pod_sets:
        requests = pod_set.requests(pod_set.count, count_pods=count_pods)
        for resource, requested in sorted(requests.items()):
            rows += _rows(snapshot, queue, pod_set, resource, requested, known)
    if places_pods:
        flavors = snapshot.flavors.values()
        bare = {flavor.name for flavor in flavors if flavor.topology and not flavor.levels}
        rows = [
            attrs.evolve(row, fit=Fit.NO_TOPOLOGY) if row.flavor in bare else row for row in rows
        ]
    if endless:
        cut_off = (Fit.EXCEEDS, Fit.IN_USE, Fit.FITS)
        rows = [
            attrs.evolve(row, fit=Fit.CUT_OFF, reasons=()) if row.fit in cut_off else row
            for row in rows
        ]
    return tuple(rows)


_Known = dict[tuple[str, str], tuple[FlavorReason, ...]]


def _known(reason: Reason | None) -> _Known:
    """The reasons of an evaluation by pod set and flavor."""
    if isinstance(reason, Preempting):
        reason = reason.blocked
    if not isinstance(reason, NoFlavors):
        return {}
    return {
        (blocked.pod_set, attempt.flavor): attempt.reasons
        for blocked in reason.pod_sets
        for group in blocked.groups
        for attempt in group.attempts
    }


def _rows(
    snapshot: Snapshot,
    queue: FrozenQueue,
    pod_set: PodSetNeeds,
    resource: str,
    requested: int,
    known: _Known,
) -> list[Row]:
    group = queue.spec.group_of(resource)
    if group is None:
        if queue.spec.ignores_undeclared or not requested:
            return []
        none = Row(
            pod_set.name, pod_set.count, resource, "", requested, 0, 0, 0, 0, 0, Fit.UNCOVERED
        )
        return [none]
    rows = []
    for name in group.flavors:
        pair = FlavorResource(name, resource)
        limits = snapshot.limits(queue, pair)
        reasons = tuple(
            one
            for one in known.get((pod_set.name, name), ())
            # An earlier pod set may lack a resource that this one does not request.
            if not isinstance(one, QuotaInUse | ExceedsCapacity)
            or (one.resource == resource and requested)
        )
        row = Row(
            pod_set=pod_set.name,
            count=pod_set.count,
            resource=resource,
            flavor=name,
            requested=requested,
            used=snapshot.usage(queue, pair),
            nominal=limits.nominal,
            borrowing_limit=limits.borrowing if queue.spec.cohort else 0,
            available=snapshot.available(queue, pair),
            capacity=snapshot.capacity(queue, pair),
            fit=Fit.FITS,
            reasons=reasons,
            min_count=pod_set.min_count,
        )
        rows.append(attrs.evolve(row, fit=_fit(snapshot, pod_set, row)))
    return rows


def _fit(snapshot: Snapshot, pod_set: PodSetNeeds, row: Row) -> Fit:
    flavor = snapshot.flavors.get(row.flavor)
    if flavor is None or any(isinstance(one, FlavorMissing) for one in row.reasons):
        return Fit.MISSING
    if mismatch_of(flavor, pod_set.spec.template.spec) is not None or any(
        isinstance(one, TopologyMismatch) for one in row.reasons
    ):
        return Fit.NO_MATCH
    if any(isinstance(one, ExceedsCapacity) for one in row.reasons):
        return Fit.EXCEEDS
    if any(isinstance(one, QuotaInUse) for one in row.reasons):
        return Fit.IN_USE
    if row.requested > row.capacity:
        return Fit.EXCEEDS
    if row.requested > row.available:
        return Fit.IN_USE
    return Fit.NO_PLACES if any(isinstance(one, NoPlaces) for one in row.reasons) else Fit.FITS


# ---- the numbers of a ClusterQueue and the cohorts above it, for `explain` -----------------------


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


def _room(steps: tuple[QuotaStep, ...], used: Usage) -> int | None:
    """The available amount if only the last step limits it."""
    *below, here = steps
    if here.ceiling is None:
        return None
    return available_along([*(step._replace(ceiling=None) for step in below), here], used)


def _shown(share: float) -> int:
    return MAX_AMOUNT if math.isinf(share) else math.ceil(share)
