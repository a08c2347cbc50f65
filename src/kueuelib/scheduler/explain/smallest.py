"""A still smaller size of a change that was found.

Who gets more quota may lose it to others that wait: one unit can be enough where two are not,
because then somebody else takes both. So a size that passes while one unit less does not may not be
the smallest one. What is below is looked at in equal steps, as many as there may be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from kueuelib.scheduler.explain.changes import Change, RaiseQuota
from kueuelib.scheduler.explain.found import Found
from kueuelib.scheduler.explain.own_changes import FewerPods
from kueuelib.scheduler.explain.sizes import bisect
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
    sized = _sized(found.change, grains)
    if sized is None:
        return found
    size, grain, make = sized

    def test(size: int) -> bool:
        return helps(run(make(size)))

    step = -(-size // (grain * MOST_LOOKS)) * grain
    for yes in range(step, size, step):
        if test(yes):
            change = make(bisect(yes - step, yes, test))
            return Found(change, run(change))
    return found


def _sized(
    change: Change, grains: Mapping[str, int]
) -> tuple[int, int, Callable[[int], Change]] | None:
    """Size, smallest step worth a look, and the change of another size; None if it has none."""
    match change:
        case RaiseQuota(amounts=(more,)) as quota:
            grain = grains.get(more.resource) or 1
            return (
                more.by,
                grain,
                lambda by: attrs.evolve(quota, amounts=(attrs.evolve(more, by=by),)),
            )
        case RaiseWeight() as weight:
            return weight.steps, 1, lambda steps: attrs.evolve(weight, steps=steps)
        case FewerPods() as pods:
            fewer = pods.before - pods.to
            return fewer, 1, lambda by: attrs.evolve(pods, to=pods.before - by)
        case _:
            return None
