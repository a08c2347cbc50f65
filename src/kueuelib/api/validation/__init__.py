"""Defaults and rules of the queueing kinds, as the admission webhooks apply them.

Everything is a pure function on raw objects of either version; the paths in the errors are those of
the given version. Rules that the schema of the CRD has are not repeated here; defaults leave a
value of the wrong type alone, because the schema refuses it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kueuelib.api.codec import decode
from kueuelib.api.kinds import KUEUE, V1BETA1
from kueuelib.api.kueue import (
    MAIN_POD_SET,
    MAY_STOP_SEARCH,
    NEVER,
    TRY_NEXT_FLAVOR,
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Workload,
)
from kueuelib.api.meta import KubeObject, Obj
from kueuelib.api.names import IN_USE_FINALIZER
from kueuelib.api.struct import frozen
from kueuelib.api.validation.fields import gate_errors, without_nulls
from kueuelib.api.validation.queues import (
    admission_check_errors,
    cluster_queue_errors,
    cohort_errors,
    local_queue_errors,
    resource_flavor_errors,
)
from kueuelib.api.validation.workload import workload_errors
from kueuelib.errors import FieldError, InvalidObject

_Errors = Callable[[Obj, Obj | None], Iterator[FieldError]]


_PREEMPTION: Final = {"reclaimWithinCohort": NEVER, "withinClusterQueue": NEVER}
_BORROWING: Final = {"policy": NEVER}


def default_cluster_queue(obj: Obj) -> Obj:
    """The ClusterQueue with finalizer, preemption and fungibility policies."""
    obj = _with_finalizer(obj)
    spec = _child(obj, "spec")
    preemption = _child(spec, "preemption")
    _fill(preemption, _PREEMPTION)
    _fill(_child(preemption, "borrowWithinCohort"), _BORROWING)
    old = obj.get("apiVersion") == f"{KUEUE}/{V1BETA1}"
    borrow = "Borrow" if old else MAY_STOP_SEARCH
    fungibility = {"whenCanBorrow": borrow, "whenCanPreempt": TRY_NEXT_FLAVOR}
    _fill(_child(spec, "flavorFungibility"), fungibility)
    return obj


def default_workload(obj: Obj) -> Obj:
    """The Workload with a name for a single pod set without one."""
    spec = obj.get("spec")
    pod_sets = spec.get("podSets") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(pod_sets, list) or len(pod_sets) != 1:
        return obj
    (pod_set,) = pod_sets
    if not isinstance(pod_set, dict) or pod_set.get("name"):
        return obj
    return {**obj, "spec": {**spec, "podSets": [{**pod_set, "name": MAIN_POD_SET}]}}


def unchanged(obj: Obj) -> Obj:
    """The object itself, for kinds without defaults of the webhook."""
    return obj


def _with_finalizer(obj: Obj) -> Obj:
    obj = dict(obj)
    metadata = _child(obj, "metadata")
    finalizers = metadata.get("finalizers")
    if finalizers is None or (isinstance(finalizers, list) and IN_USE_FINALIZER not in finalizers):
        metadata["finalizers"] = [*(finalizers or ()), IN_USE_FINALIZER]
    return obj


def _child(parent: Obj, name: str) -> Obj:
    """A private copy of a child object, created if missing; detached if it is not an object."""
    child = parent.get(name)
    if child is not None and not isinstance(child, dict):
        return {}
    parent[name] = copied = dict(child or {})
    return copied


def _fill(target: Obj, defaults: Mapping[str, Any]) -> None:
    for key, value in defaults.items():
        if target.get(key) is None:
            target[key] = value


@frozen
class Rules:
    """What admission does with one kind.

    Attributes:
        default: the object as it is created; the given one is not changed.
        validate: every broken rule of a new object, or of a change when the old one is given.
    """

    default: Callable[[Obj], Obj]
    validate: Callable[[Obj, Obj | None], list[FieldError]]


def validate_cluster_queue(new: Obj, old: Obj | None = None) -> list[FieldError]:
    """Every broken rule of a ClusterQueue."""
    return _validate(ClusterQueue, cluster_queue_errors, new, old)


def validate_cohort(new: Obj, old: Obj | None = None) -> list[FieldError]:
    """Every broken rule of a Cohort."""
    return _validate(Cohort, cohort_errors, new, old)


def validate_local_queue(new: Obj, old: Obj | None = None) -> list[FieldError]:
    """Every broken rule of a LocalQueue."""
    return _validate(LocalQueue, local_queue_errors, new, old)


def validate_resource_flavor(new: Obj, old: Obj | None = None) -> list[FieldError]:
    """Every broken rule of a ResourceFlavor."""
    return _validate(ResourceFlavor, resource_flavor_errors, new, old)


def validate_workload(new: Obj, old: Obj | None = None) -> list[FieldError]:
    """Every broken rule of a Workload or its status."""
    return [*gate_errors(new, old), *_validate(Workload, workload_errors, new, old)]


def validate_admission_check(new: Obj, old: Obj | None = None) -> list[FieldError]:
    """Every broken rule of an AdmissionCheck."""
    return _validate(AdmissionCheck, admission_check_errors, new, old)


def _validate(
    cls: type[KubeObject], errors: _Errors, new: Obj, old: Obj | None
) -> list[FieldError]:
    if old is not None and _only_metadata(new, old):
        return []
    new, old = without_nulls(new), without_nulls(old)
    try:
        decode(cls, new)
    except InvalidObject as wrong_types:
        return list(wrong_types.errors)
    broken = list(dict.fromkeys(errors(new, old)))
    if not broken or old is None:
        return broken
    known = _broken_before(cls, errors, old)
    return [error for error in broken if error not in known]


def _only_metadata(new: Obj, old: Obj) -> bool:
    """Whether only the metadata of an object changes; there are no other rules for it.

    An object that bypassed the webhook must be able to give up its finalizers.
    """
    return all(new.get(part) == old.get(part) for part in ("spec", "status"))


def _broken_before(cls: type[KubeObject], errors: _Errors, old: Obj) -> frozenset[FieldError]:
    """The rules that the stored object breaks; they do not keep it from being changed."""
    try:
        decode(cls, old)
    except InvalidObject:
        return frozenset()
    return frozenset(errors(old, None))


RULES: Final[Mapping[str, Rules]] = {
    "ClusterQueue": Rules(default_cluster_queue, validate_cluster_queue),
    "Cohort": Rules(unchanged, validate_cohort),
    "LocalQueue": Rules(unchanged, validate_local_queue),
    "ResourceFlavor": Rules(_with_finalizer, validate_resource_flavor),
    "Workload": Rules(default_workload, validate_workload),
    "AdmissionCheck": Rules(unchanged, validate_admission_check),
}
"""Defaults and rules by kind."""
