"""How often a Workload was evicted, by reason: `status.schedulingStats.evictions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.api.names import EVICTED, PODS_READY
from kueuelib.workload.editing import with_status
from kueuelib.workload.evictions import (
    DEACTIVATED,
    DUE_TO,
    PODS_READY_TIMEOUT,
    WAIT_FOR_RECOVERY,
    WAIT_FOR_START,
)
from kueuelib.workload.phases import condition, status_of


def eviction_cause(wl: Mapping[str, Any]) -> tuple[str, str]:
    """Why a Workload is evicted: the reason, and its underlying cause if there is one."""
    reason = condition(wl, EVICTED)["reason"]
    if reason.startswith(DUE_TO):
        return DEACTIVATED, reason.removeprefix(DUE_TO)
    if reason == PODS_READY_TIMEOUT:
        ready = condition(wl, PODS_READY).get("reason")
        return reason, WAIT_FOR_RECOVERY if ready == WAIT_FOR_RECOVERY else WAIT_FOR_START
    return reason, ""


def evictions_of(wl: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """How often a Workload was evicted, by reason and underlying cause."""
    rows = (status_of(wl).get("schedulingStats") or {}).get("evictions") or ()
    return {(row["reason"], row["underlyingCause"]): row["count"] for row in rows}


def is_first_eviction(wl: Mapping[str, Any]) -> bool:
    """Whether an evicted Workload has not been evicted for this cause before."""
    return evictions_of(wl).get(eviction_cause(wl)) == 1


def count_eviction(wl: Obj) -> Obj:
    """The Workload with its present eviction counted."""
    counts = evictions_of(wl)
    cause = eviction_cause(wl)
    counts[cause] = counts.get(cause, 0) + 1
    rows = [
        {"reason": reason, "underlyingCause": behind, "count": count}
        for (reason, behind), count in counts.items()
    ]
    return with_status(wl, schedulingStats={"evictions": rows})
