"""The beliefs of a manager equal the stored state, and so do its metrics: all of them at rest, its
own reservations always.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

from kueuelib.api.kinds import EVENTS, LEASES
from kueuelib.api.meta import ObjectKey, key_of
from kueuelib.api.quantity import quantity_of
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.pending.queue import PendingQueue
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.inside.leaks import Disposed, ReachableObject, parts_in
from kueuelib.testing.storm.laws.ledger import (
    ZERO,
    Pair,
    QuotaLedger,
    Usage,
    cohort_of_raw,
    quantity,
    queue_of_raw,
    usage_by_queue,
)
from kueuelib.testing.storm.laws.reading import (
    CLUSTER_QUEUES,
    COHORTS,
    WORKLOADS,
    admitted,
    finished,
    leaving,
    name,
    queue_of,
    reserving,
    status,
)
from kueuelib.workload.orders import OrderBook

# ---- the metrics of a manager match the stored objects -------------------------------------------

RESERVING: Final = "kueue_reserving_active_workloads"
ADMITTED: Final = "kueue_admitted_active_workloads"
PENDING: Final = "kueue_pending_workloads"
QUEUE: Final = "cluster_queue"
_OBJECTS: Final = (QUEUE, "cohort", "preempting_cluster_queue", "flavor")
"""Labels whose values are names of objects of the cluster."""


def metrics_match(
    telemetry: Telemetry, objects: Callable[[str], list[Obj]], gone: Disposed
) -> Iterator[tuple[str, str]]:
    """Yield the series and the text of each metric that is wrong.

    Args:
        telemetry: The metrics of a manager that leads.
        objects: Returns all stored objects of a resource.
        gone: What no longer exists.
    """
    shown: dict[str, Counter[str]] = {RESERVING: Counter(), ADMITTED: Counter(), PENDING: Counter()}
    for metric in telemetry.registry.collect():
        for sample in metric.samples:
            left = [sample.labels.get(label, "") for label in _OBJECTS]
            if not gone.names.isdisjoint(left):
                yield sample.name, f"a series says {sample.labels}, of which something is gone"
            if sample.name in shown:
                shown[sample.name][sample.labels[QUEUE]] += int(sample.value)
    queues = [one for one in objects(CLUSTER_QUEUES) if not leaving(one)]
    holding = [one for one in objects(WORKLOADS) if reserving(one) and not finished(one)]
    stored = {
        RESERVING: Counter(map(queue_of, holding)),
        ADMITTED: Counter(queue_of(one) for one in holding if admitted(one)),
        PENDING: Counter({name(one): status(one).get("pendingWorkloads", 0) for one in queues}),
    }
    for series, counts in stored.items():
        for queue in map(name, queues):
            if shown[series][queue] != counts[queue]:
                yield series, f"{queue} has {counts[queue]}, but shows {shown[series][queue]}"


# ---- what it believes ----------------------------------------------------------------------------

__all__ = [
    "Believes",
    "caches_are_fresh",
    "engine_is_right",
    "metrics_match",
    "nothing_is_assumed",
    "trees_are_right",
]


# ---- the beliefs of a manager about trees of Cohorts at rest -------------------------------------

_CYCLE: Final = {True: "its parents form a cycle", False: "its parents end"}


def trees_are_right(
    parts: Sequence[ReachableObject], objects: Callable[[str], list[Obj]]
) -> Iterator[tuple[str, str]]:
    """Cycles, quota, scopes and available amounts in the engine match the objects."""
    engines = [part.what for part in parts if isinstance(part.what, Engine)]
    waiting = [part.what for part in parts if isinstance(part.what, PendingQueue)]
    queues = {name(raw): queue_of_raw(raw) for raw in objects(CLUSTER_QUEUES)}
    if not engines or not queues:
        return
    ledger = QuotaLedger(
        queues,
        usage_by_queue(objects(WORKLOADS)),
        {name(raw): cohort_of_raw(raw) for raw in objects(COHORTS)},
    )
    for engine in engines:
        for cohort in ledger.cohorts:
            for text in _of_cohort(engine, ledger, cohort):
                yield f"{COHORTS} {cohort}", text
        for queue in ledger.queues:
            for text in _of_queue(engine, ledger, queue):
                yield f"{CLUSTER_QUEUES} {queue}", text
        for pending in waiting:
            for text in _of_pending(engine, ledger, pending):
                yield f"{CLUSTER_QUEUES} {pending.name}", text


def _of_cohort(engine: Engine, ledger: QuotaLedger, name: str) -> Iterator[str]:
    node, shown = ledger.cohorts[name], engine.cohort_status(name)
    if shown is None:
        yield "the engine does not know it"
        return
    endless = ledger.endless(node)
    if bool(shown.cycle) is not endless:
        yield f"{_CYCLE[not endless]} in the engine, but {_CYCLE[endless]}"
        return
    for pair in sorted(ledger.pairs(node)) if not endless else ():
        right = ledger.owned(node, pair)
        quota = _amount(pair, shown.quota.get(FlavorResource(*pair), 0))
        if quota != right:
            yield f"its quota of {pair} is {float(quota):g} in the engine, not {float(right):g}"


def _of_queue(engine: Engine, ledger: QuotaLedger, name: str) -> Iterator[str]:
    node = ledger.queues[name]
    if ledger.endless(node) or engine.cluster_queue_status(name) is None:
        return  # another law reports unknown queues
    for pair in sorted(node.quotas):
        right = max(ZERO, ledger.free(node, pair))
        left = _amount(pair, engine.cache.forest.available(name, FlavorResource(*pair)))
        if left != right:
            yield f"it can take {float(left):g} of {pair} in the engine, not {float(right):g}"


def _of_pending(engine: Engine, ledger: QuotaLedger, pending: PendingQueue) -> Iterator[str]:
    """A queue has the scope of its whole tree, and offers heads while its ClusterQueue is
    active.
    """
    node = ledger.queues.get(pending.name)
    if node is None:
        return  # another law reports what is left of it
    offers = engine.activity(node.name).active
    if pending.active is not offers:
        yield f"it offers heads: {pending.active}, but that it is active: {offers}"
    above = ledger.chain(node)
    root = (above[-1].name, "") if above else ("", node.name)
    if pending.scope.root != root and not ledger.endless(node):
        yield f"it is in the scope {pending.scope.root} in the engine, not in {root}"


def _amount(pair: Pair, amount: int) -> Fraction:
    return quantity_of(pair[1], amount).fraction()


# --------------------------------------------------------------------------------------------------

Objects = Callable[[str], list[Obj]]
Finding = tuple[str, str]
"""A violation: the object or the place, and the text."""
RESTLESS: Final = frozenset({LEASES.plural, EVENTS.plural})
"""Kinds that are written at rest."""


class Believes:
    """The Workloads that the engine of one process charges.

    Args:
        root: The root object of the process.

    Attributes:
        root: The same.
    """

    def __init__(self, root: object) -> None:
        self.root = root
        self._engine: Engine | None = None

    def charges(self, namespace: str, name: str, uid: str) -> bool:
        """Return whether it charges exactly this Workload; true without an engine."""
        if self._engine is None:
            engines = (each.what for each in parts_in(self.root) if isinstance(each.what, Engine))
            self._engine = next(engines, None)
        if self._engine is None:
            return True
        holder = self._engine.cache.holder(ObjectKey(namespace, name))
        return holder is not None and holder.uid == uid


def caches_are_fresh(parts: Sequence[ReachableObject], objects: Objects) -> Iterator[Finding]:
    """The local copy of each kind equals a fresh list."""
    for informer in _of(parts, Informer):
        resource = informer.resource
        if not informer.synced or informer.ended or resource.plural in RESTLESS:
            continue
        title = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        here = {key: _version(informer.store.get(key) or {}) for key in informer.store}
        there = {key_of(obj): _version(obj) for obj in objects(title) if informer.includes(obj)}
        for key in sorted({*here, *there}):
            if here.get(key) != there.get(key):
                text = f"the local copy has {here.get(key)}, a list {there.get(key)}"
                yield f"{title} {key}", text


def nothing_is_assumed(parts: Sequence[ReachableObject], _objects: Objects) -> Iterator[Finding]:
    """At rest nothing is assumed, nothing counts as leaving, and no order waits."""
    for engine in _of(parts, Engine):
        for holder in engine.cache.assumed:
            yield f"{WORKLOADS} {holder.key}", "the engine assumes an admission of it"
        for place in engine.placed():
            yield f"{WORKLOADS} {place.key}", "the engine assumes new places of it"
        for holder in engine.leaving():
            yield f"{WORKLOADS} {holder.key}", "it counts as leaving"
    for book in _of(parts, OrderBook):
        for key in book:
            yield f"{WORKLOADS} {key}", "an order for it waits"


def engine_is_right(parts: Sequence[ReachableObject], objects: Objects) -> Iterator[Finding]:
    """Usage in the engine equals the sum over the stored objects."""
    engines = _of(parts, Engine)
    if not engines:
        return
    holding = [one for one in objects(WORKLOADS) if reserving(one)]
    queues = {name(queue) for queue in objects(CLUSTER_QUEUES) if not leaving(queue)}
    for queue in sorted(queues | {queue_of(one) for one in holding}):
        mine = [one for one in holding if queue_of(one) == queue]
        for engine in engines:
            title = f"{CLUSTER_QUEUES} {queue}"
            if engine.cache.reserving(queue) != len(mine):
                text = f"{engine.cache.reserving(queue)} hold quota in the engine, not {len(mine)}"
                yield title, text
            if queue in queues:
                yield from ((title, text) for text in _amounts(engine, queue, mine))


def _amounts(engine: Engine, queue: str, mine: list[Obj]) -> Iterator[str]:
    shown = engine.cluster_queue_status(queue)
    if shown is None:
        yield "the engine does not know it"
        return
    running = [one for one in mine if admitted(one)]
    if shown.admitted != len(running):
        yield f"{shown.admitted} are admitted in the engine, not {len(running)}"
    for what, rows, holders in (
        ("reservation", shown.reservation, mine),
        ("usage", shown.usage, running),
    ):
        believed: Usage = {
            (row.name, cell.name): quantity(cell.total) for row in rows for cell in row.resources
        }
        right = usage_by_queue(holders).get(queue, {})
        for pair in sorted(believed):
            if believed[pair] != right.get(pair, 0):
                numbers = f"{float(believed[pair]):g}, not {float(right.get(pair, 0)):g}"
                yield f"{what} of {pair[1]} in flavor {pair[0]} is {numbers} in the engine"


def _version(obj: Any) -> tuple[str, str] | None:
    meta = obj.get("metadata")
    return None if meta is None else (meta["uid"], meta["resourceVersion"])


def _of(parts: Sequence[ReachableObject], cls: type[Any]) -> list[Any]:
    return [part.what for part in parts if isinstance(part.what, cls)]
