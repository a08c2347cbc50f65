"""What a Workload, raw or typed, says about its quota and its checks: the rules of all layers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from kueuelib.api.meta import KubeObject, find, find_condition, is_true, parse_time
from kueuelib.api.names import ADMITTED, EVICTED, FINISHED, QUOTA_RESERVED, REQUEUED
from kueuelib.api.patterns import CHECK_READY, PLACES_PENDING

if TYPE_CHECKING:
    from kueuelib.api.kueue import Workload


def has_quota(wl: Mapping[str, Any] | Workload) -> bool:
    """Whether quota is reserved."""
    return is_true(wl, QUOTA_RESERVED)


def is_admitted(wl: Mapping[str, Any] | Workload) -> bool:
    """Whether the job may run; stays True until an eviction is complete."""
    return is_true(wl, ADMITTED)


def is_evicted(wl: Mapping[str, Any] | Workload) -> bool:
    """Whether the last reservation was evicted, or is being evicted."""
    return is_true(wl, EVICTED)


def is_finished(wl: Mapping[str, Any] | Workload) -> bool:
    """Whether the workload is over for good."""
    return is_true(wl, FINISHED)


def waits_since(wl: Mapping[str, Any] | Workload) -> float | None:
    """Since when it has waited, for events and metrics, in seconds since the epoch.

    As in Kueue: since the last change of Requeued, or else since its creation; None if neither is
    known. Its place in the queue depends on another time, see `QueueOrder`.
    """
    if isinstance(wl, KubeObject):
        requeued = find(wl.status.conditions, REQUEUED)
        created = wl.metadata.creation_timestamp
        return created if requeued is None else requeued.last_transition_time
    stated = find_condition((wl.get("status") or {}).get("conditions"), REQUEUED)
    since = stated.get("lastTransitionTime") or wl["metadata"].get("creationTimestamp")
    return parse_time(since) if since else None


def passed_all(wl: Mapping[str, Any] | Workload, required: Collection[str]) -> bool:
    """Whether every listed check is Ready, and no required one is missing (KEP-993).

    Args:
        wl: the Workload.
        required: the names of the checks that it has to pass.
    """
    states = _states(wl)
    if not states:
        return not required
    return states.keys() >= {*required} and all(state == CHECK_READY for state in states.values())


def passed(wl: Mapping[str, Any] | Workload, checks: Collection[str]) -> bool:
    """Whether each of these checks is Ready."""
    states = _states(wl)
    return all(states.get(name) == CHECK_READY for name in checks)


def waits_for_places(wl: Mapping[str, Any] | Workload) -> bool:
    """Whether pods get their places only once their nodes exist, and have none yet (KEP-2724)."""
    if isinstance(wl, KubeObject):
        admission = wl.status.admission
        return admission is not None and any(
            one.delayed_topology_request == PLACES_PENDING and one.topology_assignment is None
            for one in admission.pod_set_assignments
        )
    raw = (wl.get("status") or {}).get("admission") or {}
    return any(
        one.get("delayedTopologyRequest") == PLACES_PENDING and not one.get("topologyAssignment")
        for one in raw.get("podSetAssignments") or ()
    )


def _states(wl: Mapping[str, Any] | Workload) -> dict[str, str]:
    """The states of the listed checks, by name."""
    if isinstance(wl, KubeObject):
        checks = wl.status.admission_checks
        return {one.name: one.state for one in checks} if checks else {}
    listed = (wl.get("status") or {}).get("admissionChecks") or ()
    return {entry["name"]: entry.get("state", "") for entry in listed}
