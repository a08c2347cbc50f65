"""The rules of Workloads and their status."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kueuelib.api.kinds import KUEUE, V1BETA1
from kueuelib.api.kueue import MAIN_POD_SET
from kueuelib.api.meta import Obj, is_true
from kueuelib.api.names import QUOTA_RESERVED
from kueuelib.api.quantity import Quantity, amount_of
from kueuelib.api.validation.fields import (
    each,
    forbidden,
    invalid,
    label,
    not_found,
    not_supported,
    required,
    spec_of,
    status_of,
    subdomain,
)
from kueuelib.api.validation.metadata import annotation_map, conditions, labels, tolerations
from kueuelib.api.validation.workload_update import workload_update_errors
from kueuelib.errors import FieldError

_RESERVED_RESOURCE = "pods"


def workload_errors(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Every broken rule of a Workload, and of the change when `old` is given."""
    counts = pod_set_counts(new)
    yield from _pod_sets(spec_of(new))
    yield from _names(new)
    yield from conditions("status.conditions", status_of(new).get("conditions"))
    if is_true(new, QUOTA_RESERVED):
        yield from _admission(status_of(new).get("admission"), counts)
    yield from _reclaimable_pods(status_of(new), counts)
    yield from _checks(status_of(new), counts)
    if old is not None:
        yield from workload_update_errors(new, old)


def pod_set_counts(obj: Obj) -> dict[str, int]:
    """How many pods each pod set of a raw Workload has."""
    pod_sets = spec_of(obj).get("podSets") or ()
    return {one.get("name", MAIN_POD_SET): one.get("count", 1) for one in pod_sets}


def _pod_sets(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    variable = []
    for path, pod_set in each(spec, "podSets", "spec"):
        yield from label(f"{path}.name", pod_set.get("name", MAIN_POD_SET))
        pod = (pod_set.get("template") or {}).get("spec") or {}
        for field in ("initContainers", "containers"):
            for place, container in each(pod, field, f"{path}.template.spec"):
                yield from _requests(f"{place}.resources.requests", container)
        least, count = pod_set.get("minCount"), pod_set.get("count", 1)
        if least is not None:
            variable.append(pod_set.get("name", MAIN_POD_SET))
            if not 0 <= least <= count:
                yield forbidden(
                    f"{path}.minCount", f"minCount should be between 0 and the count, {count}"
                )
    if len(variable) > 1:
        yield invalid("spec.podSets", variable, "at most one pod set can use minCount")


def _requests(path: str, container: Mapping[str, Any]) -> Iterator[FieldError]:
    requests = (container.get("resources") or {}).get("requests") or {}
    if _RESERVED_RESOURCE in requests:
        yield invalid(
            f"{path}[{_RESERVED_RESOURCE}]",
            requests[_RESERVED_RESOURCE],
            "the key is reserved for internal use",
        )


def _names(obj: Obj) -> Iterator[FieldError]:
    spec = spec_of(obj)
    if obj.get("apiVersion") == f"{KUEUE}/{V1BETA1}":
        path, name = "spec.priorityClassName", spec.get("priorityClassName")
    else:
        path = "spec.priorityClassRef.name"
        name = (spec.get("priorityClassRef") or {}).get("name")
    if name:
        yield from subdomain(path, name)
        if spec.get("priority") is None:
            yield invalid("spec.priority", None, f"must be set when {path} is set")
    if spec.get("queueName"):
        yield from subdomain("spec.queueName", spec["queueName"])


def _admission(admission: Mapping[str, Any] | None, counts: dict[str, int]) -> Iterator[FieldError]:
    path = "status.admission"
    if admission is None:
        yield required(path, "must be set while QuotaReserved is True")
        return
    yield from subdomain(f"{path}.clusterQueue", admission.get("clusterQueue", ""))
    assignments = admission.get("podSetAssignments") or []
    if len(assignments) != len(counts):
        yield invalid(
            f"{path}.podSetAssignments",
            [one.get("name", MAIN_POD_SET) for one in assignments],
            "must have the same number of podSets as the spec",
        )
    for place, assignment in each(admission, "podSetAssignments", path):
        name = assignment.get("name", MAIN_POD_SET)
        if name not in counts:
            yield not_found(f"{place}.name", name)
        count = assignment.get("count")
        if count is None:
            count = counts.get(name, 0)
        if count > 0:
            yield from _divisible(f"{place}.resourceUsage", assignment, count)


def _divisible(path: str, assignment: Mapping[str, Any], count: int) -> Iterator[FieldError]:
    for resource, usage in (assignment.get("resourceUsage") or {}).items():
        if amount_of(resource, Quantity.parse(usage)) % count:
            yield invalid(f"{path}[{resource}]", usage, f"is not a multiple of {count}")


def _reclaimable_pods(status: Mapping[str, Any], counts: dict[str, int]) -> Iterator[FieldError]:
    for entry in status.get("reclaimablePods") or ():
        name, count = entry.get("name", ""), entry.get("count", 0)
        path = f"status.reclaimablePods[{name}]"
        if name not in counts:
            yield not_supported(f"{path}.name", name, counts)
        elif count > counts[name]:
            yield invalid(f"{path}.count", count, f"should be less or equal to {counts[name]}")


def _checks(status: Mapping[str, Any], pod_sets: Collection[str]) -> Iterator[FieldError]:
    for path, check in each(status, "admissionChecks", "status"):
        yield from update_errors(path, check, pod_sets)


def update_errors(
    path: str, check: Mapping[str, Any], pod_sets: Collection[str]
) -> Iterator[FieldError]:
    """Every broken rule of what a check adds to pods.

    Args:
        path: of the entry of the check.
        check: the raw entry.
        pod_sets: the names of the pod sets.
    """
    updates = check.get("podSetUpdates") or []
    if updates and len(updates) != len(pod_sets):
        yield invalid(
            f"{path}.podSetUpdates",
            [one.get("name", "") for one in updates],
            "must have the same number of podSetUpdates as podSets",
        )
    for place, update in each(check, "podSetUpdates", path):
        name = update.get("name", "")
        if name not in pod_sets:
            yield not_supported(f"{place}.name", name, pod_sets)
        yield from tolerations(f"{place}.tolerations", update.get("tolerations"))
        yield from annotation_map(f"{place}.annotations", update.get("annotations"))
        yield from labels(f"{place}.nodeSelector", update.get("nodeSelector"))
        yield from labels(f"{place}.labels", update.get("labels"))
