"""The LimitRanges of a namespace as one set of bounds and defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs

from kueuelib.api.core import LimitRange
from kueuelib.api.quantity import Quantity
from kueuelib.api.struct import frozen

CONTAINER = "Container"
POD = "Pod"

Nanos = Mapping[str, int]
"""Resource name to an exact amount in billionths, the unit of `Quantity.nanos`."""


@frozen
class Bounds:
    """The combination of several LimitRange items of one type.

    Attributes:
        max: the lowest maximum per resource.
        min: the highest minimum.
        default: the first default limit.
        default_request: the first default request.
    """

    max: Nanos = attrs.field(factory=dict)
    min: Nanos = attrs.field(factory=dict)
    default: Nanos = attrs.field(factory=dict)
    default_request: Nanos = attrs.field(factory=dict)


NO_BOUNDS = Bounds()


@frozen
class LimitSummary:
    """The bounds for containers and for pods."""

    containers: Bounds = NO_BOUNDS
    pods: Bounds = NO_BOUNDS


NO_LIMIT_RANGES = LimitSummary()


def nanos_of(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    """Exact amounts; negative ones count as zero."""
    return {name: max(0, quantity.nanos) for name, quantity in quantities.items()}


def summarize(limit_ranges: Iterable[LimitRange]) -> LimitSummary:
    """The summary of all LimitRanges of one namespace; they are read in the order of their
    names.
    """
    ordered = sorted(limit_ranges, key=lambda each: each.name)
    return LimitSummary(_bounds(ordered, CONTAINER), _bounds(ordered, POD))


def _bounds(limit_ranges: Iterable[LimitRange], type: str) -> Bounds:
    items = [item for each in limit_ranges for item in each.spec.limits if item.type == type]
    if not items:
        return NO_BOUNDS
    return Bounds(
        max=_merged((item.max for item in items), min),
        min=_merged((item.min for item in items), max),
        default=_merged((item.default for item in items), _first),
        default_request=_merged((item.default_request for item in items), _first),
    )


def _first(old: int, _: int) -> int:
    return old


def _merged(
    parts: Iterable[Mapping[str, Quantity]], choose: Callable[[int, int], int]
) -> dict[str, int]:
    result: dict[str, int] = {}
    for part in parts:
        for name, quantity in part.items():
            nanos = quantity.nanos
            result[name] = choose(result[name], nanos) if name in result else nanos
    return result
