"""Amounts of resources, computed without the product: quantities, pods, pod sets, admissions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from kueuelib.testing.storm.history import Obj

Amounts = dict[str, Fraction]
"""Amount by resource name."""

Usage = dict[tuple[str, str], Fraction]
"""Amount by flavor and resource name."""

ZERO = Fraction(0)

_SUFFIXES = {
    **{suffix: Fraction(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti"), 1)},
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate(("k", "M", "G", "T"), 1)},
    "m": Fraction(1, 1000),
    "u": Fraction(1, 1_000_000),
    "n": Fraction(1, 1_000_000_000),
}


def quantity(text: Any) -> Fraction:
    """The number of a Kubernetes quantity.

    Raises:
        ValueError: it is not a quantity.
    """
    written = str(text).strip()
    for suffix, factor in _SUFFIXES.items():
        if written.endswith(suffix):
            return Fraction(written[: -len(suffix)]) * factor
    return Fraction(written)


def add(total: dict[Any, Fraction], more: Mapping[Any, Fraction], factor: int = 1) -> None:
    """Adds amounts to a total in place."""
    for key, amount in more.items():
        total[key] = total.get(key, ZERO) + amount * factor


def _of_containers(containers: Iterable[Obj]) -> Iterable[Amounts]:
    for container in containers:
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        yield {name: quantity(amount) for name, amount in asked.items()}


def pod_request(spec: Obj) -> Amounts:
    """The request of one pod; init containers and overhead are counted as in Kubernetes.

    Sidecars and pod-level requests are not supported here; see `is_simple`.
    """
    total: Amounts = {}
    for asked in _of_containers(spec.get("containers") or ()):
        add(total, asked)
    for asked in _of_containers(spec.get("initContainers") or ()):
        for name, amount in asked.items():
            total[name] = max(total.get(name, ZERO), amount)
    add(total, {name: quantity(amount) for name, amount in (spec.get("overhead") or {}).items()})
    return total


def is_simple(spec: Obj) -> bool:
    """Whether `pod_request` is exact and no flavor can be ruled out by the pod itself."""
    sidecars = any(one.get("restartPolicy") for one in spec.get("initContainers") or ())
    placed = spec.get("nodeSelector") or spec.get("affinity") or spec.get("runtimeClassName")
    return not sidecars and not placed and not spec.get("resources")


def reclaimed(workload: Obj) -> dict[str, int]:
    """How many pods of each pod set are done and no longer need quota."""
    entries = (workload.get("status") or {}).get("reclaimablePods") or ()
    return {entry["name"]: int(entry["count"]) for entry in entries}


def usage_of(workload: Obj) -> Usage:
    """The quota in the stored admission of a Workload, by flavor and resource."""
    status = workload.get("status") or {}
    done = reclaimed(workload)
    counts = {one["name"]: int(one.get("count", 1)) for one in workload["spec"]["podSets"]}
    total: Usage = {}
    for entry in (status.get("admission") or {}).get("podSetAssignments") or ():
        name = entry["name"]
        count = int(entry.get("count", counts.get(name, 1)))
        # A readmitted Workload is admitted only for what was left of it.
        left = min(count, max(0, counts.get(name, count) - done.get(name, 0)))
        share = Fraction(left, count) if count else ZERO
        for resource, amount in (entry.get("resourceUsage") or {}).items():
            flavor = (entry.get("flavors") or {}).get(resource, "")
            add(total, {(flavor, resource): quantity(amount) * share})
    return total
