"""The rules of Workloads and their status."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import attrs

from kueuelib.api.codec import decode
from kueuelib.api.kinds import KUEUE, V1BETA1
from kueuelib.api.kueue import CHECK_READY, MAIN_POD_SET, Admission, PriorityClassRef, Workload
from kueuelib.api.meta import Obj, is_true
from kueuelib.api.names import QUOTA_RESERVED, WORKLOAD_PRIORITY_CLASS
from kueuelib.api.quantity import Quantity, amount_of
from kueuelib.api.validation.fields import (
    annotation_map,
    conditions,
    each,
    forbidden,
    immutable,
    invalid,
    label,
    labels,
    not_found,
    not_supported,
    required,
    spec_of,
    status_of,
    subdomain,
    tolerations,
)
from kueuelib.errors import FieldError

# ---- what must not change in a Workload that holds quota -----------------------------------------
# Values are compared by meaning: quantities by amount, absent as empty.


def workload_update_errors(new: Obj, old: Obj) -> Iterator[FieldError]:
    """Every change that the state of a Workload forbids."""
    if old.get("spec") == new.get("spec"):  # then only the statuses have to be read
        old, new = {**old, "spec": {}}, {**new, "spec": {}}
    before, after = _meaning(old), _meaning(new)
    was_reserved, is_reserved = is_true(old, QUOTA_RESERVED), is_true(new, QUOTA_RESERVED)
    if was_reserved:
        if before.spec.pod_sets != after.spec.pod_sets:
            yield immutable("spec.podSets", spec_of(new).get("podSets"))
        yield from _priority_class(new, before.spec.priority_class_ref, after)
    if was_reserved and is_reserved:
        limit = after.spec.maximum_execution_time_seconds
        if before.spec.maximum_execution_time_seconds != limit:
            yield immutable("spec.maximumExecutionTimeSeconds", limit)
        if before.spec.queue_name != after.spec.queue_name:
            yield immutable("spec.queueName", after.spec.queue_name)
        yield from _grown_reclaimable_pods(before, after)
    held, holds = _without_places(before), _without_places(after)
    if held is not None and holds is not None and held != holds:
        yield immutable("status.admission", status_of(new).get("admission"))
    yield from _ready_checks(new, before, after)


def _without_places(workload: Workload) -> Admission | None:
    """An admission without what may change in it: where pods are placed (KEP-2724)."""
    admission = workload.status.admission
    if admission is None:
        return None
    fixed = [
        attrs.evolve(one, topology_assignment=None, delayed_topology_request="")
        for one in admission.pod_set_assignments
    ]
    return attrs.evolve(admission, pod_set_assignments=tuple(fixed))


def _meaning(obj: Obj) -> Workload:
    """The Workload without nulls and empty lists, which mean the same as nothing."""
    pruned: Obj = _pruned(obj)
    return decode(Workload, pruned)


def _pruned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _pruned(one) for key, one in value.items() if one is not None and one != []}
    if isinstance(value, list):
        return [_pruned(one) for one in value]
    return value


def _priority_class(
    new: Obj, before: PriorityClassRef | None, workload: Workload
) -> Iterator[FieldError]:
    """The kind of priority class must not change; the name of a WorkloadPriorityClass may."""
    nothing = PriorityClassRef()
    old, now = before or nothing, workload.spec.priority_class_ref or nothing
    v1beta1 = new.get("apiVersion") == f"{KUEUE}/{V1BETA1}"
    if (old.group, old.kind) != (now.group, now.kind):
        if v1beta1:
            source = spec_of(new).get("priorityClassSource", "")
            yield immutable("spec.priorityClassSource", source)
        else:
            yield immutable("spec.priorityClassRef", spec_of(new).get("priorityClassRef"))
    elif old.name != now.name and (old.group, old.kind) != WORKLOAD_PRIORITY_CLASS:
        path = "spec.priorityClassName" if v1beta1 else "spec.priorityClassRef.name"
        yield immutable(path, now.name)


def _grown_reclaimable_pods(before: Workload, after: Workload) -> Iterator[FieldError]:
    """Counts may only grow while quota is held."""
    counts = {entry.name: entry.count for entry in after.status.reclaimable_pods}
    for entry in before.status.reclaimable_pods:
        path = f"status.reclaimablePods[{entry.name}]"
        count = counts.get(entry.name)
        if count is None:
            yield required(path, "cannot be removed while quota is reserved")
        elif count < entry.count:
            yield invalid(f"{path}.count", count, f"cannot be less than {entry.count}")


def _ready_checks(new: Obj, before: Workload, after: Workload) -> Iterator[FieldError]:
    """What a check adds to the pods must not change while the check stays Ready."""
    ready = {one.name: one for one in before.status.admission_checks if one.state == CHECK_READY}
    for index, one in enumerate(after.status.admission_checks):
        old = ready.get(one.name)
        if old is None or one.state != CHECK_READY or old.pod_set_updates == one.pod_set_updates:
            continue
        raw = status_of(new)["admissionChecks"][index].get("podSetUpdates")
        yield immutable(f"status.admissionChecks[{index}].podSetUpdates", raw)


# --------------------------------------------------------------------------------------------------

_RESERVED_RESOURCE = "pods"


def workload_errors(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Every broken rule of a Workload, and of the change when `old` is given."""
    counts = pod_set_counts(new)
    yield from _pod_sets(spec_of(new))
    if old is None:
        for path, pod_set in each(spec_of(new), "podSets", "spec"):
            yield from _slices(f"{path}.topologyRequest", pod_set.get("topologyRequest") or {})
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


def _slices(path: str, request: Mapping[str, Any]) -> Iterator[FieldError]:
    """A level for slices and their size need each other."""
    level, size = request.get(_SLICE_LEVEL), request.get("podSetSliceSize")
    if level is not None and size is None:
        yield required(f"{path}.podSetSliceSize", f"must be set when {_SLICE_LEVEL} is specified")
    if level is None and size is not None:
        text = f"may not be set when {_SLICE_LEVEL} is not specified"
        yield forbidden(f"{path}.podSetSliceSize", text)


_SLICE_LEVEL = "podSetSliceRequiredTopology"


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
