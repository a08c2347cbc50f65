"""Quota arithmetic: flavor-resource pairs, limits, and sums of whole units.

All amounts are unbounded Python integers in the unit of `kueuelib.api.quantity.amount_of`: milli-
cores for `cpu`, bytes or plain units for everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import attrs

from kueuelib.api.struct import frozen

PODS = "pods"
"""The resource that counts pods; it is requested implicitly if a ClusterQueue covers it."""


class FlavorResource(NamedTuple):
    """The unit of quota: one resource in one flavor."""

    flavor: str
    resource: str

    def __str__(self) -> str:
        return f"{self.flavor}/{self.resource}"


@lru_cache(maxsize=4096)
def pair_of(flavor: str, resource: str) -> FlavorResource:
    """The pair of a flavor and a resource; usually the same object, for fast lookups."""
    return FlavorResource(flavor, resource)


Requests = Mapping[str, int]
"""Resource name to amount."""

Amounts = Mapping[FlavorResource, int]
"""Flavor and resource to amount."""


@frozen
class Limits:
    """The quota that a ClusterQueue or a cohort has for one flavor and resource.

    Attributes:
        nominal: what it owns.
        borrowing: how much more it may use of its cohort; None means without limit.
        lending: how much of `nominal` others may use; None means everything.
        guaranteed: the part of `nominal` that is never lent.
    """

    nominal: int
    borrowing: int | None = None
    lending: int | None = None
    guaranteed: int = attrs.field(init=False, eq=False, repr=False)

    @guaranteed.default
    def _guaranteed(self) -> int:
        return 0 if self.lending is None else max(0, self.nominal - self.lending)

    @property
    def lendable(self) -> int:
        """The part of `nominal` that the cohort shares."""
        return self.nominal - self.guaranteed

    @property
    def ceiling(self) -> int | None:
        """The most that the queue may ever use; None if only the cohort limits it."""
        return None if self.borrowing is None else self.nominal + self.borrowing

    def beyond(self, used: int) -> int:
        """The part of a usage that the cohort above has to provide."""
        return max(0, used - self.guaranteed)


NO_LIMITS = Limits(0)
"""The quota of an unlisted pair."""


def added(left: Amounts, right: Amounts) -> dict[FlavorResource, int]:
    """The sum, as a new mapping."""
    result = dict(left)
    for pair, amount in right.items():
        result[pair] = result.get(pair, 0) + amount
    return result


def total_of(parts: Iterable[Amounts]) -> dict[FlavorResource, int]:
    """The sum of any number of mappings."""
    result: dict[FlavorResource, int] = {}
    for part in parts:
        for pair, amount in part.items():
            result[pair] = result.get(pair, 0) + amount
    return result


def in_flavors(requests: Requests, flavors: Mapping[str, str]) -> dict[FlavorResource, int]:
    """Requests placed in the flavors that an assignment chose; others are left out."""
    return {
        pair_of(flavors[resource], resource): amount
        for resource, amount in requests.items()
        if resource in flavors
    }


def rescaled(requests: Requests, old_count: int, new_count: int) -> dict[str, int]:
    """The total of `old_count` pods, scaled to `new_count` pods.

    Division comes first, as validation guarantees that totals are divisible. The total of zero pods
    stays zero.
    """
    if old_count <= 0:
        return dict.fromkeys(requests, 0)
    return {resource: amount // old_count * new_count for resource, amount in requests.items()}
