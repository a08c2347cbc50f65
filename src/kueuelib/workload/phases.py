"""The phase of a Workload, read from its raw object; why it was evicted; small changes of it.

The steps between the phases are in `kueuelib.workload.states`. All instants are seconds since
the epoch.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

import attrs

from kueuelib.api import names
from kueuelib.api.kinds import KUEUE, V1BETA1, V1BETA2
from kueuelib.api.meta import (
    Obj,
    find_condition,
    parse_time,
    truncate_message,
    with_raw_condition,
)
from kueuelib.api.names import ADMITTED, EVICTED, FINISHED, PODS_READY, QUOTA_RESERVED, REQUEUED

# ---- the reasons of evictions, and when a Workload returns to its queue after each ---------------
# A new reason needs a line of this table, and the step that evicts, in `next_step` or `life`.

PREEMPTED: Final = names.REASON_PREEMPTED
NODE_FAILURES: Final = names.REASON_NODE_FAILURES
CHECK_FAILED: Final = names.REASON_ADMISSION_CHECK
QUEUE_STOPPED: Final = names.REASON_CLUSTER_QUEUE_STOPPED
LOCAL_QUEUE_STOPPED: Final = "LocalQueueStopped"
PODS_READY_TIMEOUT: Final = names.REASON_PODS_READY_TIMEOUT
PODS_MISSING: Final = names.REASON_PODS_MISSING
DEACTIVATED: Final = names.REASON_DEACTIVATED
DUE_TO: Final = f"{DEACTIVATED}DueTo"
"""Followed by the cause, if the manager deactivated the Workload."""

UNHEALTHY_NODES: Final = "unhealthyNodes"
REACTIVATED: Final = "Reactivated"
WAIT_FOR_START: Final = "WaitForStart"
"""The reason of PodsReady=False until all pods are ready; the cause of an eviction for it."""
WAIT_FOR_RECOVERY: Final = "WaitForRecovery"
"""The same for pods that were ready and no longer are."""


@attrs.frozen
class Return:
    """How an evicted Workload returns to its queue.

    Attributes:
        reason: of the condition Requeued after its return; empty: the reason of the eviction.
        at_once: it returns when its job has stopped.
        with_queue: it returns when its queues admit again and its back-off is over.
    """

    reason: str = ""
    at_once: bool = False
    with_queue: bool = False


_RETURNS: Final[Mapping[str, Return]] = {
    PREEMPTED: Return(at_once=True),
    NODE_FAILURES: Return(at_once=True),
    CHECK_FAILED: Return(at_once=True),
    QUEUE_STOPPED: Return("ClusterQueueRestarted", with_queue=True),
    LOCAL_QUEUE_STOPPED: Return("LocalQueueRestarted", with_queue=True),
    PODS_READY_TIMEOUT: Return("BackoffFinished", with_queue=True),
    PODS_MISSING: Return("PodsReplaced"),
    DEACTIVATED: Return(REACTIVATED),
}


def return_after(eviction: str) -> Return:
    """How a Workload returns after an eviction with this reason."""
    return _RETURNS.get(eviction, Return())


# --------------------------------------------------------------------------------------------------

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


def unhealthy_nodes(wl: Mapping[str, Any]) -> list[str]:
    """The host names of the nodes whose pods need another place (KEP-2724)."""
    return [one["name"] for one in status_of(wl).get(UNHEALTHY_NODES) or ()]


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
    """How many seconds the workload was admitted before, since its creation or reactivation."""
    return int(status_of(wl).get(past_field(wl)) or 0)


def admitted_since(wl: Mapping[str, Any]) -> float:
    """Since when an admitted workload has been admitted, in seconds since the epoch."""
    return parse_time(condition(wl, ADMITTED)["lastTransitionTime"])


def past_field(wl: Mapping[str, Any]) -> str:
    """The field of `past_seconds`, which has another name in v1beta1."""
    return _PAST_SECONDS[wl.get("apiVersion", f"{KUEUE}/{V1BETA2}")]


# ---- small changes of a raw status; no function changes its argument -----------------------------


def set_condition(
    wl: Obj,
    type: str,
    status: str,
    reason: str,
    message: str,
    now: float,
    *,
    renew: bool = False,
) -> Obj:
    """The workload with a condition; its transition time moves only with its status.

    Args:
        wl: the workload; it is not changed, and returned if the condition is the same.
        type: of the condition.
        status: True or False, as a text.
        reason: of the condition.
        message: of the condition; a long one is cut.
        now: seconds since the epoch.
        renew: whether to rewrite a condition of an older generation.
    """
    old = condition(wl, type)
    generation = wl["metadata"].get("generation")
    current = not renew or old.get("observedGeneration") in (None, generation)
    same = (old.get("status"), old.get("reason")) == (status, reason)
    if same and current and old.get("message", "") == truncate_message(message):
        return wl
    changed = with_raw_condition(
        status_of(wl).get("conditions") or (),
        type,
        status == "True",
        reason,
        message,
        now=now,
        generation=generation,
    )
    return with_status(wl, conditions=changed)


def with_status(wl: Obj, **fields: Any) -> Obj:
    """The workload with other values in fields of its status."""
    status = {**status_of(wl), **fields}
    return {**wl, "status": status}


def without_status(wl: Obj, field: str) -> Obj:
    """The workload without a field of its status."""
    status = {name: value for name, value in status_of(wl).items() if name != field}
    return {**wl, "status": status}


# ---- how often a Workload was evicted, by reason: `status.schedulingStats.evictions` -------------


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
