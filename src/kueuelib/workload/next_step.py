"""Decides the next step of one Workload, given its queues: the workload reconciler's policy.

Deactivation evicts from here, not from the job; a rejected
check deactivates; a check that said Retry goes back to Pending after the delay of its
AdmissionCheck. One call returns one step; the change made by that step triggers the next call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import attrs

from kueuelib.api.kueue import (
    AFTER_CHECK_PASSED_OR_ON_DEMAND,
    CHECK_REJECTED,
    CHECK_RETRY,
    HOLD_AND_DRAIN,
    NONE,
)
from kueuelib.api.meta import Obj, ObjectKey, annotations_of, key_of, labels_of, parse_time
from kueuelib.api.names import (
    EVICTED,
    FINISHED,
    IN_USE_FINALIZER,
    JOB_UID_LABEL,
    QUOTA_RESERVED,
    REASON_FAILED_TO_START,
    REASON_OWNER_NOT_FOUND,
    REASON_STOPPED,
    REASON_TERMINATING,
    REQUEUED,
    admission_gates,
)
from kueuelib.api.workload_state import passed_all
from kueuelib.machinery.recurrence import EventType
from kueuelib.scheduler.object_reasons import (
    ADMISSION_GATED,
    PENDING_EVALUATION,
    AdmissionGated,
    ClusterQueueInactive,
    ClusterQueueMissing,
    Inactive,
    LocalQueueFacts,
    LocalQueueStopped,
    local_queue_reason,
)
from kueuelib.scheduler.quota.queue_spec import UNKNOWN, Activity
from kueuelib.scheduler.reasons import (
    MakingRoom,
    NotEvaluated,
    QuotaWithdrawn,
    Reason,
    condition_reason,
    render,
)
from kueuelib.workload import life, states
from kueuelib.workload.checks import may_preempt, named_checks, required_checks, retry_pause
from kueuelib.workload.life import LifeSettings
from kueuelib.workload.phases import (
    CHECK_FAILED,
    DUE_TO,
    LOCAL_QUEUE_STOPPED,
    QUEUE_STOPPED,
    return_after,
)
from kueuelib.workload.states import Phase


@attrs.frozen
class WorkloadContext:
    """The input of a decision about a Workload, besides the Workload.

    Attributes:
        local_queue: the raw LocalQueue that `spec.queueName` names, if it exists.
        cluster_queue: the raw ClusterQueue that holds the workload's quota or, without quota, the
            one that its LocalQueue names, if it exists.
        activity: whether that ClusterQueue can admit, and why not.
        retry_delays: by AdmissionCheck, the seconds until a Retry is over.
        void: the scheduler's objection to a reservation that is not admitted yet, or None.
        life: the settings for times.
        has_job: whether the job that its label names is there although it does not own it; the job
            takes it back.
    """

    local_queue: LocalQueueFacts | None = None
    cluster_queue: Obj | None = None
    activity: Activity = UNKNOWN
    retry_delays: Mapping[str, float] = attrs.field(factory=dict)
    void: Reason | None = None
    life: LifeSettings = attrs.field(factory=LifeSettings)
    has_job: bool = False


@attrs.frozen
class Note:
    """An event to report about the Workload.

    Attributes:
        type: `Normal` or `Warning`.
        reason: one word in CamelCase.
        message: for people.
        on_owners: whether to report it on the job as well.
    """

    type: EventType
    reason: str
    message: str
    on_owners: bool = False


@attrs.frozen
class Step:
    """What to do, at most one write.

    Attributes:
        workload: the Workload whose status is to be written, or None.
        deactivate: whether to set `spec.active` to false.
        drop_finalizer: whether to remove the finalizer, so that the Workload can be deleted.
        delete: whether to delete the Workload.
        make_room: whether the victims of its reservation are to be evicted.
        look_again: the instant of the next call even if nothing happens, or None.
        notes: events to report, once the write has succeeded if there is one. A step without a
            write comes again with the next reconciliation, and its notes too.
    """

    workload: Obj | None = None
    deactivate: bool = False
    drop_finalizer: bool = False
    delete: bool = False
    make_room: bool = False
    look_again: float | None = None
    notes: tuple[Note, ...] = ()


NOTHING = Step()
TAKEN_BACK = 5.0
"""Seconds until the next look at a Workload that its job has to take back."""


def next_step(wl: Obj, around: WorkloadContext, now: float) -> Step:
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
        return _finished(wl, around.life, now)
    if lost_its_job(wl):
        if around.has_job:
            return Step(look_again=now + TAKEN_BACK)
        message = "The workload's owner no longer exists"
        return Step(workload=states.finish(wl, REASON_OWNER_NOT_FOUND, message, now))
    if not states.is_active(wl):
        return _deactivated(wl, phase, now)
    target = life.deactivation_target(wl)
    if target is not None:
        message = f"Deactivated Workload {_name(wl)}: {target['message']}"
        return Step(deactivate=True, notes=(Note("Warning", target["reason"], message),))
    if _was_reactivated(wl, phase):
        return Step(workload=states.requeue(wl, now))
    if around.cluster_queue is not None and phase is not Phase.EVICTING:
        required = _required(wl, around)
        named = named_checks(around.cluster_queue)
        synced = states.sync_checks(wl, required, now, named=named)
        if synced is not wl:
            return Step(workload=synced)
    rejected = states.checks_in(wl, CHECK_REJECTED)
    if rejected and phase is not Phase.EVICTING:
        message = f"Deactivated because {_rejections(wl)}"
        note = Note("Warning", "AdmissionCheckRejected", message, on_owners=True)
        return Step(deactivate=True, notes=(note,))
    if phase is Phase.PENDING:
        return _pending(wl, around, now)
    if phase is Phase.EVICTING:
        return NOTHING
    return _with_quota(wl, phase, around, now)


def lost_its_job(wl: Obj) -> str:
    """The UID of the job that it was made for and that no longer owns it; empty if there is none.

    The garbage collector removes the reference when the job is deleted without it.
    """
    job, owners = labels_of(wl).get(JOB_UID_LABEL, ""), wl["metadata"].get("ownerReferences") or ()
    return job if all(ref.get("uid") != job for ref in owners) else ""


def queue_reason(queue_name: str, around: WorkloadContext) -> Reason | None:
    """Why a pending Workload is kept out of its queue, or None."""
    facts = around.local_queue
    reason = local_queue_reason(queue_name, facts, known=around.cluster_queue is not None)
    if reason is None and facts is not None and not around.activity.active:
        return ClusterQueueInactive(facts.cluster_queue, around.activity.reason)
    return reason


def _required(wl: Obj, around: WorkloadContext) -> tuple[str, ...]:
    return required_checks(around.cluster_queue or {}, states.status_of(wl).get("admission"))


def _finished(wl: Obj, settings: LifeSettings, now: float) -> Step:
    never_ran = states.condition(wl, FINISHED)["reason"] == REASON_FAILED_TO_START
    if never_ran and wl["metadata"].get("ownerReferences"):
        return NOTHING  # without it the job that cannot start would be tried again
    if lost_its_job(wl) and IN_USE_FINALIZER in (wl["metadata"].get("finalizers") or ()):
        return Step(drop_finalizer=True, look_again=now)
    deadline = life.expires_at(wl, settings)
    if deadline is None or now < deadline:
        return Step(look_again=deadline)
    if wl["metadata"].get("finalizers"):
        return Step(drop_finalizer=True, look_again=now)
    message = f"Deleted Workload {_name(wl)}: it is finished, and its retention period is over"
    return Step(delete=True, notes=(Note("Normal", "Deleted", message),))


def _deactivated(wl: Obj, phase: Phase, now: float) -> Step:
    if phase is Phase.EVICTING:
        return NOTHING
    if phase.holds_quota:
        message, target = Inactive().text, life.deactivation_target(wl)
        reason = life.deactivation_reason(wl)
        if target is not None:
            message = f"{message} due to {target['message']}"
        elif states.checks_in(wl, CHECK_REJECTED):
            message = f"{message}: {_rejections(wl)}"
            reason = f"{DUE_TO}{CHECK_FAILED}"
        changed = states.evict(wl, reason, message, now)
        return Step(workload=states.without_target(changed), notes=(_eviction_note(changed),))
    wl, given = states.without_target(wl), wl
    answered = [one["name"] for one in states.check_states(wl) if states.is_answered(one)]
    changed = states.reset_checks(wl, answered, "Reset to Pending after deactivation", now)
    if states.condition(wl, QUOTA_RESERVED).get("reason") != Inactive.condition_reason:
        changed = _wait(changed, Inactive(), now)
    return NOTHING if changed is given else Step(workload=changed)


def _was_reactivated(wl: Obj, phase: Phase) -> bool:
    if phase is not Phase.PENDING:
        return False
    cause = states.condition(wl, REQUEUED)
    return cause.get("status") == "False" and states.is_deactivation(cause["reason"])


def _pending(wl: Obj, around: WorkloadContext, now: float) -> Step:
    over, look_again = _retries(wl, around.retry_delays, now)
    if over:
        return Step(workload=states.reset_checks(wl, over, "The delay after Retry is over", now))
    gates = admission_gates(annotations_of(wl))
    gated = _gated(wl, gates, now)
    if gates or gated is not NOTHING:
        return attrs.evolve(gated, look_again=look_again)
    queue_name = wl["spec"].get("queueName") or ""
    reason = queue_reason(queue_name, around)
    if reason is not None:
        changed = _wait(wl, reason, now)
        return Step(look_again=look_again) if changed is wl else Step(workload=changed)
    cause = states.condition(wl, REQUEUED)
    back = return_after(cause.get("reason", ""))
    if cause.get("status") == "False" and (back.at_once or back.with_queue):
        until = life.back_off_ends(wl)
        if until is None or until <= now:
            return Step(workload=states.requeue(wl, now))
        return Step(look_again=until if look_again is None else min(until, look_again))
    return Step(look_again=look_again)


def _gated(wl: Obj, gates: tuple[str, ...], now: float) -> Step:
    """Says that a Workload waits for others to remove its gates, or that they have (KEP-6915)."""
    is_reported = states.condition(wl, QUOTA_RESERVED).get("reason") == ADMISSION_GATED
    if gates:
        changed = _wait(wl, AdmissionGated(gates), now)
        message = f"Workload admission is gated by: {','.join(gates)}"
        notes = () if is_reported else (Note("Normal", ADMISSION_GATED, message),)
        return NOTHING if changed is wl else Step(workload=changed, notes=notes)
    if not is_reported:
        return NOTHING
    message = "AdmissionGatedBy cleared, waiting for quota reservation"
    changed = states.wait(wl, PENDING_EVALUATION, message, now)
    message = "Admission gate cleared, workload is now admissible"
    return Step(workload=changed, notes=(Note("Normal", "AdmissionGateCleared", message),))


def _with_quota(wl: Obj, phase: Phase, around: WorkloadContext, now: float) -> Step:
    retried = states.checks_in(wl, CHECK_RETRY)
    if retried:
        message = f"Checks have to be tried again: {_listed(wl, CHECK_RETRY)}"
        return _evict(wl, CHECK_FAILED, message, now)
    queue, local = around.cluster_queue, around.local_queue
    name = (states.status_of(wl).get("admission") or {}).get("clusterQueue", "")
    if phase is Phase.ADMITTED:
        if queue is not None and _stop_policy(queue) == HOLD_AND_DRAIN:
            message = ClusterQueueInactive(name, REASON_STOPPED).text
            return _evict(wl, QUEUE_STOPPED, message, now)
        if local is not None and local.stop_policy == HOLD_AND_DRAIN:
            message = LocalQueueStopped(local.name).text
            return _evict(wl, LOCAL_QUEUE_STOPPED, message, now)
        return _running(wl, around.life, now)
    lost: Reason | None = None
    if queue is None:
        lost = ClusterQueueMissing(name)
    elif queue["metadata"].get("deletionTimestamp"):
        lost = ClusterQueueInactive(name, REASON_TERMINATING)
    elif _stop_policy(queue):
        lost = ClusterQueueInactive(name, REASON_STOPPED)
    elif local is not None:
        lost = local.reason
    if lost is not None:
        changed = states.cancel(wl, condition_reason(lost), render(lost), now)
        return Step(workload=changed)
    match around.void:
        case None:
            pass
        case MakingRoom():
            return Step(make_room=True)
        case NotEvaluated():
            return NOTHING
        case QuotaWithdrawn(again=again) if not passed_all(wl, _required(wl, around)):
            return Step(look_again=again)  # it is judged when its checks have passed
        case void:
            message = render(void)
            changed = states.cancel(wl, condition_reason(void), message, now)
            return Step(workload=changed, notes=(Note("Warning", "ReservationVoid", message),))
    changed = states.sync_admitted(wl, now)
    if changed is wl:
        return NOTHING
    if not states.is_admitted(changed):  # its pods need places first
        return Step(workload=changed)
    reserved_at = states.condition(wl, QUOTA_RESERVED)["lastTransitionTime"]
    waited = max(0.0, now - parse_time(reserved_at))
    message = f"Admitted by ClusterQueue {name}, wait time since reservation was {waited:.0f}s"
    return Step(workload=changed, notes=(Note("Normal", "Admitted", message),))


def _running(wl: Obj, settings: LifeSettings, now: float) -> Step:
    """The step of an admitted Workload: its deadlines."""
    overdue = [life.execution_overdue(wl, now)]
    if settings.pods_ready is not None:
        overdue.append(life.pods_overdue(wl, settings.pods_ready, now))
    for due in overdue:
        if due.workload is not None:
            evicted = states.is_evicted(due.workload)
            notes = (_eviction_note(due.workload),) if evicted else ()
            return Step(workload=due.workload, notes=notes)
    deadlines = [due.at for due in overdue if due.at is not None]
    return Step(look_again=min(deadlines)) if deadlines else NOTHING


def _name(wl: Obj) -> str:
    meta = wl["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


def _evict(wl: Obj, reason: str, message: str, now: float) -> Step:
    changed = states.evict(wl, reason, message, now)
    return Step(workload=changed, notes=(_eviction_note(changed),))


def _rejections(wl: Obj) -> str:
    return f"checks were rejected: {_listed(wl, CHECK_REJECTED)}"


def _listed(wl: Obj, state: str) -> str:
    """The checks in a state, each with its message."""
    return ", ".join(
        f"{entry['name']} ({entry['message']})" if entry.get("message") else entry["name"]
        for entry in states.check_states(wl)
        if entry.get("state") == state
    )


def _eviction_note(wl: Obj) -> Note:
    condition = states.condition(wl, EVICTED)
    return Note("Normal", f"EvictedDueTo{condition['reason']}", condition["message"])


def _retries(
    wl: Obj, delays: Mapping[str, float], now: float
) -> tuple[Sequence[str], float | None]:
    """The checks whose delay after Retry is over, and the instant of the next one."""
    over, deadlines = [], []
    for entry in states.check_states(wl):
        if entry.get("state") != CHECK_RETRY or entry["name"] not in delays:
            continue
        pause = retry_pause(entry, delays[entry["name"]])
        deadline = parse_time(entry["lastTransitionTime"]) + pause
        if deadline <= now:
            over.append(entry["name"])
        else:
            deadlines.append(deadline)
    return over, min(deadlines, default=None)


def _wait(wl: Obj, reason: Reason, now: float) -> Obj:
    return states.wait(wl, condition_reason(reason), render(reason), now)


def _stop_policy(queue: Mapping[str, Any]) -> str:
    """`Hold`, `HoldAndDrain`, or nothing."""
    policy = (queue.get("spec") or {}).get("stopPolicy") or ""
    return "" if policy == NONE else policy


# ---- gathers the objects that a decision about a Workload depends on -----------------------------

DEFAULT_RETRY_MINUTES = 15


class Objects(Protocol):
    """Raw objects by name; None for one that does not exist.

    Implemented by `Informers` in `controllers/workload.py` and by the simulator in `lives.py`.
    """

    def local_queue(self, key: ObjectKey) -> Obj | None:
        """A LocalQueue."""
        ...

    def cluster_queue(self, name: str) -> Obj | None:
        """A ClusterQueue."""
        ...

    def check(self, name: str) -> Obj | None:
        """An AdmissionCheck."""
        ...


class Judgements(Protocol):
    """The knowledge of the decision engine: `Engine` has these methods."""

    def activity(self, name: str) -> Activity:
        """Whether a ClusterQueue can admit."""
        ...

    def void_reservation(self, key: ObjectKey, *, flavors_only: bool = False) -> Reason | None:
        """Why a reservation may not become an admission; None if it still may."""
        ...


def workload_context(
    wl: Obj, objects: Objects, judgements: Judgements, life: LifeSettings
) -> WorkloadContext:
    """The queues and checks of a Workload; those of a finished one do not matter.

    Args:
        wl: the raw Workload.
        objects: finds the objects around it.
        judgements: the engine's knowledge about them.
        life: the settings for times.
    """
    if states.is_finished(wl):
        return WorkloadContext(life=life)
    queue_key = ObjectKey(key_of(wl).namespace, wl["spec"].get("queueName") or "")
    raw_queue = objects.local_queue(queue_key)
    local_queue = None if raw_queue is None else LocalQueueFacts.of_raw(raw_queue)
    admission = states.status_of(wl).get("admission") or {}
    name = admission.get("clusterQueue")
    if not name and local_queue is not None:
        name = local_queue.cluster_queue
    if not name:
        return WorkloadContext(local_queue, life=life)
    cluster_queue = objects.cluster_queue(name)
    return WorkloadContext(
        local_queue,
        cluster_queue,
        judgements.activity(name),
        {check: _retry_delay(objects.check(check)) for check in states.checks_in(wl, CHECK_RETRY)},
        _void(wl, cluster_queue, objects, judgements),
        life,
    )


def _void(
    wl: Obj, cluster_queue: Obj | None, objects: Objects, judgements: Judgements
) -> Reason | None:
    if states.phase_of(wl) is not Phase.RESERVED:
        return None
    # A check counts from the reservation on, also before it is listed in the status.
    required = required_checks(cluster_queue or {}, states.status_of(wl).get("admission"))
    early = not may_preempt(wl, required, _late(required, objects))
    return judgements.void_reservation(key_of(wl), flavors_only=early)


def _late(required: Collection[str], objects: Objects) -> frozenset[str]:
    """Those of the checks that must pass or ask before preemption. One that is gone can do neither,
    so no Workload is preempted for it.
    """
    checks = {name: objects.check(name) for name in required}
    return frozenset(
        name
        for name, check in checks.items()
        if check is None
        or (check.get("spec") or {}).get("preemptionPolicy") == AFTER_CHECK_PASSED_OR_ON_DEMAND
    )


def _retry_delay(check: Obj | None) -> float:
    minutes = ((check or {}).get("spec") or {}).get("retryDelayMinutes")
    return 60.0 * (DEFAULT_RETRY_MINUTES if minutes is None else minutes)
