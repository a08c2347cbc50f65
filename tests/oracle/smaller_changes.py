"""The next smaller forms of a change, to check that `explain` proposes the smallest one."""

from __future__ import annotations

import attrs

from kueuelib.scheduler.explain.changes import (
    CandidateChange,
    RaiseQuota,
    RaiseThreshold,
    RaiseWeight,
    UnsizedChange,
)
from kueuelib.scheduler.explain.own_changes import FewerPods, SetPriority


def one_unit_less(change: CandidateChange) -> tuple[CandidateChange, ...]:
    """The same change by one unit less, in every way there is; nothing if it would change nothing.

    One unit less of either resource of a quota, a threshold or priority lower by one, one pod more
    that stays, a weight lower by one step.
    """
    match change:
        case UnsizedChange():
            return ()
        case RaiseQuota(amounts=amounts):
            return tuple(
                attrs.evolve(
                    change,
                    amounts=tuple(
                        attrs.evolve(more, by=more.by - (more is chosen)) for more in amounts
                    ),
                )
                for chosen in amounts
            )
        case RaiseThreshold(before=before, to=to) | SetPriority(before=before, to=to):
            return (attrs.evolve(change, to=to - 1),) if to - 1 > before else ()
        case FewerPods(before=before, to=to, unit=unit):
            return (attrs.evolve(change, to=to + unit),) if to + unit < before else ()
        case RaiseWeight(steps=steps):
            return (attrs.evolve(change, steps=steps - 1),) if steps > 1 else ()
    raise TypeError(f"unknown kind of change: {change!r}")
