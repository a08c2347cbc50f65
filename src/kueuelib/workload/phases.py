"""Reads the phase of a Workload from its raw object.

The steps between the phases are in `kueuelib.workload.transitions`. All instants are seconds since
the epoch.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from kueuelib.api.kinds import KUEUE, V1BETA1, V1BETA2
from kueuelib.api.meta import find_condition, is_true, parse_time
from kueuelib.api.names import ADMITTED, EVICTED, FINISHED, QUOTA_RESERVED, REQUEUED
from kueuelib.workload.evictions import DEACTIVATED, DUE_TO, PODS_MISSING

_PAST_SECONDS = {
    f"{KUEUE}/{V1BETA1}": "accumulatedPastExexcutionTimeSeconds",
    f"{KUEUE}/{V1BETA2}": "accumulatedPastExecutionTimeSeconds",
}


class Phase(enum.Enum):
    """The phase of a Workload's life."""

    PENDING = "pending"
    RESERVED = "reserved"
    ADMITTED = "admitted"
    EVICTING = "evicting"
    FINISHED = "finished"

    @property
    def holds_quota(self) -> bool:
        """Whether the workload counts towards the usage of its ClusterQueue."""
        return self in (Phase.RESERVED, Phase.ADMITTED, Phase.EVICTING)


def status_of(wl: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status, never None."""
    return wl.get("status") or {}


def condition(wl: Mapping[str, Any], type: str) -> Mapping[str, Any]:
    """The condition of that type, or an empty mapping."""
    return find_condition(status_of(wl).get("conditions"), type)


def has_quota(wl: Mapping[str, Any]) -> bool:
    """Whether quota is reserved."""
    return is_true(wl, QUOTA_RESERVED)


def is_admitted(wl: Mapping[str, Any]) -> bool:
    """Whether the job may run; stays True until an eviction is complete."""
    return is_true(wl, ADMITTED)


def is_evicted(wl: Mapping[str, Any]) -> bool:
    """Whether the last reservation was evicted, or is being evicted."""
    return is_true(wl, EVICTED)


def is_finished(wl: Mapping[str, Any]) -> bool:
    """Whether the workload is over for good."""
    return is_true(wl, FINISHED)


def is_active(wl: Mapping[str, Any]) -> bool:
    """Whether `spec.active` is not False."""
    return wl.get("spec", {}).get("active") is not False


def is_deleted(wl: Mapping[str, Any]) -> bool:
    """Whether the workload is being deleted."""
    return bool(wl["metadata"].get("deletionTimestamp"))


def priority_class_of(wl: Mapping[str, Any]) -> str:
    """The name of the class that its priority came from, in either version; empty for none."""
    spec = wl["spec"]
    name = (spec.get("priorityClassRef") or {}).get("name") or spec.get("priorityClassName")
    return name or ""


def phase_of(wl: Mapping[str, Any]) -> Phase:
    """The phase of a workload."""
    conditions = status_of(wl).get("conditions") or ()
    true = {entry.get("type") for entry in conditions if entry.get("status") == "True"}
    if FINISHED in true:
        return Phase.FINISHED
    if QUOTA_RESERVED not in true:
        return Phase.PENDING
    if EVICTED in true:
        return Phase.EVICTING
    return Phase.ADMITTED if ADMITTED in true else Phase.RESERVED


def is_deactivation(reason: str) -> bool:
    """Whether an eviction for this reason was a deactivation, by a user or by a rule."""
    return reason == DEACTIVATED or reason.startswith(DUE_TO)


def is_held_back(wl: Mapping[str, Any]) -> bool:
    """Whether the workload waits outside its queue for missing pods."""
    requeued = condition(wl, REQUEUED)
    return requeued.get("status") == "False" and requeued.get("reason") == PODS_MISSING


def past_seconds(wl: Mapping[str, Any]) -> int:
    """How many seconds the workload was admitted before the present admission, if that is
    counted.
    """
    return int(status_of(wl).get(past_field(wl)) or 0)


def admitted_since(wl: Mapping[str, Any]) -> float:
    """Since when an admitted workload has been admitted, in seconds since the epoch."""
    return parse_time(condition(wl, ADMITTED)["lastTransitionTime"])


def past_field(wl: Mapping[str, Any]) -> str:
    """The field of `past_seconds`, which has another name in v1beta1."""
    return _PAST_SECONDS[wl.get("apiVersion", f"{KUEUE}/{V1BETA2}")]
