"""Laws at rest about waiting Workloads, and about those that should wait."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.laws.reading import (
    WORKLOADS,
    active,
    admitted,
    condition,
    denied,
    holds,
    queue_of,
    reserving,
    spec,
    status,
)
from kueuelib.testing.storm.laws.still import Finding, Rest, title

_NOTHING_TO_WAIT_FOR = ("Preempted", "AdmissionCheck", "Deactivated")
"""Reasons of evictions after which an active Workload has only quota to wait for."""


def waiting_says_why(rest: Rest) -> Iterator[Finding]:
    """Every Workload that waits for quota has a reason."""
    for workload in rest.pending():
        reservation = condition(workload, "QuotaReserved")
        if denied(workload, "Requeued") and condition(workload, "Requeued").get("message"):
            continue  # it is kept out of its queue, for example because pods of its group are gone
        if not denied(workload, "QuotaReserved"):
            yield title(WORKLOADS, workload), "it waits, but has no condition QuotaReserved=False"
        elif not reservation.get("reason") or not reservation.get("message"):
            yield title(WORKLOADS, workload), "it waits, but QuotaReserved=False gives no reason"


def no_unfinished_eviction(rest: Rest) -> Iterator[Finding]:
    """An eviction or a deactivation ends with quota released, and with a place in the queue."""
    for workload in rest.workloads:
        if not reserving(workload):
            continue
        if holds(workload, "Evicted"):
            reason = condition(workload, "Evicted").get("reason")
            yield title(WORKLOADS, workload), f"it was evicted ({reason}), but holds its quota"
        elif not active(workload):
            yield title(WORKLOADS, workload), "it is not active, but holds its quota"
    for workload in rest.pending():
        reason = str(condition(workload, "Requeued").get("reason"))
        if denied(workload, "Requeued") and reason.startswith(_NOTHING_TO_WAIT_FOR):
            yield title(WORKLOADS, workload), f"it is active, but not queued again ({reason})"


def no_reservation_in_vain(rest: Rest) -> Iterator[Finding]:
    """A Workload with quota is admitted when its checks are Ready, and loses it if one fails."""
    for workload in rest.workloads:
        if not reserving(workload) or not active(workload):
            continue
        states = [entry.get("state") for entry in status(workload).get("admissionChecks") or ()]
        if any(state in ("Retry", "Rejected") for state in states):
            yield title(WORKLOADS, workload), "a check of it failed, but it holds its quota"
        elif not admitted(workload) and all(state == "Ready" for state in states):
            yield title(WORKLOADS, workload), "it holds quota and all checks are Ready: admit it"


def stopped_queues(rest: Rest) -> Iterator[Finding]:
    """A stopped queue keeps only admitted Workloads, a drained one none."""
    for workload in rest.workloads:
        if not reserving(workload):
            continue
        for queue in (rest.queues.get(queue_of(workload)), rest.local_queue(workload)):
            policy = _policy(queue)
            if policy == "HoldAndDrain" or (policy == "Hold" and not admitted(workload)):
                text = f"it holds quota, but its queue has the stop policy {policy}"
                yield title(WORKLOADS, workload), text
                break


def _policy(queue: Obj | None) -> str:
    return str(spec(queue or {}).get("stopPolicy") or "None")
