"""What must not change in a Workload that holds quota.

Values are compared by meaning: quantities by amount, absent as empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kueuelib.api.codec import decode
from kueuelib.api.kinds import KUEUE, V1BETA1
from kueuelib.api.kueue import CHECK_READY, PriorityClassRef, Workload
from kueuelib.api.meta import Obj, is_true
from kueuelib.api.names import QUOTA_RESERVED, WORKLOAD_PRIORITY_CLASS
from kueuelib.api.validation.fields import immutable, invalid, required, spec_of, status_of
from kueuelib.errors import FieldError


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
        yield from _reclaimable_pods(before, after)
    held, holds = before.status.admission, after.status.admission
    if held is not None and holds is not None and held != holds:
        yield immutable("status.admission", status_of(new).get("admission"))
    yield from _ready_checks(new, before, after)


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


def _reclaimable_pods(before: Workload, after: Workload) -> Iterator[FieldError]:
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
