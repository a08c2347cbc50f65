"""Decides which Event a job gets about its Workload: why it waits, or that it was evicted.

People look at what they created, and many programs print its Events. So the reason in the status
of the Workload is repeated there in short words, once per change of the reason, and at most once a
minute. Other numbers or another place are not a new reason. Whether it is admitted, and why it is
stopped, is said by the Events `Started` and `Stopped` of the job itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from kueuelib.api.kueue import CHECK_READY
from kueuelib.api.meta import Obj, controller_of
from kueuelib.api.names import ADMITTED, EVICTED, QUOTA_RESERVED, REQUEUED
from kueuelib.machinery.recurrence import EventType
from kueuelib.scheduler.object_reasons import (
    ADMISSION_GATED,
    DEACTIVATED,
    EXCEEDS_MAX_QUOTA,
    MISCONFIGURED,
    NO_MATCHING_FLAVOR,
    PENDING,
    PENDING_EVALUATION,
    SUSPENDED,
    WAITING_FOR_PODS_READY,
    WAITING_FOR_PREEMPTED,
    WAITING_FOR_QUOTA,
)
from kueuelib.workload import states
from kueuelib.workload.next_step import Note
from kueuelib.workload.short_reasons import shorten
from kueuelib.workload.states import Phase

HOLD: Final = 1.0
"""Seconds that a reason has to last before it is said: the job may be admitted at once."""
MINUTE: Final = 60.0
"""Seconds between two Events about one job."""
WAITING_FOR_CHECKS: Final = "WaitingForChecks"
BACKING_OFF: Final = "BackingOff"

_NUMBER: Final = re.compile(r"(?<!\S)\d\S*")
_CANNOT: Final = "Cannot be admitted"


@attrs.frozen
class _Heading:
    """How a reason is said.

    Attributes:
        words: before the short form of the message.
        type: `Warning` if it does not end by itself.
        has_place: whether the Workload has a place in a queue meanwhile.
        is_one: whether all messages with this reason count as one.
    """

    words: str
    type: EventType = "Normal"
    has_place: bool = False
    is_one: bool = False


_HEADINGS: Final[Mapping[str, _Heading]] = {
    WAITING_FOR_QUOTA: _Heading("Waiting for quota", has_place=True),
    WAITING_FOR_PREEMPTED: _Heading("Waiting for preempted Workloads", is_one=True),
    PENDING_EVALUATION: _Heading("Waiting", has_place=True, is_one=True),
    WAITING_FOR_PODS_READY: _Heading("Waiting", has_place=True),
    SUSPENDED: _Heading("Waiting"),
    ADMISSION_GATED: _Heading("Waiting"),
    EXCEEDS_MAX_QUOTA: _Heading(_CANNOT, "Warning"),
    NO_MATCHING_FLAVOR: _Heading(_CANNOT, "Warning"),
    MISCONFIGURED: _Heading(_CANNOT, "Warning"),
    DEACTIVATED: _Heading(_CANNOT, "Warning"),
}


@attrs.frozen
class JobReason:
    """What is to be said about a job.

    Attributes:
        uid: of the object that it is said about.
        reason: one word in CamelCase.
        text: in short words, without a place.
        cause: equal if only numbers differ.
        type: of the Event.
        has_place: whether the Workload has a place in a queue.
    """

    uid: str
    reason: str
    text: str
    cause: str
    type: EventType = "Normal"
    has_place: bool = False

    def note(self, place: int | None) -> Note:
        """The Event, with its place if that is known."""
        known = self.has_place and place is not None
        return Note(self.type, self.reason, f"{self.text}; place {place}" if known else self.text)


@attrs.frozen
class SaidReason:
    """What is remembered of the Events about one Workload. Instants are seconds of one clock.

    Attributes:
        uid: of the object that the Events are about.
        cause: the last one that was said; empty if it is over.
        at: when.
        due: when another one is said, if it lasts until then.
    """

    uid: str
    cause: str = ""
    at: float = float("-inf")
    due: float | None = None


@attrs.frozen
class JobEventStep:
    """What to do.

    Attributes:
        said: what to remember, None for nothing.
        note: the Event to record, or None.
        look_again: when the next call is due, or None.
    """

    said: SaidReason | None = None
    note: Note | None = None
    look_again: float | None = None


def next_event(
    said: SaidReason | None, wl: Obj | None, place: int | None, now: float
) -> JobEventStep:
    """Which Event the job of a Workload gets now, if any.

    Args:
        said: the memory that the last call returned.
        wl: the raw Workload; None if it is gone, and perhaps comes back for the same job.
        place: its place in its queue, from 1; None if it has none, or if it is not known.
        now: seconds, never going back.
    """
    reason = None if wl is None else reason_of(wl)
    over = said.at + MINUTE if said is not None else now
    if reason is None:
        if said is None or over <= now:
            return JobEventStep()
        return JobEventStep(attrs.evolve(said, cause="", due=None), look_again=over)
    if said is None or said.uid != reason.uid:
        said = SaidReason(reason.uid)
    if said.cause == reason.cause:
        return JobEventStep(attrs.evolve(said, due=None))
    due = max(now + HOLD, said.at + MINUTE) if said.due is None else said.due
    if now < due:
        return JobEventStep(attrs.evolve(said, due=due), look_again=due)
    return JobEventStep(SaidReason(reason.uid, reason.cause, now), reason.note(place))


def job_uid(wl: Obj) -> str:
    """The UID of the job of a Workload; empty if it has none.

    The job is the controller of the Workload. A group of pods has none: the pod that became its
    owner last, since earlier ones may be gone after an eviction, stands for the group.
    """
    refs = wl["metadata"].get("ownerReferences")
    return (controller_of(wl) or refs[-1])["uid"] if refs else ""


def reason_of(wl: Obj) -> JobReason | None:
    """What is to be said about the job of a Workload; None while nothing holds it."""
    uid = job_uid(wl)
    if not uid or states.is_deleted(wl):
        return None
    match states.phase_of(wl):
        case Phase.PENDING:
            return _waits(wl, uid)
        case Phase.RESERVED:
            return _checked(wl, uid)
        case Phase.EVICTING if not states.is_admitted(wl):
            return _evicted(wl, uid)
    return None


def _waits(wl: Obj, uid: str) -> JobReason | None:
    evicted = states.is_evicted(wl)
    if evicted and states.is_held_back(wl):
        return None  # its pods are gone
    back = (states.status_of(wl).get("requeueState") or {}).get("requeueAt")
    if evicted and back and states.condition(wl, REQUEUED).get("status") == "False":
        return JobReason(uid, BACKING_OFF, f"Waiting until {back}, when it is queued again", back)
    condition = states.condition(wl, QUOTA_RESERVED)
    reason = condition.get("reason", "")
    if reason == PENDING and evicted and not states.condition(wl, ADMITTED):
        return _evicted(wl, uid)
    heading = _HEADINGS.get(reason)
    if heading is None or (reason == DEACTIVATED and evicted):  # its job was stopped with that text
        return None
    short = shorten(condition.get("message", ""))
    return JobReason(
        uid,
        reason,
        f"{heading.words}: {short}",
        reason if heading.is_one else f"{reason}: {_NUMBER.sub('#', short)}",
        heading.type,
        heading.has_place,
    )


def _checked(wl: Obj, uid: str) -> JobReason | None:
    """Which admission checks a reservation waits for."""
    open_ = [one for one in states.check_states(wl) if one.get("state") != CHECK_READY]
    if not open_:
        return None
    text = ", ".join(_with_message(one) for one in open_)
    names = ",".join(one["name"] for one in open_)
    return JobReason(uid, WAITING_FOR_CHECKS, f"Waiting for checks: {text}", f"checks: {names}")


def _with_message(check: Mapping[str, Any]) -> str:
    message = check.get("message")
    return f"{check['name']} ({message})" if message else str(check["name"])


def _evicted(wl: Obj, uid: str) -> JobReason:
    """An eviction of a job that had not started, so that nothing is stopped."""
    condition = states.condition(wl, EVICTED)
    text = f"Evicted: {condition.get('message', '')}"
    return JobReason(uid, f"EvictedDueTo{condition.get('reason', '')}", text, text)
