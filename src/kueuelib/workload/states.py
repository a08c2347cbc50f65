"""All rules of a Workload's state under one name: `from kueuelib.workload import states`.

`phases` reads the phase, `checks` handles admission checks, and the steps between phases are here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import attrs

from kueuelib.api import names
from kueuelib.api.kueue import CHECK_PENDING, CHECK_REJECTED, CHECK_RETRY
from kueuelib.api.meta import Obj, annotations_of, format_time
from kueuelib.api.names import (
    ADMISSION_MANAGER,
    ADMITTED,
    DEACTIVATION_TARGET,
    EVICTED,
    FINISHED,
    PREEMPTED,
    QUOTA_RESERVED,
    REQUEUED,
)
from kueuelib.api.workload_state import (
    has_quota,
    is_admitted,
    is_evicted,
    is_finished,
    passed_all,
    waits_for_places,
)
from kueuelib.errors import KueuelibError
from kueuelib.workload.checks import (
    check_states,
    checks_in,
    is_answered,
    may_preempt,
    named_checks,
    required_checks,
    reset_checks,
    sync_checks,
    unanswered,
)
from kueuelib.workload.phases import (
    PODS_MISSING,
    REACTIVATED,
    UNHEALTHY_NODES,
    Phase,
    admitted_since,
    condition,
    count_eviction,
    eviction_cause,
    evictions_of,
    is_active,
    is_deactivation,
    is_deleted,
    is_first_eviction,
    is_held_back,
    past_field,
    past_seconds,
    phase_of,
    priority_class_of,
    return_after,
    set_condition,
    status_of,
    unhealthy_nodes,
    with_status,
    without_status,
)

__all__ = [
    "IllegalTransition",
    "Phase",
    "admitted_since",
    "back_off",
    "cancel",
    "change_pods",
    "check_states",
    "checks_in",
    "condition",
    "evict",
    "eviction_cause",
    "evictions_of",
    "finish",
    "has_quota",
    "hold_back",
    "is_active",
    "is_admitted",
    "is_answered",
    "is_deactivation",
    "is_deleted",
    "is_evicted",
    "is_finished",
    "is_first_eviction",
    "is_held_back",
    "mark_unhealthy",
    "may_preempt",
    "named_checks",
    "passed_all",
    "past_seconds",
    "phase_of",
    "place",
    "preempt",
    "priority_class_of",
    "release",
    "requeue",
    "required_checks",
    "reserve",
    "reset_checks",
    "status_of",
    "sync_admitted",
    "sync_checks",
    "target_deactivation",
    "unanswered",
    "unhealthy_nodes",
    "violations",
    "wait",
    "without_target",
]


# ---- the life of a Workload as a state machine over raw objects ----------------------------------
# ```
#             reserve                 sync_admitted
#  PENDING ------------> RESERVED ---------------------> ADMITTED
#     ^                     |  \                         |  |
#     |      cancel         |   \ evict                  |  | evict
#     +---------------------+----\-----------------------+  |
#     |                           +------> EVICTING <-------+
#     +------------------------------------+
#                    release                        (finish: from every phase to FINISHED)
# ```
#
# *Quota is held* in RESERVED, ADMITTED and EVICTING. Every function takes a Workload as the API
# server sent it, and returns the changed Workload without changing its argument (the same object if
# nothing changes). An impossible step raises `IllegalTransition`: the object has changed meanwhile,
# and the caller must read it again. `kueuelib.workload.states` computes the requests to the API
# server. All instants are seconds since the epoch.

_P, _R, _A, _E, _F = Phase  # the only place where they are not spelled out
_SAME = {phase: frozenset({phase}) for phase in Phase}
_HELD = {_R: frozenset({_E}), _A: frozenset({_E}), _E: frozenset({_E})}
STEPS: Mapping[str, Mapping[Phase, frozenset[Phase]]] = {
    "reserve": {_P: frozenset({_R, _A})},
    "sync_admitted": {**_SAME, _R: frozenset({_R, _A}), _A: frozenset({_A, _R})},
    "mark_unhealthy": {_R: frozenset({_R}), _A: frozenset({_A})},
    "evict": _HELD,
    "preempt": _HELD,
    "place": {_R: frozenset({_R, _A}), _A: frozenset({_A})},
    "release": {_E: frozenset({_P})},
    "cancel": {_R: frozenset({_P}), _A: frozenset({_P})},
    "wait": {_P: frozenset({_P})},
    "change_pods": {_P: frozenset({_P})},
    "hold_back": {_P: frozenset({_P})},
    "requeue": _SAME,
    "finish": {phase: frozenset({_F}) for phase in Phase},
}
"""The next phases, by step and phase; a missing phase raises `IllegalTransition`."""


QUOTA_LOST = "Reset to Pending after quota was lost"
"""The message of checks after that."""
PODS_CHANGED = "Reset to Pending after the pods were changed"
"""The message of checks that had answered before."""


class IllegalTransition(KueuelibError):
    """A step that a Workload in this phase cannot take."""

    def __init__(self, wl: Mapping[str, Any], step: str, problem: str) -> None:
        meta = wl.get("metadata", {})
        name = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
        super().__init__(f"workload {name}: cannot {step}: {problem}")
        self.step = step
        self.problem = problem


def reserve(
    wl: Obj, admission: Mapping[str, Any], required_checks: Iterable[str], now: float
) -> Obj:
    """Reserve quota; Admitted in the same step if every required check is Ready.

    A check that is Pending has to ask for preemption again: a request is about one reservation.

    Args:
        wl: a pending workload.
        admission: the raw `status.admission`.
        required_checks: the names of the checks of the ClusterQueue that the assigned flavors need.
        now: the transition time.

    Raises:
        IllegalTransition: the workload is not pending, not active, being deleted, or gated, its
            pods are missing, or one of its checks is Retry or Rejected.
    """
    _check(wl, "reserve", "reserve quota")
    if not is_active(wl):
        raise IllegalTransition(wl, "reserve quota", "it is not active")
    if is_deleted(wl):
        raise IllegalTransition(wl, "reserve quota", "it is being deleted")
    if names.admission_gates(annotations_of(wl)):
        raise IllegalTransition(wl, "reserve quota", "it is gated")
    if is_held_back(wl):
        raise IllegalTransition(wl, "reserve quota", "its pods are missing")
    failed = checks_in(wl, CHECK_RETRY, CHECK_REJECTED)
    if failed:
        raise IllegalTransition(wl, "reserve quota", f"checks failed: {', '.join(failed)}")
    stale = [
        entry["name"]
        for entry in check_states(wl)
        if entry.get("state") == CHECK_PENDING and is_answered(entry)
    ]
    changed = reset_checks(requeue(wl, now), stale, QUOTA_LOST, now)
    if "resourceRequests" in status_of(changed):
        changed = without_status(changed, "resourceRequests")
    changed = with_status(changed, admission=dict(admission))
    name = admission.get("clusterQueue", "")
    message = f"Quota reserved in ClusterQueue {name}"
    changed = set_condition(changed, QUOTA_RESERVED, "True", QUOTA_RESERVED, message, now)
    for name in (EVICTED, PREEMPTED):
        old = condition(changed, name)
        if old.get("status") == "True":
            changed = set_condition(
                changed, name, "False", old["reason"], old.get("message", ""), now
            )
    if passed_all(changed, tuple(required_checks)):
        changed = sync_admitted(changed, now)
    return changed


def sync_admitted(wl: Obj, now: float) -> Obj:
    """Brings Admitted in line with quota, checks and places for pods, in both directions.

    Callers do not change an admitted workload until its eviction is complete. An absent condition
    that would be False stays absent, unless only places are missing.
    """
    reserved, ready, placed = has_quota(wl), passed_all(wl, ()), not waits_for_places(wl)
    if is_finished(wl):
        return wl
    if reserved and ready and not placed:
        message = "There are pending delayed topology requests"
        return set_condition(wl, ADMITTED, "False", names.REASON_PLACES_PENDING, message, now)
    if (reserved and ready) == is_admitted(wl):
        return wl
    if reserved and ready:
        return set_condition(wl, ADMITTED, "True", ADMITTED, "The workload is admitted", now)
    if ready:
        return set_condition(
            wl,
            ADMITTED,
            "False",
            names.REASON_NO_RESERVATION,
            "The workload has no reservation",
            now,
        )
    if reserved:
        message = "The workload has not all checks ready"
        return set_condition(wl, ADMITTED, "False", names.REASON_UNSATISFIED_CHECKS, message, now)
    message = "The workload has no reservation and not all checks ready"
    return set_condition(wl, ADMITTED, "False", names.REASON_NO_RESERVATION_NO_CHECKS, message, now)


def place(wl: Obj, admission: Mapping[str, Any], replaced: Collection[str], now: float) -> Obj:
    """Gives the pods of a workload with quota other places (KEP-2724).

    It becomes Admitted if it only waited for these.

    Args:
        wl: the workload.
        admission: the raw `status.admission` with the new places.
        replaced: the unhealthy nodes that it takes into account.
        now: the transition time.

    Raises:
        IllegalTransition: the workload holds no quota, is being evicted, or finished, or a node
            that was to be replaced has returned.
    """
    _check(wl, "place", "give places")
    if not {*replaced} <= {*unhealthy_nodes(wl)}:
        raise IllegalTransition(wl, "give places", "its node has returned")
    left = [name for name in unhealthy_nodes(wl) if name not in replaced]
    changed = with_status(mark_unhealthy(wl, left), admission=dict(admission))
    return changed if is_admitted(wl) else sync_admitted(changed, now)


def evict(wl: Obj, reason: str, message: str, now: float) -> Obj:
    """The first half of an eviction: the job has to stop, quota is held until `release`.

    A workload that is already being evicted keeps its first reason. The status counts evictions
    by reason, and no longer lists nodes to replace.

    Raises:
        IllegalTransition: the workload holds no quota or is finished.
    """
    if _check(wl, "evict", "evict") is Phase.EVICTING:
        return wl
    changed = without_status(wl, UNHEALTHY_NODES)
    return count_eviction(set_condition(changed, EVICTED, "True", reason, message, now))


def mark_unhealthy(wl: Obj, hosts: Sequence[str]) -> Obj:
    """Names the nodes whose pods need another place (KEP-2724); the same object if it does already.

    Args:
        wl: the workload.
        hosts: their host names, as the assignment has them; none if all are healthy.

    Raises:
        IllegalTransition: the workload holds no quota, is being evicted, or finished.
    """
    _check(wl, "mark_unhealthy", "replace nodes")
    if [*hosts] == unhealthy_nodes(wl):
        return wl
    if not hosts:
        return without_status(wl, UNHEALTHY_NODES)
    return with_status(wl, **{UNHEALTHY_NODES: [{"name": host} for host in hosts]})


def back_off(wl: Obj, count: int, until: float) -> Obj:
    """Records how often the pods were not ready in time, and until when the workload backs off."""
    return with_status(wl, requeueState={"count": count, "requeueAt": format_time(until)})


def target_deactivation(wl: Obj, reason: str, message: str, now: float) -> Obj:
    """Announces that we are about to deactivate the workload, and why."""
    return set_condition(wl, DEACTIVATION_TARGET, "True", reason, message, now)


def without_target(wl: Obj) -> Obj:
    """The workload after its deactivation; the same object if none was announced."""
    if not condition(wl, DEACTIVATION_TARGET):
        return wl
    conditions = status_of(wl)["conditions"]
    left = [entry for entry in conditions if entry["type"] != DEACTIVATION_TARGET]
    return with_status(wl, conditions=left)


def preempt(wl: Obj, reason: str, message: str, now: float) -> Obj:
    """Evict to make room for another workload; `Preempted` says on which grounds.

    A workload that is already being evicted is not changed.

    Raises:
        IllegalTransition: the workload holds no quota or is finished.
    """
    if _check(wl, "preempt", "evict") is Phase.EVICTING:
        return wl
    changed = evict(wl, names.REASON_PREEMPTED, message, now)
    return set_condition(changed, PREEMPTED, "True", reason, message, now)


def release(wl: Obj, now: float) -> Obj:
    """The second half of an eviction, once the job has no active pods: quota is free again.

    Admission is removed, QuotaReserved and Admitted turn False, and checks take back what they said
    (KEP-993): a Retry only after its delay, a Rejected once it has deactivated the workload.
    Requeued says whether the workload waits for something other than quota.

    Raises:
        IllegalTransition: the workload is not being evicted.
    """
    _check(wl, "release", "release quota")
    eviction = condition(wl, EVICTED)
    reason, message = eviction.get("reason", ""), eviction.get("message", "")
    why = names.REASON_DEACTIVATED if is_deactivation(reason) else names.REASON_PENDING
    changed = _drop_quota(_with_past(wl, now), why, message, now)
    requeued = "True" if return_after(reason).at_once else "False"
    return set_condition(changed, REQUEUED, requeued, reason, message, now)


def cancel(wl: Obj, reason: str, message: str, now: float) -> Obj:
    """Cancel a reservation whose job does not run, so that nothing has to stop.

    Raises:
        IllegalTransition: the workload holds no quota, is being evicted, or finished.
    """
    _check(wl, "cancel", "cancel the reservation")
    return _drop_quota(_with_past(wl, now), reason, message, now)


def wait(
    wl: Obj, reason: str, message: str, now: float, requests: Sequence[Obj] | None = None
) -> Obj:
    """Record why a pending workload has no quota; the same object if it says so already.

    A reason of an older generation is renewed, because after a restart it would count as outdated.

    Args:
        wl: the workload.
        reason: of the condition.
        message: of the condition.
        now: the transition time.
        requests: the raw `status.resourceRequests`; None leaves them as they are.

    Raises:
        IllegalTransition: the workload is not pending.
    """
    _check(wl, "wait", "wait")
    changed = set_condition(wl, QUOTA_RESERVED, "False", reason, message, now, renew=True)
    if requests is not None and requests != (status_of(wl).get("resourceRequests") or []):
        changed = with_status(changed, resourceRequests=requests)
    return sync_admitted(changed, now)


def requeue(wl: Obj, now: float) -> Obj:
    """The reason of an eviction is gone: Requeued turns True.

    The back-off time is removed; the count of tries only for a workload that was deactivated.
    """
    cause = condition(wl, REQUEUED)
    if cause.get("status") != "False" or is_finished(wl):
        return wl
    reason = return_after(cause["reason"]).reason or cause["reason"]
    if is_deactivation(cause["reason"]):
        reason = REACTIVATED
    changed = set_condition(wl, REQUEUED, "True", reason, "The workload is queued again", now)
    state = dict(status_of(wl).get("requeueState") or {})
    state.pop("requeueAt", None)
    if reason == REACTIVATED:
        changed = without_status(changed, past_field(wl))
    if reason == REACTIVATED or not state:
        return without_status(changed, "requeueState")
    return with_status(changed, requeueState=state)


def change_pods(wl: Obj, now: float) -> Obj:
    """The pod sets of a pending workload change: what checks have said was about the others.

    A Retry or Rejected stays.

    Raises:
        IllegalTransition: the workload is not pending.
    """
    _check(wl, "change_pods", "change the pods")
    stale = [
        entry["name"]
        for entry in check_states(wl)
        if is_answered(entry) and entry.get("state") not in (CHECK_RETRY, CHECK_REJECTED)
    ]
    return reset_checks(wl, stale, PODS_CHANGED, now)


def hold_back(wl: Obj, message: str, now: float) -> Obj:
    """A pending workload lacks pods: it stays out of its queue until `requeue`.

    An earlier reason takes precedence.

    Raises:
        IllegalTransition: the workload is not pending.
    """
    _check(wl, "hold_back", "hold back")
    if condition(wl, REQUEUED).get("status") == "False" and not is_held_back(wl):
        return wl
    return set_condition(wl, REQUEUED, "False", PODS_MISSING, message, now)


def finish(wl: Obj, reason: str, message: str, now: float) -> Obj:
    """Finish the workload; the same object if it was finished already."""
    if is_finished(wl):
        return wl
    return set_condition(wl, FINISHED, "True", reason, message, now)


def violations(wl: Mapping[str, Any]) -> tuple[str, ...]:
    """Every law of the machine that the conditions of a Workload violate."""
    broken = []
    reserved, admission = has_quota(wl), status_of(wl).get("admission")
    if reserved and not admission:
        broken.append("QuotaReserved without status.admission")
    if admission and not reserved:
        broken.append("status.admission without QuotaReserved")
    if is_admitted(wl) and not reserved:
        broken.append("Admitted without QuotaReserved")
    if condition(wl, REQUEUED).get("status") == "False" and reserved:
        broken.append("quota is held although the workload is not requeued")
    types = [entry["type"] for entry in status_of(wl).get("conditions") or ()]
    if len(types) != len({*types}):
        broken.append("a condition is listed twice")
    names = [entry["name"] for entry in check_states(wl)]
    if len(names) != len({*names}):
        broken.append("a check is listed twice")
    return tuple(broken)


def _check(wl: Obj, step: str, words: str) -> Phase:
    """The phase of a workload that can take a step.

    Raises:
        IllegalTransition: the workload cannot take it.
    """
    phase = phase_of(wl)
    if phase not in STEPS[step]:
        raise IllegalTransition(wl, words, f"it is {phase.value}")
    return phase


def _drop_quota(wl: Obj, reason: str, message: str, now: float) -> Obj:
    kept: tuple[str, ...] = (CHECK_RETRY, CHECK_REJECTED) if is_active(wl) else ()
    if kept and reason == names.REASON_DEACTIVATED:
        kept = (CHECK_RETRY,)  # a user has activated it again before its job had stopped
    lost = [entry["name"] for entry in check_states(wl) if entry.get("state") not in kept]
    changed = reset_checks(wl, lost, QUOTA_LOST, now)
    changed = without_status(without_status(changed, "admission"), UNHEALTHY_NODES)
    changed = set_condition(changed, QUOTA_RESERVED, "False", reason, message, now)
    return sync_admitted(changed, now)


def _with_past(wl: Obj, now: float) -> Obj:
    """Adds the ending admission to the past execution time."""
    turn = max(0, int(now - admitted_since(wl))) if is_admitted(wl) else 0
    return with_status(wl, **{past_field(wl): past_seconds(wl) + turn}) if turn else wl


# --------------------------------------------------------------------------------------------------


# ---- computes the patches that bring a Workload's status to the result of a step -----------------
# The admission bundle (`status.admission`, `status.requeueState`, `status.resourceRequests`,
# `status.schedulingStats`, `status.unhealthyNodes`, the past execution time, and the conditions of
# `BUNDLE`) is one server-side apply of the manager `kueue-admission`. It is always complete,
# because omitted fields are removed. The list of checks is replaced by a merge patch, because only
# that removes fields of a check's controller. If both change, the checks are written first, so that
# free quota never appears beside an old approval. Every body names the UID and the resource version
# that it is made from, so that it never applies to another or a changed object.

CHECKS_MANAGER = "kueue-workload-checks"

BUNDLE = (
    names.QUOTA_RESERVED,
    names.ADMITTED,
    names.EVICTED,
    names.REQUEUED,
    names.PREEMPTED,
    names.DEACTIVATION_TARGET,
)
"""The condition types that belong to the admission bundle."""

_FIELDS = (
    "admission",
    "requeueState",
    "resourceRequests",
    "schedulingStats",
    UNHEALTHY_NODES,
    "accumulatedPastExecutionTimeSeconds",
    "accumulatedPastExexcutionTimeSeconds",  # the name of v1beta1
)


@attrs.frozen
class StatusWrite:
    """One patch of the status subresource of a Workload.

    Attributes:
        style: `apply` (server-side, with force) or `merge`.
        body: the patch, with `metadata.uid`, and with `metadata.resourceVersion` unless races are
            harmless.
        field_manager: on whose behalf.
    """

    style: Literal["apply", "merge"]
    body: Obj
    field_manager: str

    def at(self, resource_version: str) -> StatusWrite:
        """The same patch, conditional on another resource version."""
        metadata = {**self.body["metadata"], "resourceVersion": resource_version}
        return attrs.evolve(self, body={**self.body, "metadata": metadata})


def status_writes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[StatusWrite, ...]:
    """The patches, in order, that turn the status of `old` into that of `new`."""
    writes = []
    if (list(check_states(old))) != (list(check_states(new))):
        body = _identity(old)
        body["status"] = {"admissionChecks": list(check_states(new)) or None}
        writes.append(StatusWrite("merge", body, CHECKS_MANAGER))
    if admission_bundle(old) != admission_bundle(new):
        body = {**_identity(old), "status": admission_bundle(new)}
        writes.append(StatusWrite("apply", body, ADMISSION_MANAGER))
    return tuple(writes)


def admission_bundle(wl: Mapping[str, Any]) -> Obj:
    """The part of the status that `kueue-admission` owns."""
    status = status_of(wl)
    bundle: Obj = {
        "conditions": [
            dict(entry)
            for entry in sorted(status.get("conditions") or (), key=lambda entry: entry["type"])
            if entry["type"] in BUNDLE
        ]
    }
    for field in _FIELDS:
        if status.get(field):
            bundle[field] = status[field]
    return bundle


def _identity(wl: Mapping[str, Any]) -> Obj:
    meta = wl["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion")
    return {
        "apiVersion": wl["apiVersion"],
        "kind": wl["kind"],
        "metadata": {field: meta[field] for field in fields},
    }
