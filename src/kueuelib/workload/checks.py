"""The rules of admission checks: which are required and listed, and when all have passed.

The rules are those of KEP-993, also for preemptions that wait for checks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kueuelib.api.kueue import CHECK_PENDING, CHECK_REJECTED, CHECK_RETRY
from kueuelib.api.meta import Obj, format_time
from kueuelib.api.names import REASON_PREEMPTION_REQUIRED
from kueuelib.api.workload_state import has_quota, is_finished, passed, passed_all
from kueuelib.scheduler.quota.queue_spec import RequiredCheck, required_by
from kueuelib.workload.phases import status_of, with_status

LONGEST_PAUSE = 300.0
"""The longest pause, in seconds, of a Retry without a delay."""
_KEPT = frozenset({"name", "state", "message", "lastTransitionTime", "retryCount"})
"""The fields of an entry that is Pending and knows of no reservation."""


def check_states(wl: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The entries of `status.admissionChecks`, never None."""
    return status_of(wl).get("admissionChecks") or ()


def checks_in(wl: Mapping[str, Any], *states: str) -> tuple[str, ...]:
    """The names of the checks in one of the states."""
    return tuple(entry["name"] for entry in check_states(wl) if entry.get("state") in states)


def named_checks(cluster_queue: Mapping[str, Any]) -> tuple[str, ...]:
    """Every check that a raw ClusterQueue names, in either version, for some flavors or for all."""
    return tuple(dict.fromkeys(rule.name for rule in _rules(cluster_queue)))


def required_checks(
    cluster_queue: Mapping[str, Any], admission: Mapping[str, Any] | None
) -> tuple[str, ...]:
    """The names of the checks that a workload of this ClusterQueue has to pass, in the queue's
    order.

    Args:
        cluster_queue: the raw ClusterQueue, in either version.
        admission: the raw `status.admission`. A check for some flavors counts only if one of them
            is assigned; without an admission, only checks for all flavors count.
    """
    assigned = {
        flavor
        for pod_set in (admission or {}).get("podSetAssignments") or ()
        for flavor in (pod_set.get("flavors") or {}).values()
    }
    return required_by(_rules(cluster_queue), assigned)


def may_preempt(wl: Mapping[str, Any], required: Collection[str], late: Collection[str]) -> bool:
    """Whether the preemptions that a reservation assumed may begin (KEP-993).

    They may if a check asks for them, or if all checks that they wait for are Ready. Before that,
    only its flavors are verified; afterwards there has to be room for it, too.

    Args:
        wl: the raw Workload.
        required: the names of the checks that it has to pass.
        late: those of them that are `AfterCheckPassedOrOnDemand`.
    """
    asked = any(
        entry.get("reason") == REASON_PREEMPTION_REQUIRED
        for entry in check_states(wl)
        if entry.get("state") == CHECK_PENDING
    )
    return asked or passed_all(wl, required) or passed(wl, late)


def _rules(cluster_queue: Mapping[str, Any]) -> tuple[RequiredCheck, ...]:
    spec = cluster_queue.get("spec") or {}
    strategy = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    if strategy:
        return tuple(
            RequiredCheck(one["name"], frozenset(one.get("onFlavors") or ())) for one in strategy
        )
    return tuple(RequiredCheck(name, frozenset()) for name in spec.get("admissionChecks") or ())


def sync_checks(wl: Obj, required: Sequence[str], now: float, *, named: Iterable[str] = ()) -> Obj:
    """Lists the checks of the ClusterQueue, each once and in its order (KEP-993).

    New ones are Pending; the others keep their state. A finished workload is not changed.

    Args:
        wl: the workload.
        required: the checks that its flavors need.
        now: the transition time of new entries.
        named: all checks that the ClusterQueue names. Without quota no flavor is assigned; a check
            for some flavors that said Retry or Rejected is then kept, so that losing the flavor
            bypasses neither its delay nor its `retryCount`.
    """
    listed = check_states(wl)
    if not (listed or required) or is_finished(wl):
        return wl
    known = {entry["name"]: entry for entry in listed}
    names = [*required]
    if not has_quota(wl):
        kept = {*checks_in(wl, CHECK_RETRY, CHECK_REJECTED)}
        kept |= {entry["name"] for entry in listed if entry.get("retryCount")}
        names += [name for name in named if name in kept]
    wanted = [known.get(name) or _pending_check(name, "", now) for name in dict.fromkeys(names)]
    if {entry["name"] for entry in wanted} == known.keys():
        return wl
    return with_status(wl, admissionChecks=wanted)


def reset_checks(wl: Obj, checks: Iterable[str], message: str, now: float) -> Obj:
    """Takes back what checks have answered; the same object if they have not.

    Args:
        wl: the workload.
        checks: their names.
        message: why, for people.
        now: the transition time.
    """
    chosen, listed = {*checks}, check_states(wl)
    entries = [
        unanswered(entry, message, now) if entry["name"] in chosen else entry for entry in listed
    ]
    if all(new is old for new, old in zip(entries, listed, strict=True)):
        return wl
    return with_status(wl, admissionChecks=entries)


def retry_pause(entry: Mapping[str, Any], delay: float) -> float:
    """How long a Retry lasts, in seconds: without a delay, each earlier Retry doubles it.

    Args:
        entry: the raw entry of the check, whose own delay comes first.
        delay: the one of its AdmissionCheck.
    """
    own = entry.get("requeueAfterSeconds")
    seconds = delay if own is None else float(own)
    if seconds >= 1:
        return seconds
    return min(2.0 ** min(entry.get("retryCount") or 0, 10), LONGEST_PAUSE)


def is_answered(entry: Mapping[str, Any]) -> bool:
    """Whether the entry of a check says anything about a reservation, its message aside.

    A check that is Pending does so, too, if it asks for preemption (KEP-993).
    """
    if entry.get("state", CHECK_PENDING) != CHECK_PENDING:
        return True
    return any(value for field, value in entry.items() if field not in _KEPT)


def unanswered(entry: Mapping[str, Any], message: str, now: float) -> Mapping[str, Any]:
    """The entry of a check that is Pending and knows of no reservation.

    What counts attempts stays, and a Retry counts as one. The same object if it says nothing.

    Args:
        entry: the raw entry.
        message: why, for people.
        now: the transition time, if the state changes.
    """
    state, retries = entry.get("state", CHECK_PENDING), entry.get("retryCount") or 0
    if not is_answered(entry) and entry.get("message", "") in ("", message):
        return entry
    new = _pending_check(entry["name"], message, now)
    if state == CHECK_PENDING and entry.get("lastTransitionTime"):
        new["lastTransitionTime"] = entry["lastTransitionTime"]
    if state == CHECK_RETRY:
        retries += 1
    if retries:
        new["retryCount"] = retries
    return new


def _pending_check(name: str, message: str, now: float) -> Obj:
    return {
        "name": name,
        "state": CHECK_PENDING,
        "message": message,
        "lastTransitionTime": format_time(now),
    }
