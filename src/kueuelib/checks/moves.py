r"""Decides when a check is called, and how its answer changes the entry of a Workload. Pure.

A check (KEP-993) is asked about workloads that hold quota:

```
            asked                 asked again: recheck, new parameters
  PENDING ---------> READY  ---------------------------------------+
     ^  |  \                                                        |
     |  |   +------> RETRY  <---------------------------------------+
     |  +----------> REJECTED <-------------------------------------+
     +---- the delay of RETRY is over; the quota is lost; deactivated, in the case of REJECTED
```

The workload controller also resets entries. The check does the same, because some managers do not.
All instants are seconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api import names
from kueuelib.api.codec import decode, encode
from kueuelib.api.kueue import CHECK_PENDING, CHECK_READY, CHECK_REJECTED, CHECK_RETRY, PodSetUpdate
from kueuelib.api.meta import Obj, format_time, parse_time, truncate_message
from kueuelib.api.validation.workload import update_errors
from kueuelib.checks.verdicts import Pending, Ready, Rejected, Retry, Verdict
from kueuelib.workload import states
from kueuelib.workload.checks import retry_pause

DEFAULT_RETRY_MINUTES = 15
OTHER_UPDATES = "The check is about to replace its podSetUpdates"


@attrs.frozen
class Reservation:
    """Identifies one reservation of quota by a workload.

    Attributes:
        uid: of the Workload.
        since: when quota was reserved, in whole seconds.
        admission: the raw `status.admission`.
        pod_sets: the raw `spec.podSets`, which an edit may change within the same second.
    """

    uid: str
    since: str
    admission: Mapping[str, Any]
    pod_sets: Sequence[Mapping[str, Any]] = ()


@attrs.frozen
class LastAnswer:
    """The last answer, as far as it is remembered.

    Attributes:
        reservation: the reservation that it was about.
        parameters: the spec of the parameters object at that time.
        state: the resulting state of the entry.
        again: when to call again; None: only after a change.
        failures: how many calls in a row have failed.
        retry_until: when a Retry that named its own delay is over, or None.
    """

    reservation: Reservation
    parameters: Any
    state: str
    again: float | None
    failures: int = 0
    retry_until: float | None = None


@attrs.frozen
class Ask:
    """Call the check."""


@attrs.frozen
class Reset:
    """Set the entry back to Pending.

    Attributes:
        message: why.
    """

    message: str


@attrs.frozen
class StayPut:
    """Do nothing until an instant, or until something changes (None)."""

    until: float | None = None


Move = Ask | Reset | StayPut


def reservation_of(wl: Mapping[str, Any]) -> Reservation | None:
    """The reservation that the checks have to decide about, or None."""
    if states.is_deleted(wl) or not states.is_active(wl):
        return None
    if states.phase_of(wl) not in (states.Phase.RESERVED, states.Phase.ADMITTED):
        return None
    return held_reservation(wl)


def held_reservation(wl: Mapping[str, Any]) -> Reservation | None:
    """The reservation whose quota a workload uses, until its last pod is gone; or None.

    Also that of a workload that is evicted, deactivated or deleted, as long as its job uses it.
    """
    meta = wl["metadata"]
    if states.is_finished(wl) or not states.has_quota(wl):
        return None
    if states.is_deleted(wl) and names.IN_USE_FINALIZER not in (meta.get("finalizers") or ()):
        return None
    since = states.condition(wl, names.QUOTA_RESERVED).get("lastTransitionTime", "")
    admission = states.status_of(wl).get("admission") or {}
    return Reservation(meta["uid"], since, admission, wl["spec"].get("podSets") or ())


def entry_of(wl: Mapping[str, Any], check: str) -> Mapping[str, Any] | None:
    """The entry of an AdmissionCheck in `status.admissionChecks`, or None."""
    for entry in states.check_states(wl):
        if entry["name"] == check:
            return entry
    return None


def holds(wl: Mapping[str, Any], check: str) -> bool:
    """Whether a workload holds quota that a check has accepted, until its last pod is gone.

    An admitted one holds it even when the check has changed its mind.
    """
    entry = entry_of(wl, check)
    if entry is None or states.is_finished(wl) or not states.has_quota(wl):
        return False
    state = entry.get("state", CHECK_PENDING)
    return state == CHECK_READY or (state != CHECK_PENDING and states.is_admitted(wl))


def next_move(
    wl: Mapping[str, Any],
    entry: Mapping[str, Any],
    parameters: Any,
    asked: LastAnswer | None,
    retry_delay: float,
    now: float,
    *,
    rechecks: bool = False,
) -> Move:
    """The next move for one entry.

    Args:
        wl: the raw Workload.
        entry: its entry.
        parameters: the spec of the parameters object.
        asked: the last answer.
        retry_delay: seconds that a Retry lasts unless it says otherwise.
        now: seconds since the epoch.
        rechecks: whether to call again about a Ready entry if no answer is remembered.
    """
    state = entry.get("state", CHECK_PENDING)
    reservation = reservation_of(wl)
    if reservation is None:
        return _without_quota(wl, entry, asked, retry_delay, now)
    if state in (CHECK_RETRY, CHECK_REJECTED):
        return StayPut()
    if asked is None:
        return StayPut() if state == CHECK_READY and not rechecks else Ask()
    if asked.reservation != reservation or asked.state != state or asked.parameters != parameters:
        return Ask()
    if asked.again is None:
        return StayPut()
    return Ask() if asked.again <= now else StayPut(asked.again)


def _without_quota(
    wl: Mapping[str, Any],
    entry: Mapping[str, Any],
    asked: LastAnswer | None,
    retry_delay: float,
    now: float,
) -> Move:
    state = entry.get("state", CHECK_PENDING)
    if states.has_quota(wl) or states.is_finished(wl) or states.is_deleted(wl):
        return StayPut()
    if state == CHECK_READY:
        return Reset("Reset to Pending after quota was lost")
    if state == CHECK_REJECTED and not states.is_active(wl):
        return Reset("Reset to Pending after deactivation")
    if state == CHECK_RETRY:
        until = retry_end(entry, asked, retry_delay)
        return Reset("The delay after Retry is over") if until <= now else StayPut(until)
    return StayPut()


def retry_end(entry: Mapping[str, Any], asked: LastAnswer | None, retry_delay: float) -> float:
    """When a Retry is over."""
    if asked is not None and asked.state == CHECK_RETRY and asked.retry_until is not None:
        return asked.retry_until
    return parse_time(entry["lastTransitionTime"]) + retry_pause(entry, retry_delay)


def retry_pause_of(entry: Mapping[str, Any], after: float) -> float:
    """How long a Retry with a delay of its own lasts; less than a second is stored rounded up."""
    if after >= 1:
        return after
    return retry_pause({**entry, "requeueAfterSeconds": math.ceil(after)}, 0.0)


def retry_delay_of(check: Mapping[str, Any]) -> float:
    """Seconds that a Retry of a raw AdmissionCheck lasts."""
    minutes = (check.get("spec") or {}).get("retryDelayMinutes")
    return 60.0 * (DEFAULT_RETRY_MINUTES if minutes is None else minutes)


def decided(
    wl: Mapping[str, Any], entry: Mapping[str, Any], verdict: Verdict, now: float
) -> Obj | None:
    """The entry after a verdict; None if it stays as it is.

    An entry cannot get other pod set updates while it stays Ready, so it is Pending in between: the
    same verdict makes it Ready the next time.

    Raises:
        ValueError: the verdict changes pod sets that the workload does not have.
    """
    old = entry.get("state", CHECK_PENDING)
    match verdict:
        case Pending():
            if states.is_admitted(wl):
                return None  # a running job is not stopped because a check is in doubt
            new: Obj = {"state": CHECK_PENDING, "message": verdict.message}
            if verdict.preemption_required:
                new["reason"] = names.REASON_PREEMPTION_REQUIRED
        case Ready():
            if old == CHECK_READY and states.is_admitted(wl):
                return None  # what it adds to its pods is fixed
            updates = pod_set_updates(wl, verdict.updates)
            if old == CHECK_READY and updates == _known_updates(entry):
                return None
            new = {"state": CHECK_READY, "message": verdict.message}
            if old == CHECK_READY:
                new = {"state": CHECK_PENDING, "message": OTHER_UPDATES}
            elif updates:
                new["podSetUpdates"] = updates
        case Retry():
            new = {"state": CHECK_RETRY, "message": verdict.message}
            if verdict.after is not None:
                new["requeueAfterSeconds"] = max(0, math.ceil(verdict.after))
        case Rejected():
            new = {"state": CHECK_REJECTED, "message": verdict.message}
    return changed_entry(entry, new, now)


def reset(entry: Mapping[str, Any], message: str, now: float) -> Obj | None:
    """The entry without its answer; None if it has none."""
    new = states.unanswered(entry, message, now)
    return None if new is entry else dict(new)


def changed_entry(entry: Mapping[str, Any], new: Mapping[str, Any], now: float) -> Obj | None:
    """The entry with new content; None if it has it already.

    Its transition time changes only with its state.
    """
    changed: Obj = {"name": entry["name"], **new}
    if "retryCount" in entry:
        changed["retryCount"] = entry["retryCount"]
    changed["message"] = truncate_message(changed.get("message") or "")
    same = entry.get("state", CHECK_PENDING) == changed["state"]
    kept = entry.get("lastTransitionTime") if same else None
    changed["lastTransitionTime"] = kept or format_time(now)
    fields = ("state", "message", "reason", "podSetUpdates", "requeueAfterSeconds")
    if all((entry.get(field) or None) == (changed.get(field) or None) for field in fields):
        return None
    return changed


def pod_set_updates(wl: Mapping[str, Any], updates: tuple[PodSetUpdate, ...]) -> list[Obj]:
    """One raw update per pod set, as the API demands, or none at all.

    Raises:
        ValueError: an update names no pod set of the workload, or one twice, or the API refuses it.
    """
    if not updates:
        return []
    pod_sets = [pod_set.get("name", "main") for pod_set in wl["spec"]["podSets"]]
    by_name = {update.name: update for update in updates}
    if len(by_name) != len(updates) or not by_name.keys() <= {*pod_sets}:
        wanted = [update.name for update in updates]
        raise ValueError(f"updates are for the pod sets {wanted}, the workload has {pod_sets}")
    raw = [encode(by_name.get(name) or PodSetUpdate(name)) for name in pod_sets]
    for refused in update_errors("answer", {"podSetUpdates": raw}, pod_sets):
        raise ValueError(str(refused))
    return raw


def _known_updates(entry: Mapping[str, Any]) -> list[Obj]:
    return [encode(decode(PodSetUpdate, one)) for one in entry.get("podSetUpdates") or ()]


def apply_body(wl: Mapping[str, Any], mine: frozenset[str], changed: Mapping[str, Obj]) -> Obj:
    """The server-side apply of a controller's own entries.

    It contains all of them, because a missing entry would be removed. It names the object's
    version, so that an entry which the queue has dropped does not come back.

    Args:
        wl: the raw Workload.
        mine: the AdmissionChecks of the controller.
        changed: the entries that change, by check.
    """
    meta = wl["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion")
    entries = [
        dict(changed.get(entry["name"], entry))
        for entry in states.check_states(wl)
        if entry["name"] in mine
    ]
    return {
        "apiVersion": wl["apiVersion"],
        "kind": wl["kind"],
        "metadata": {field: meta[field] for field in fields},
        "status": {"admissionChecks": entries},
    }
