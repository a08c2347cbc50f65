"""Defaults and rules of the queueing kinds, as the admission webhooks apply them.

Everything is a pure function on raw objects of either version; the paths in the errors are those of
the given version. Rules that the schema of the CRD has are not repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kueuelib.api.codec import decode
from kueuelib.api.defaulting import (
    default_cluster_queue,
    default_resource_flavor,
    default_workload,
    unchanged,
)
from kueuelib.api.kueue import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Workload,
)
from kueuelib.api.meta import KubeObject, Obj
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
    "ResourceFlavor": Rules(default_resource_flavor, validate_resource_flavor),
    "Workload": Rules(default_workload, validate_workload),
    "AdmissionCheck": Rules(unchanged, validate_admission_check),
}
"""Defaults and rules by kind."""
