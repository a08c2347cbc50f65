"""The rules of ClusterQueues, Cohorts, LocalQueues, ResourceFlavors and AdmissionChecks."""

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
    immutable,
    invalid,
    label,
    label_1035,
    label_selector,
    labels,
    qualified_name,
    required,
    spec_of,
    subdomain,
    taints,
    tolerations,
    too_many,
)
from kueuelib.errors import FieldError

# ---- the rules of quotas and weights, which ClusterQueues and Cohorts share ----------------------


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


# ---- the rules of ClusterQueues ------------------------------------------------------------------


def cluster_queue_errors(new: Obj, old: Obj | None) -> Iterator[FieldError]:  # noqa: ARG001
    """Every broken rule of a ClusterQueue; all of them may change."""
    spec = spec_of(new)
    cohort_field = "cohort" if new.get("apiVersion") == f"{KUEUE}/{V1BETA1}" else "cohortName"
    cohort = spec.get(cohort_field) or ""
    if cohort:
        yield from subdomain(f"spec.{cohort_field}", cohort)
    missing = "" if cohort else "must be absent when the queue has no cohort"
    yield from quotas(spec, no_limits=missing, lend_up_to_nominal=True)
    count = sum(len(group.get("flavors") or ()) for group in spec.get("resourceGroups") or ())
    if count > LIST_LIMIT:  # the status lists one row per flavor and holds no more
        yield too_many("spec.resourceGroups", count, LIST_LIMIT)
    yield from weight(spec)
    yield from label_selector("spec.namespaceSelector", spec.get("namespaceSelector"))
    yield from _preemption(spec.get("preemption") or {})
    if spec.get("admissionChecks") and spec.get("admissionChecksStrategy"):
        yield forbidden(
            "spec.admissionChecksStrategy", "may not be set together with admissionChecks"
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


# --------------------------------------------------------------------------------------------------


def cohort_errors(new: Obj, old: Obj | None) -> Iterator[FieldError]:  # noqa: ARG001
    """Every broken rule of a Cohort; all of them may change.

    Cycles among the parents are allowed: objects of a tree are applied in any order.
    """
    spec = spec_of(new)
    parent = spec.get("parentName") or ""
    if parent:
        yield from subdomain("spec.parentName", parent)
    missing = "" if parent else "must be absent when the Cohort has no parentName"
    yield from quotas(spec, no_limits=missing, lend_up_to_nominal=False)
    yield from weight(spec)


def local_queue_errors(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """A LocalQueue names its ClusterQueue, which never changes; its weight may change."""
    yield from weight(spec_of(new))
    name = spec_of(new).get("clusterQueue") or ""
    if old is None:
        yield from subdomain("spec.clusterQueue", name)
    elif name != (spec_of(old).get("clusterQueue") or ""):
        yield immutable("spec.clusterQueue", name)


def resource_flavor_errors(new: Obj, old: Obj | None) -> Iterator[FieldError]:  # noqa: ARG001
    """Labels, taints and tolerations must be valid; all of them may change."""
    spec = spec_of(new)
    yield from labels("spec.nodeLabels", spec.get("nodeLabels"))
    yield from taints("spec.nodeTaints", spec.get("nodeTaints"))
    yield from tolerations("spec.tolerations", spec.get("tolerations"))


def admission_check_errors(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """An AdmissionCheck names its controller, which never changes; its parameters must be a
    reference.
    """
    name = spec_of(new).get("controllerName") or ""
    if not name:
        yield required("spec.controllerName", "cannot be empty")
    if old is not None and name != (spec_of(old).get("controllerName") or ""):
        yield immutable("spec.controllerName", name)
    parameters = spec_of(new).get("parameters")
    if parameters is not None:
        yield from subdomain("spec.parameters.apiGroup", parameters.get("apiGroup", ""))
        yield from label_1035("spec.parameters.kind", parameters.get("kind", "").lower())
        yield from label("spec.parameters.name", parameters.get("name", ""))
