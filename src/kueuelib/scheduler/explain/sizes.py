"""Finds the smallest size that passes a test while one less does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import gcd

from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.quota.amounts import PODS
from kueuelib.scheduler.quota.queue_spec import CohortQuotas, QueueSpec

MOST = 2**62
"""More than any cluster has of anything, in the units of amounts: 4 EiB."""
Sizes = dict[str, int]
"""How much more, by resource."""


def grains_of(engine: Engine) -> dict[str, int]:
    """Per resource, the largest common divisor of all amounts: thresholds are multiples of it."""
    grains: dict[str, int] = {}

    def take(resource: str, amount: int | None) -> None:
        grains[resource] = gcd(grains.get(resource, 0), amount or 0)

    nodes: list[QueueSpec | CohortQuotas | None] = [*engine.cache.cohorts]
    nodes += [engine.cache.spec(name) for name in engine.cache.names]
    for node in nodes:
        for pair, limits in () if node is None else node.limits.items():
            for amount in (limits.nominal, limits.borrowing, limits.lending):
                take(pair.resource, amount)
    for name in engine.cache.names:
        for info in engine.pending(name):
            for pod_set in info.pod_sets:
                for resource, amount in pod_set.per_pod.items():
                    take(resource, amount)
    for holder in engine.cache.holders.values():
        for pair, amount in holder.usage.items():
            take(pair.resource, amount)
    grains.pop(PODS, None)
    return grains


def demand_on(engine: Engine) -> Sizes:
    """Per resource, the sum of requests and usage: a larger amount hardly ever makes a
    difference.
    """
    demand: Counter[str] = Counter()
    for name in engine.cache.names:
        for info in engine.pending(name):
            for pod_set in info.pod_sets:
                demand.update(pod_set.requests(pod_set.count, count_pods=True))
    for holder in engine.cache.holders.values():
        for pair, amount in holder.usage.items():
            demand[pair.resource] += amount
    return demand


def gallop(most: int, test: Callable[[int], bool]) -> int:
    """Like `bisect` from 0 to `most`, for results that are small in comparison."""
    no, yes = 0, 1
    while yes < most and not test(yes):
        no, yes = yes, yes * 2
    return bisect(no, min(yes, most), test)


def bisect(no: int, yes: int, test: Callable[[int], bool]) -> int:
    """A size that passes the test while the one below does not.

    Args:
        no: a size that does not pass.
        yes: a size that passes.
        test: the test.
    """
    while yes - no > 1:
        middle = (no + yes) // 2
        if test(middle):
            yes = middle
        else:
            no = middle
    return yes
