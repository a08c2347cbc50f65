"""The beliefs of a manager about trees of Cohorts at rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Final

from kueuelib.api.quantity import quantity_of
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.pending.queue import PendingQueue
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.laws.amounts import ZERO
from kueuelib.testing.storm.laws.ledger import Ledger
from kueuelib.testing.storm.laws.quotas import Pair, cohort_of_raw, queue_of_raw, usage_by_queue
from kueuelib.testing.storm.laws.reading import CLUSTER_QUEUES, COHORTS, WORKLOADS, name

from .walk import Part

__all__ = ["trees_are_right"]

_CYCLE: Final = {True: "its parents form a cycle", False: "its parents end"}


def trees_are_right(
    parts: Sequence[Part], objects: Callable[[str], list[Obj]]
) -> Iterator[tuple[str, str]]:
    """Cycles, quota, scopes and available amounts in the engine match the objects."""
    engines = [part.what for part in parts if isinstance(part.what, Engine)]
    waiting = [part.what for part in parts if isinstance(part.what, PendingQueue)]
    queues = {name(raw): queue_of_raw(raw) for raw in objects(CLUSTER_QUEUES)}
    if not engines or not queues:
        return
    ledger = Ledger(
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


def _of_cohort(engine: Engine, ledger: Ledger, name: str) -> Iterator[str]:
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


def _of_queue(engine: Engine, ledger: Ledger, name: str) -> Iterator[str]:
    node = ledger.queues[name]
    if ledger.endless(node) or engine.cluster_queue_status(name) is None:
        return  # another law reports unknown queues
    for pair in sorted(node.quotas):
        right = max(ZERO, ledger.free(node, pair))
        left = _amount(pair, engine.cache.forest.available(name, FlavorResource(*pair)))
        if left != right:
            yield f"it can take {float(left):g} of {pair} in the engine, not {float(right):g}"


def _of_pending(engine: Engine, ledger: Ledger, pending: PendingQueue) -> Iterator[str]:
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
