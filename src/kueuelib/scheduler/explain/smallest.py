"""A still smaller size of a change that was found.

Who gets more quota may lose it to others that wait: one unit can be enough where two are not,
because then somebody else takes both. So a size that passes while one unit less does not may not be
the smallest one. What is below is looked at in equal steps, as many as there may be.

Less can also be enough if others leave for it, which is another size of the same change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import attrs

from kueuelib.scheduler.explain.changes import Change, RaiseQuota
from kueuelib.scheduler.explain.found import Found
from kueuelib.scheduler.explain.own_changes import FewerPods
from kueuelib.scheduler.explain.sizes import bisect, gallop
from kueuelib.scheduler.explain.tree_changes import RaiseWeight
from kueuelib.scheduler.explain.trial import Outcome

MOST_LOOKS = 32
"""How many smaller sizes of one change are tried."""


def smallest(
    found: Found,
    grains: Mapping[str, int],
    run: Callable[[Change], Outcome],
    helps: Callable[[Outcome], bool],
) -> Found:
    """The same change in the smallest of the sizes that were tried.

    Args:
        found: it helps, and one unit less does not.
        grains: as `grains_of`; where the steps are that small, nothing is missed between them.
        run: what a change comes to.
        helps: whether that is good enough.

    Raises:
        OutOfStepsError: there are no steps left.
    """
    sizes = list(_sizes(found.change, grains))
    if len(sizes) != 1:
        return found
    [(size, grain, resized)] = sizes

    def test(size: int) -> bool:
        return helps(run(resized(found.change, size)))

    step = -(-size // (grain * MOST_LOOKS)) * grain
    for yes in range(step, size, step):
        if test(yes):
            change = resized(found.change, bisect(yes - step, yes, test))
            return Found(change, run(change))
    return found


def at_others_cost(
    found: Found,
    grains: Mapping[str, int],
    run: Callable[[Change], Outcome],
    helps: Callable[[Outcome], bool],
) -> Found | None:
    """The same change in a smaller size that helps as well; None if one unit less does not.

    One size after the other is lowered as far as the ones before it allow.

    Args:
        found: it helps.
        grains: as `grains_of`.
        run: what a change comes to.
        helps: whether that is good enough, which preempting others is.

    Raises:
        OutOfStepsError: there are no steps left.
    """
    if not any(helps(run(one)) for one in found.change.smaller()):
        return None
    change = found.change
    for size, grain, resized in _sizes(change, grains):

        def amount(steps: int, size: int = size, grain: int = grain) -> int:
            return min(steps * grain, size)

        def test(steps: int, before: Change = change, resized: _Resized = resized) -> bool:
            return helps(run(resized(before, amount(steps))))

        change = resized(change, amount(0 if test(0) else gallop(-(-size // grain), test)))
    less = Found(change, run(change))
    return at_others_cost(less, {}, run, helps) or less


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
