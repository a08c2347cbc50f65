"""Decides whether a Workload still matches its job (spec/jobs 1.6.1).

For each pod set it compares the count, the minimum count, and the tolerations, init containers and
containers of the template. They are compared by meaning: quantities by their value, absent equals
empty. Names, labels, node selectors, affinity and priority are not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.api.quantity import Quantity
from kueuelib.errors import InvalidQuantity, PodSetError
from kueuelib.jobs.contract.generic_job import GenericJob, PodSet
from kueuelib.jobs.contract.podset_info import (
    FlavorNotFound,
    PodSetInfo,
    from_pod_set,
    infos_for_start,
    merge,
)

_COMPARED = ("tolerations", "initContainers", "containers")
_QUANTITIES = ("requests", "limits")


def equivalent(
    job: GenericJob,
    pod_sets: Sequence[PodSet],
    workload: Mapping[str, Any],
    flavors: Mapping[str, Mapping[str, Any]],
) -> bool:
    """Whether the Workload matches the job's pod sets, before or after its start.

    Args:
        job: the job.
        pod_sets: its pod sets (without minimum counts if partial admission is off).
        workload: a raw Workload.
        flavors: the raw ResourceFlavors by name.
    """
    stored = workload["spec"]["podSets"]
    if job.is_suspended() and same_pod_sets(pod_sets, stored):
        return True
    return same_pod_sets(pod_sets, _as_admitted(workload, flavors) or stored)


def looks_started(
    pod_sets: Sequence[PodSet],
    workload: Mapping[str, Any],
    flavors: Mapping[str, Mapping[str, Any]],
) -> bool:
    """Whether the pod sets of a job equal those of its Workload, with the additions of a start."""
    running = _as_admitted(workload, flavors)
    if running is None or not same_pod_sets(pod_sets, running):
        return False
    return all(
        from_pod_set(first.raw()) == from_pod_set(second)
        for first, second in zip(pod_sets, running, strict=True)
    )


def same_pod_sets(wanted: Sequence[PodSet], stored: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the raw pod sets of a Workload equal the given ones."""
    return len(wanted) == len(stored) and all(
        _same(first.raw(), second) for first, second in zip(wanted, stored, strict=True)
    )


def _as_admitted(
    workload: Mapping[str, Any], flavors: Mapping[str, Mapping[str, Any]]
) -> list[Mapping[str, Any]] | None:
    """The pod sets of a started job; None without a usable admission."""
    status = workload.get("status") or {}
    if not status.get("admission"):
        return None
    try:
        infos = infos_for_start(workload, flavors)
        return [
            _with_info(entry, info)
            for entry, info in zip(workload["spec"]["podSets"], infos, strict=True)
        ]
    except (PodSetError, FlavorNotFound):
        return None


def _with_info(pod_set: Mapping[str, Any], info: PodSetInfo) -> Mapping[str, Any]:
    template = {
        "metadata": dict(pod_set["template"].get("metadata") or {}),
        "spec": dict(pod_set["template"].get("spec") or {}),
    }
    merge(template, info)
    changed = {**pod_set, "template": template}
    if pod_set.get("minCount") is not None:
        changed["count"] = info.count
    return changed


def _same(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    if (first.get("count", 1), first.get("minCount")) != (
        second.get("count", 1),
        second.get("minCount"),
    ):
        return False
    one, other = _pod_spec(first), _pod_spec(second)
    return all(
        one.get(field) == other.get(field)
        or _canonical(one.get(field)) == _canonical(other.get(field))
        for field in _COMPARED
    )


def _pod_spec(pod_set: Mapping[str, Any]) -> Mapping[str, Any]:
    return (pod_set.get("template") or {}).get("spec") or {}


def _canonical(value: Any, *, quantities: bool = False) -> Any:
    """The value without meaningless parts; None if it is empty."""
    if isinstance(value, Mapping):
        fields = {}
        for key, item in value.items():
            kept = _canonical(item, quantities=key in _QUANTITIES)
            if quantities and item is not None:
                kept = _quantity(item)
            if kept is not None:
                fields[key] = kept
        return fields or None
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value] or None
    return None if value == "" else value


def _quantity(value: Any) -> Any:
    try:
        return Quantity.parse(value)
    except InvalidQuantity:
        return value
