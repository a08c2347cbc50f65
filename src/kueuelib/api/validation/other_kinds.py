"""The rules of Cohorts, LocalQueues, ResourceFlavors and AdmissionChecks."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.api.meta import Obj
from kueuelib.api.validation.fields import (
    immutable,
    label,
    label_1035,
    required,
    spec_of,
    subdomain,
)
from kueuelib.api.validation.metadata import labels, taints, tolerations
from kueuelib.api.validation.quotas import quotas, weight
from kueuelib.errors import FieldError


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
