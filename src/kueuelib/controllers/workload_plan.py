"""What has to happen to one Workload now, given its queues: the workload reconciler's policy.

spec/jobs 5.1 with its recommendations: deactivation evicts from here, not from the job; a rejected
check deactivates; a check that said Retry goes back to Pending after the delay of its
AdmissionCheck. One call gives one step; the change that the step makes is what leads to the next
call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj, parse_time
from kueuelib.controllers import workload_state as states
from kueuelib.controllers.workload_state import Phase

HOLD = "Hold"
HOLD_AND_DRAIN = "HoldAndDrain"
QUEUE_STOPPED_LOCALLY = "LocalQueueStopped"
PENDING_EVALUATION = "PendingEvaluation"
DEACTIVATED_MESSAGE = "The workload is deactivated"


@attrs.frozen
class Surroundings:
    """What a decision about a Workload depends on besides the Workload.

    Attributes:
        local_queue: the raw LocalQueue that `spec.queueName` names, if it exists.
        cluster_queue: the raw ClusterQueue that holds the workload's quota or, without quota, that
            its LocalQueue
            names, if it exists.
        queue_active: whether that ClusterQueue can admit.
        retry_delays: by AdmissionCheck, after how many seconds a Retry is over.
    """

    local_queue: Obj | None = None
    cluster_queue: Obj | None = None
    queue_active: bool = False
    retry_delays: Mapping[str, float] = attrs.field(factory=dict)


@attrs.frozen
class Note:
    """An event to report about the Workload."""

    type: str
    reason: str
    message: str


@attrs.frozen
class Step:
    """What to do, at most one write.

    Attributes:
        workload: the Workload whose status is to be written, or None.
        deactivate: whether to set `spec.active` to false.
        drop_finalizer: whether to let the Workload be deleted.
        look_again: the instant at which to ask again although nothing happens, or None.
        notes: events to report once the write has succeeded.
    """

    workload: Obj | None = None
    deactivate: bool = False
    drop_finalizer: bool = False
    look_again: float | None = None
    notes: tuple[Note, ...] = ()


NOTHING = Step()


def next_step(wl: Obj, around: Surroundings, now: float) -> Step:
    """The next step of a Workload.

    Args:
        wl: the raw Workload.
        around: its queues and checks.
        now: seconds since the epoch.
    """
    if states.is_deleted(wl):
        orphan = not wl["metadata"].get("ownerReferences")
        return Step(drop_finalizer=bool(orphan and wl["metadata"].get("finalizers")))
    phase = states.phase_of(wl)
    if phase is Phase.FINISHED:
        return NOTHING
    if not states.is_active(wl):
        return _deactivated(wl, phase, now)
    if _was_reactivated(wl, phase):
        return Step(workload=states.requeue(wl, now))
    if around.cluster_queue is not None and phase is not Phase.EVICTING:
        required = required_checks(around.cluster_queue, states.status_of(wl).get("admission"))
        synced = states.sync_checks(wl, required, now)
        if synced is not wl:
            return Step(workload=synced)
    rejected = states.checks_in(wl, states.CHECK_REJECTED)
    if rejected and phase is not Phase.EVICTING:
        message = f"Deactivated because checks were rejected: {', '.join(rejected)}"
        note = Note("Warning", "AdmissionCheckRejected", message)
        return Step(deactivate=True, notes=(note,))
    if phase is Phase.PENDING:
        return _pending(wl, around, now)
    if phase is Phase.EVICTING:
        return NOTHING
    return _with_quota(wl, phase, around, now)


def required_checks(
    cluster_queue: Mapping[str, Any], admission: Mapping[str, Any] | None
) -> tuple[str, ...]:
    """The names of the checks that a workload of this ClusterQueue has to pass, in its order.

    Args:
        cluster_queue: the raw ClusterQueue, in either version.
        admission: the raw `status.admission`. A check that is for some flavors only counts when one
            of them is
            assigned; without an admission only the checks that are for all flavors count.
    """
    spec = cluster_queue.get("spec") or {}
    strategy = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    assigned = {
        flavor
        for pod_set in (admission or {}).get("podSetAssignments") or ()
        for flavor in (pod_set.get("flavors") or {}).values()
    }
    found = [
        rule["name"]
        for rule in strategy
        if not rule.get("onFlavors") or assigned & {*rule["onFlavors"]}
    ]
    if not strategy:
        found = list(spec.get("admissionChecks") or ())
    return tuple(dict.fromkeys(found))


def obstacle(queue_name: str, around: Surroundings) -> tuple[str, str] | None:
    """Reason and message for what keeps a pending Workload out of its queue, or None."""
    if around.local_queue is None:
        return states.MISCONFIGURED, f"LocalQueue {queue_name} doesn't exist"
    name = around.local_queue["spec"].get("clusterQueue", "")
    if _stop_policy(around.local_queue):
        return states.SUSPENDED, f"LocalQueue {queue_name} is stopped"
    if around.cluster_queue is None:
        return states.MISCONFIGURED, f"ClusterQueue {name} doesn't exist"
    if _stop_policy(around.cluster_queue):
        return states.SUSPENDED, f"ClusterQueue {name} is stopped"
    if around.cluster_queue["metadata"].get("deletionTimestamp"):
        return states.MISCONFIGURED, f"ClusterQueue {name} is being deleted"
    if not around.queue_active:
        return states.MISCONFIGURED, f"ClusterQueue {name} is inactive"
    return None


def _deactivated(wl: Obj, phase: Phase, now: float) -> Step:
    if phase is Phase.EVICTING:
        return NOTHING
    if phase.holds_quota:
        changed = states.evict(wl, states.DEACTIVATED, DEACTIVATED_MESSAGE, now)
        return Step(workload=changed, notes=(_eviction_note(changed),))
    answered = states.checks_in(wl, states.CHECK_READY, states.CHECK_RETRY, states.CHECK_REJECTED)
    changed = states.reset_checks(wl, answered, "Reset to Pending after deactivation", now)
    if not states.is_evicted(wl):
        changed = states.wait(changed, states.DEACTIVATED, DEACTIVATED_MESSAGE, now)
    return NOTHING if changed is wl else Step(workload=changed)


def _was_reactivated(wl: Obj, phase: Phase) -> bool:
    if phase is not Phase.PENDING:
        return False
    cause = states.condition(wl, states.REQUEUED)
    return cause.get("status") == "False" and cause["reason"] == states.DEACTIVATED


def _pending(wl: Obj, around: Surroundings, now: float) -> Step:
    queue_name = wl["spec"].get("queueName") or ""
    found = obstacle(queue_name, around)
    if found is not None:
        changed = states.wait(wl, *found, now)
        return NOTHING if changed is wl else Step(workload=changed)
    cause = states.condition(wl, states.REQUEUED)
    if cause.get("status") == "False" and cause["reason"] in (
        states.QUEUE_STOPPED,
        QUEUE_STOPPED_LOCALLY,
    ):
        return Step(workload=states.requeue(wl, now))
    over, look_again = _retries(wl, around.retry_delays, now)
    if over:
        return Step(workload=states.reset_checks(wl, over, "The delay after Retry is over", now))
    if _is_stale(wl, queue_name, around):
        message = "The workload waits to be considered"
        return Step(
            workload=states.wait(wl, PENDING_EVALUATION, message, now), look_again=look_again
        )
    return Step(look_again=look_again) if look_again is not None else NOTHING


def _with_quota(wl: Obj, phase: Phase, around: Surroundings, now: float) -> Step:
    retried = states.checks_in(wl, states.CHECK_RETRY)
    if retried:
        message = f"Checks have to be tried again: {', '.join(retried)}"
        return _evict(wl, states.CHECK_FAILED, message, now)
    queue = around.cluster_queue
    name = (states.status_of(wl).get("admission") or {}).get("clusterQueue", "")
    if phase is Phase.ADMITTED:
        if queue is not None and _stop_policy(queue) == HOLD_AND_DRAIN:
            return _evict(wl, states.QUEUE_STOPPED, f"ClusterQueue {name} is stopped", now)
        if around.local_queue and _stop_policy(around.local_queue) == HOLD_AND_DRAIN:
            local = around.local_queue["metadata"]["name"]
            return _evict(wl, QUEUE_STOPPED_LOCALLY, f"LocalQueue {local} is stopped", now)
        return NOTHING
    if queue is None or queue["metadata"].get("deletionTimestamp"):
        message = f"ClusterQueue {name} is being deleted or missing"
        return Step(workload=states.cancel(wl, states.MISCONFIGURED, message, now))
    if _stop_policy(queue):
        message = f"ClusterQueue {name} is stopped"
        return Step(workload=states.cancel(wl, states.SUSPENDED, message, now))
    if around.local_queue and _stop_policy(around.local_queue):
        message = f"LocalQueue {around.local_queue['metadata']['name']} is stopped"
        return Step(workload=states.cancel(wl, states.SUSPENDED, message, now))
    changed = states.sync_admitted(wl, now)
    if changed is wl:
        return NOTHING
    reserved_at = states.condition(wl, states.QUOTA_RESERVED)["lastTransitionTime"]
    waited = max(0.0, now - parse_time(reserved_at))
    message = f"Admitted by ClusterQueue {name}, wait time since reservation was {waited:.0f}s"
    return Step(workload=changed, notes=(Note("Normal", "Admitted", message),))


def _evict(wl: Obj, reason: str, message: str, now: float) -> Step:
    changed = states.evict(wl, reason, message, now)
    return Step(workload=changed, notes=(_eviction_note(changed),))


def _eviction_note(wl: Obj) -> Note:
    found = states.condition(wl, states.EVICTED)
    return Note("Normal", f"EvictedDueTo{found['reason']}", found["message"])


def _retries(
    wl: Obj, delays: Mapping[str, float], now: float
) -> tuple[Sequence[str], float | None]:
    """The checks whose delay after Retry is over, and the instant at which the next one is."""
    over, deadlines = [], []
    for entry in states.check_states(wl):
        if entry.get("state") != states.CHECK_RETRY or entry["name"] not in delays:
            continue
        deadline = parse_time(entry["lastTransitionTime"]) + delays[entry["name"]]
        if deadline <= now:
            over.append(entry["name"])
        else:
            deadlines.append(deadline)
    return over, min(deadlines, default=None)


def _is_stale(wl: Obj, queue_name: str, around: Surroundings) -> bool:
    """Whether QuotaReserved still names an obstacle that is gone.

    Only texts of this module count: what the scheduler found out stays until it looks again.
    """
    found = states.condition(wl, states.QUOTA_RESERVED)
    if found.get("status") != "False":
        return False
    assert around.local_queue is not None
    name = around.local_queue["spec"].get("clusterQueue", "")
    ours = {DEACTIVATED_MESSAGE, f"LocalQueue {queue_name} doesn't exist"}
    ours.add(f"LocalQueue {queue_name} is stopped")
    ours |= {
        f"ClusterQueue {name} {what}"
        for what in (
            "doesn't exist",
            "is stopped",
            "is being deleted",
            "is being deleted or missing",
            "is inactive",
        )
    }
    return found.get("message") in ours


def _stop_policy(queue: Mapping[str, Any]) -> str:
    """`Hold`, `HoldAndDrain`, or nothing."""
    policy = (queue.get("spec") or {}).get("stopPolicy") or ""
    return "" if policy == "None" else policy
