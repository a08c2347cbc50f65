"""The rules of ClusterQueues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kueuelib.api.kinds import KUEUE, V1BETA1
from kueuelib.api.kueue import LIST_LIMIT, NEVER
from kueuelib.api.meta import Obj
from kueuelib.api.validation.fields import forbidden, invalid, spec_of, subdomain, too_many
from kueuelib.api.validation.metadata import label_selector
from kueuelib.api.validation.quotas import quotas, weight
from kueuelib.errors import FieldError


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
