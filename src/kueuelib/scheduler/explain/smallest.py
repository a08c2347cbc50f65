"""Finds a smaller size of a change.

More is not always better: a workload with more quota may lose it to others that wait, and one that
no longer borrows is not a victim. So the smallest size may be below one that passes while one unit
less does not. Smaller sizes are tried in equal steps, up to a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import attrs

from kueuelib.scheduler.explain.changes import Change, RaiseQuota
from kueuelib.scheduler.explain.own_changes import FewerPods
from kueuelib.scheduler.explain.sizes import bisect
from kueuelib.scheduler.explain.tree_changes import RaiseWeight
from kueuelib.scheduler.explain.trial import TrialOutcome
from kueuelib.scheduler.explain.tried_change import TriedChange

MOST_LOOKS = 32
"""The maximum number of smaller sizes of one change that are tried."""


def smallest(
    option: TriedChange,
    grains: Mapping[str, int],
    run: Callable[[Change], TrialOutcome],
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

        def test(size: int, before: Change = change, resized: Resized = resized) -> bool:
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


Resized = Callable[[Any, int], Change]
"""A change with another size."""


def sizes_of(change: Change, grains: Mapping[str, int]) -> Iterator[tuple[int, int, Resized]]:
    """Every size, its smallest useful step, and how to set it."""
    match change:
        case RaiseQuota(amounts=amounts):
            for more in amounts:
                yield more.by, grains.get(more.resource) or 1, partial(_raised, more.resource)
        case RaiseWeight(steps=steps):
            yield steps, 1, lambda weight, steps: attrs.evolve(weight, steps=steps)
        case FewerPods(before=before, to=to):
            yield before - to, 1, lambda pods, by: attrs.evolve(pods, to=pods.before - by)


def _raised(resource: str, quota: RaiseQuota, by: int) -> RaiseQuota:
    amounts = (
        attrs.evolve(one, by=by) if one.resource == resource else one for one in quota.amounts
    )
    return attrs.evolve(quota, amounts=tuple(one for one in amounts if one.by))
