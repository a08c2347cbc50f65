"""The rules of quotas and weights, which ClusterQueues and Cohorts share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kueuelib.api.quantity import Quantity
from kueuelib.api.validation.fields import (
    NOT_NEGATIVE,
    duplicate,
    each,
    invalid,
    qualified_name,
    subdomain,
)
from kueuelib.errors import FieldError


def quotas(
    spec: Mapping[str, Any], *, no_limits: str, lend_up_to_nominal: bool
) -> Iterator[FieldError]:
    """Every broken rule of `spec.resourceGroups`.

    Args:
        spec: the raw spec of a ClusterQueue or Cohort.
        no_limits: why borrowing and lending limits may not be set; empty: they may.
        lend_up_to_nominal: whether a lending limit may not exceed the nominal quota.
    """
    resources: set[str] = set()
    flavors: set[str] = set()
    for path, group in each(spec, "resourceGroups", "spec"):
        for place, name in each(group, "coveredResources", path):
            yield from qualified_name(place, name)
            yield from _once(place, name, resources)
        for place, flavor in each(group, "flavors", path):
            name = flavor.get("name", "")
            yield from subdomain(f"{place}.name", name)
            yield from _once(f"{place}.name", name, flavors)
            yield from _order(place, flavor, group.get("coveredResources") or [])
            for row_place, row in each(flavor, "resources", place):
                yield from _amounts(row_place, row, no_limits)
                if lend_up_to_nominal:
                    yield from _lending(row_place, row)


def weight(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """The weight of fair sharing is 0, or large enough to divide by."""
    value = (spec.get("fairSharing") or {}).get("weight", 1)
    nanos = Quantity.parse(value).nanos
    if nanos < 0:
        yield invalid("spec.fairSharing.weight", value, NOT_NEGATIVE)
    elif nanos == 1:
        yield invalid("spec.fairSharing.weight", value, "must be 0 or greater than 1n")


def _once(path: str, name: str, seen: set[str]) -> Iterator[FieldError]:
    if name in seen:
        yield duplicate(path, name)
    seen.add(name)


def _order(path: str, flavor: Mapping[str, Any], covered: list[str]) -> Iterator[FieldError]:
    names = [row.get("name", "") for row in flavor.get("resources") or ()]
    if len(names) != len(covered):
        yield invalid(
            f"{path}.resources",
            names,
            "must have the same resources as coveredResources, in the same order",
        )
    for index, (name, wanted) in enumerate(zip(names, covered, strict=False)):
        if name != wanted:
            yield invalid(
                f"{path}.resources[{index}].name", name, f"must match coveredResources: {wanted}"
            )


def _amounts(path: str, row: Mapping[str, Any], no_limits: str) -> Iterator[FieldError]:
    for field in ("nominalQuota", "borrowingLimit", "lendingLimit"):
        value = row.get(field)
        if value is None:
            continue
        if Quantity.parse(value).nanos < 0:
            yield invalid(f"{path}.{field}", value, NOT_NEGATIVE)
        if field != "nominalQuota" and no_limits:
            yield invalid(f"{path}.{field}", value, no_limits)


def _lending(path: str, row: Mapping[str, Any]) -> Iterator[FieldError]:
    lending, nominal = row.get("lendingLimit"), row.get("nominalQuota", 0)
    if lending is not None and Quantity.parse(lending) > Quantity.parse(nominal):
        yield invalid(
            f"{path}.lendingLimit", lending, "must be less than or equal to the nominalQuota"
        )
