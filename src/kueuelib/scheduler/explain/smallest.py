"""A still smaller size of a change that was found.

More is not always better: a workload with more quota may lose it to others that wait, and one that
no longer borrows is not a victim. So a size that passes while one unit less does not may not be the
smallest one. What is below is looked at in equal steps, as many as there may be.
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
from kueuelib.scheduler.explain.trial import Outcome
from kueuelib.scheduler.explain.tried_change import TriedChange

MOST_LOOKS = 32
"""How many smaller sizes of one change are tried."""


def smallest(
    option: TriedChange,
    grains: Mapping[str, int],
    run: Callable[[Change], Outcome],
    helps: Callable[[Outcome], bool],
) -> TriedChange:
    """The same change in the smallest of the sizes that help; itself if none below it does.

    One size after the other is lowered as far as the ones before it allow, until one unit less of
    any does not help.

    Args:
        option: the largest size.
        grains: as `grains_of`; where the steps are that small, nothing is missed between them.
        run: what a change comes to.
        helps: whether that is good enough.

    Raises:
        OutOfStepsError: there are no steps left.
    """
    change = option.change
    for size, grain, resized in _sizes(change, grains):

        def test(size: int, before: Change = change, resized: _Resized = resized) -> bool:
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


_Resized = Callable[[Any, int], Change]
"""A change with another size."""


def _sizes(change: Change, grains: Mapping[str, int]) -> Iterator[tuple[int, int, _Resized]]:
    """Every size, its smallest step worth a look, and how to set it."""
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
