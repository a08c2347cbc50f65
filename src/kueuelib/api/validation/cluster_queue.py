"""The rules of ClusterQueues (spec/api 3.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kueuelib.api.kinds import KUEUE, V1BETA1
from kueuelib.api.kueue import LIST_LIMIT, NEVER
from kueuelib.api.meta import Obj
from kueuelib.api.quantity import Quantity
from kueuelib.api.validation.fields import (
    NOT_NEGATIVE,
    duplicate,
    each,
    forbidden,
    invalid,
    qualified_name,
    spec_of,
    subdomain,
    too_many,
)
from kueuelib.api.validation.metadata import label_selector
from kueuelib.errors import FieldError

_GROUPS = "spec.resourceGroups"


def cluster_queue_errors(new: Obj, old: Obj | None) -> Iterator[FieldError]:  # noqa: ARG001
    """Every broken rule of a ClusterQueue; all of them may change."""
    spec = spec_of(new)
    cohort_field = "cohort" if new.get("apiVersion") == f"{KUEUE}/{V1BETA1}" else "cohortName"
    cohort = spec.get(cohort_field) or ""
    if cohort:
        yield from subdomain(f"spec.{cohort_field}", cohort)
    yield from _groups(spec, cohort)
    yield from label_selector("spec.namespaceSelector", spec.get("namespaceSelector"))
    yield from _preemption(spec.get("preemption") or {})
    if spec.get("admissionChecks") and spec.get("admissionChecksStrategy"):
        yield forbidden(
            "spec.admissionChecksStrategy", "may not be set together with admissionChecks"
        )


def _groups(spec: Mapping[str, Any], cohort: str) -> Iterator[FieldError]:
    resources: set[str] = set()
    flavors: set[str] = set()
    count = 0
    for path, group in each(spec, "resourceGroups", "spec"):
        covered = group.get("coveredResources") or []
        for place, name in each(group, "coveredResources", path):
            yield from qualified_name(place, name)
            if name in resources:
                yield duplicate(place, name)
            resources.add(name)
        for place, flavor in each(group, "flavors", path):
            name = flavor.get("name", "")
            yield from subdomain(f"{place}.name", name)
            if name in flavors:
                yield duplicate(f"{place}.name", name)
            flavors.add(name)
            count += 1
            yield from _quotas(place, flavor, covered, cohort)
    if count > LIST_LIMIT:  # the status lists one row per flavor and holds no more
        yield too_many(_GROUPS, count, LIST_LIMIT)


def _quotas(
    path: str, flavor: Mapping[str, Any], covered: list[str], cohort: str
) -> Iterator[FieldError]:
    rows = flavor.get("resources") or []
    if len(rows) != len(covered):
        yield invalid(
            f"{path}.resources",
            [row.get("name", "") for row in rows],
            "must have the same resources as coveredResources, in the same order",
        )
    for (place, row), wanted in zip(each(flavor, "resources", path), covered, strict=False):
        if row.get("name", "") != wanted:
            yield invalid(
                f"{place}.name", row.get("name", ""), f"must match coveredResources: {wanted}"
            )
        yield from _limits(place, row, cohort)


def _limits(path: str, row: Mapping[str, Any], cohort: str) -> Iterator[FieldError]:
    for field in ("nominalQuota", "borrowingLimit", "lendingLimit"):
        value = row.get(field)
        if value is None:
            continue
        if Quantity.parse(value).nanos < 0:
            yield invalid(f"{path}.{field}", value, NOT_NEGATIVE)
        if field != "nominalQuota" and not cohort:
            yield invalid(f"{path}.{field}", value, "must be absent when the queue has no cohort")
    lending, nominal = row.get("lendingLimit"), row.get("nominalQuota", 0)
    if lending is not None and Quantity.parse(lending) > Quantity.parse(nominal):
        yield invalid(
            f"{path}.lendingLimit", lending, "must be less than or equal to the nominalQuota"
        )


def _preemption(preemption: Mapping[str, Any]) -> Iterator[FieldError]:
    reclaim = preemption.get("reclaimWithinCohort") or NEVER
    borrowing = (preemption.get("borrowWithinCohort") or {}).get("policy") or NEVER
    if reclaim == NEVER and borrowing != NEVER:
        yield invalid(
            "spec.preemption",
            dict(preemption),
            "reclaimWithinCohort=Never and borrowWithinCohort.policy!=Never exclude each other",
        )
