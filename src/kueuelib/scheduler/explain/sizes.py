"""Finds the smallest size, and of a change, that passes a test while one less does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import gcd
from typing import Any

import attrs

from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.changes import CandidateChange, RaiseQuota, RaiseWeight
from kueuelib.scheduler.explain.own_changes import FewerPods
from kueuelib.scheduler.explain.trial import TrialOutcome, TriedChange
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


# ---- finds a smaller size of a change ------------------------------------------------------------
# More is not always better: a workload with more quota may lose it to others that wait, and one
# that no longer borrows is not a victim. So the smallest size may be below one that passes while
# one unit less does not. Smaller sizes are tried in equal steps, up to a limit.

MOST_LOOKS = 32
"""The maximum number of smaller sizes of one change that are tried."""


def smallest(
    option: TriedChange,
    grains: Mapping[str, int],
    run: Callable[[CandidateChange], TrialOutcome],
    helps: Callable[[TrialOutcome], bool],
) -> TriedChange:
    """The same change in the smallest size that helps; itself if no smaller size does.

    The sizes are lowered one after the other, until one unit less of any does not help.

    Args:
        option: the largest size.
        grains: from `grains_of`; steps that small miss nothing.
        run: returns the outcome of a change.
        helps: whether an outcome suffices.

    Raises:
        OutOfStepsError: there are no steps left.
    """
    change = option.change
    for size, grain, resized in sizes_of(change, grains):

        def test(size: int, before: CandidateChange = change, resized: Resized = resized) -> bool:
            return helps(run(resized(before, size)))

        step = -(-size // (grain * MOST_LOOKS)) * grain
        no = -1
        for yes in (*range(0, size, step), size - 1):
            if test(yes):
                change = resized(change, bisect(no, yes, test))
                break
            no = yes
    if change == option.change:
        return attrs.evolve(option, sized=True)
    return smallest(TriedChange(change, run(change)), grains, run, helps)


Resized = Callable[[Any, int], CandidateChange]
"""A change with another size."""


def sizes_of(
    change: CandidateChange, grains: Mapping[str, int]
) -> Iterator[tuple[int, int, Resized]]:
    """Every size, its smallest useful step, and how to set it."""
    match change:
        case RaiseQuota(amounts=amounts):
            for more in amounts:
                yield more.by, grains.get(more.resource) or 1, partial(_raised, more.resource)
        case RaiseWeight(steps=steps):
            yield steps, 1, lambda weight, steps: attrs.evolve(weight, steps=steps)
        case FewerPods(before=before, to=to, unit=unit):
            fewer = lambda pods, by: attrs.evolve(pods, to=pods.before - by * pods.unit)  # noqa: E731
            yield (before - to) // unit, 1, fewer


def _raised(resource: str, quota: RaiseQuota, by: int) -> RaiseQuota:
    amounts = (
        attrs.evolve(one, by=by) if one.resource == resource else one for one in quota.amounts
    )
    return attrs.evolve(quota, amounts=tuple(one for one in amounts if one.by))
