"""The progress of a job, read from itself and its Workload, with any manager.

Only conditions that today's Kueue also writes are read, so any manager will do; with Kueue v0.6,
those that it has.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import attrs

from kueuelib.api.kinds import PODS
from kueuelib.api.kueue import CHECK_READY
from kueuelib.api.meta import Obj, controller_of, is_true, labels_of, parse_time
from kueuelib.api.names import (
    ADMITTED,
    EVICTED,
    FINISHED,
    PODS_READY,
    PREEMPTED,
    QUEUE_LABEL,
    QUOTA_RESERVED,
    REASON_SUCCEEDED,
    REQUEUED,
)
from kueuelib.api.phrases import PREEMPTED_FOR, counted, duration
from kueuelib.api.quantity import Quantity
from kueuelib.jobs.contract.capabilities import ComposableJob
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.workload import states
from kueuelib.workload.short_reasons import lacks_in, shorten

JOB_FINISHED = "JobFinished"
"""The reason that Kueue v0.6 writes for every end."""


class State(enum.StrEnum):
    """The state of a job; `Finished` and `Failed` are ends."""

    QUEUED = "Queued"
    ADMITTED = "Admitted"
    RUNNING = "Running"
    EVICTED = "Evicted"
    FINISHED = "Finished"
    FAILED = "Failed"

    @property
    def is_end(self) -> bool:
        """Whether it is an end."""
        return self in (State.FINISHED, State.FAILED)


@attrs.frozen
class Why:
    """A reason, with its causes.

    Attributes:
        reason: one word in CamelCase, for programs.
        message: a sentence for people; may be empty.
        causes: the reasons behind it.
    """

    reason: str
    message: str = ""
    causes: tuple[Why, ...] = ()

    @property
    def short(self) -> str:
        """The message in a few words, for a table or a status line."""
        return shorten(self.message)

    def lines(self, depth: int = 0) -> tuple[str, ...]:
        """The tree as indented lines."""
        text = f"{self.reason}: {self.message}" if self.message else self.reason
        below = (line for cause in self.causes for line in cause.lines(depth + 1))
        return ("  " * depth + text, *below)

    def __str__(self) -> str:
        return "\n".join(self.lines())


@attrs.frozen
class EvictionRecord:
    """The last eviction of a job.

    Attributes:
        reason: of the condition Evicted.
        message: of the condition.
        at: when, in seconds since the epoch.
        over: whether it has got quota again since.
        count: how often it was evicted, as far as the manager counts; at least 1.
        preemptor: the UID of the Workload that it made room for; empty if there is none.
        requeued_at: when its back-off ends, in seconds since the epoch; None without one.
    """

    reason: str
    message: str
    at: float
    over: bool = False
    count: int = 1
    preemptor: str = ""
    requeued_at: float | None = None


@attrs.frozen
class Progress:
    """One moment in the life of a job: its state in the queue, and why.

    Attributes:
        state: the state of the job.
        why: the reason.
        cluster_queue: the ClusterQueue whose quota it holds; empty if it holds none.
        workload: the name of its Workload; empty if there is none.
        queue: its LocalQueue; empty if it names none.
        lacks: the quota that it lacks, by resource, if the reason says so; of several flavors, the
            smallest amount.
        place: its place in the ClusterQueue, from 1, while it waits there; else None.
        start_p50: the time, in seconds since the epoch, by which it starts with a probability of
            50 %, while it waits; else None.
        start_p90: the same with 90 %.
        evicted: its last eviction; None if there was none.
        comes_back: whether it returns to its queue by itself after an eviction. A plain pod does
            not, because it is deleted: it has to be submitted again.
        waited: the seconds from its creation until it was admitted the last time, or until now; a
            submitter's timeout must not count them.
        unknown: why a field is not known, by its name.
    """

    state: State
    why: Why
    cluster_queue: str = ""
    workload: str = ""
    queue: str = ""
    lacks: Mapping[str, Quantity] = attrs.field(factory=dict, hash=False)
    place: int | None = None
    start_p50: float | None = None
    start_p90: float | None = None
    evicted: EvictionRecord | None = None
    comes_back: bool = True
    waited: float = attrs.field(default=0.0, eq=False)
    unknown: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    _now: float = attrs.field(default=0.0, eq=False, repr=False)

    @property
    def reason(self) -> str:
        """The reason in one word."""
        return self.why.reason

    @property
    def message(self) -> str:
        """The reason in a sentence; may be empty."""
        return self.why.message

    @property
    def text(self) -> str:
        """All of it in one line for a person, for example
        `Waiting for quota: cpu on spot: 2 more needed; place 3; starts within 5m (p50), 20m (p90)`.
        """
        return "; ".join(_parts(self, self._now))


NOT_QUEUED = "NotQueued"
"""The reason of a job that no queue holds back."""
NO_WORKLOAD = "NoWorkload"
"""The reason of a job whose Workload does not exist, or may not be read."""


def progress_of(
    job: GenericJob | None,
    obj: Obj | None,
    workload: Obj | None,
    now: float,
    problem: str = "",
) -> Progress:
    """How far a job has come.

    Args:
        job: the job as its integration sees it; None when its kind is not known here.
        obj: the raw job, None when it is gone.
        workload: its raw Workload in either version, None while there is none.
        now: seconds since the epoch.
        problem: why there can be no Workload yet, if that is known.
    """
    if workload is None:
        return _without_workload(job, obj, now, problem)
    admission = states.status_of(workload).get("admission") or {}
    state, why = _state(job, obj, workload)
    reserved = states.condition(workload, QUOTA_RESERVED)
    waits = state is State.QUEUED and reserved.get("status") == "False"
    return Progress(
        state,
        why,
        admission.get("clusterQueue", ""),
        workload["metadata"]["name"],
        workload["spec"].get("queueName") or "",
        lacks_in(reserved.get("message", "")) if waits else {},
        evicted=_last_eviction(workload),
        comes_back=not state.is_end and states.is_active(workload) and not _is_plain(obj, workload),
        waited=_waited(obj, workload, now),
        now=now,
    )


def _without_workload(
    job: GenericJob | None, obj: Obj | None, now: float, problem: str
) -> Progress:
    end = None if job is None else job.finished()
    queue = labels_of(obj or {}).get(QUEUE_LABEL, "")
    comes_back = not _is_plain(obj, None)
    if end is not None:
        state = State.FINISHED if end.succeeded else State.FAILED
        why = Why(state.value, end.message)
        return Progress(state, why, queue=queue, comes_back=False, now=now)
    why = Why(NO_WORKLOAD, problem or "No manager has created its Workload yet")
    active = job is not None and job.is_active()
    if job is not None and not job.is_suspended() and (active or problem or not queue):
        state = State.RUNNING if active else State.ADMITTED
        if not queue:
            why = Why(NOT_QUEUED, f"It has no label {QUEUE_LABEL}, so no queue holds it")
        return Progress(state, why, queue=queue, comes_back=comes_back, now=now)
    waited = 0.0 if obj is None else max(0.0, now - _born(obj, now))
    return Progress(State.QUEUED, why, queue=queue, comes_back=comes_back, waited=waited, now=now)


def _born(obj: Obj, now: float) -> float:
    """When an object was created; now, if that is not known."""
    born = (obj.get("metadata") or {}).get("creationTimestamp")
    return parse_time(born) if born else now


def _is_plain(obj: Obj | None, workload: Obj | None) -> bool:
    """Whether a job consists of pods that no controller makes again."""
    owners = ((workload or {}).get("metadata") or {}).get("ownerReferences") or ()
    kinds = {owner["kind"] for owner in owners} or {(obj or {}).get("kind")}
    return kinds == {PODS.kind} and (obj is None or controller_of(obj) is None)


def _waited(obj: Obj | None, wl: Obj, now: float) -> float:
    since = min(_born(obj or wl, now), _born(wl, now))
    until = now
    finished = states.condition(wl, FINISHED)
    if states.is_admitted(wl) and not states.is_evicted(wl):
        until = states.admitted_since(wl)
    elif finished.get("status") == "True":
        until = parse_time(finished["lastTransitionTime"])
    return max(0.0, until - since)


def _last_eviction(wl: Obj) -> EvictionRecord | None:
    evicted = states.condition(wl, EVICTED)
    if not evicted:
        return None
    message = evicted.get("message", "")
    preemptor = PREEMPTED_FOR.match(message)
    requeued_at = (states.status_of(wl).get("requeueState") or {}).get("requeueAt")
    return EvictionRecord(
        evicted.get("reason", ""),
        message,
        parse_time(evicted["lastTransitionTime"]),
        over=evicted.get("status") != "True",
        count=max(1, sum(states.evictions_of(wl).values())),
        preemptor="" if preemptor is None else preemptor["uid"],
        requeued_at=parse_time(requeued_at) if requeued_at else None,
    )


def _parts(one: Progress, now: float) -> list[str]:
    """The parts of the line for a person."""
    short = one.why.short or one.reason
    match one.state:
        case State.QUEUED:
            parts = [f"Waiting for quota: {short}" if one.lacks else f"Waiting: {short}"]
        case State.EVICTED:
            back = "it returns to its queue" if one.comes_back else "submit it again to run it"
            parts = [f"Evicted ({one.reason}): {short}", back]
        case State.ADMITTED | State.RUNNING:
            where = f" in ClusterQueue {one.cluster_queue}" if one.cluster_queue else ""
            parts = [
                f"{one.state}{where}",
                *([short] if one.reason in (NOT_QUEUED, NO_WORKLOAD) else ()),
            ]
        case _:
            parts = [f"{one.state}: {short}" if short != one.state else one.state]
    if one.place is not None:
        parts.append(f"place {one.place}")
    if one.start_p50 is not None:
        parts.append(f"starts within {start_text(one.start_p50, one.start_p90, now)}")
    if one.evicted is not None and one.state is State.QUEUED:
        times = counted(one.evicted.count, "time")
        parts.append(f"evicted {times}, last: {one.evicted.reason}")
    return parts


def start_text(p50: float, p90: float | None, now: float) -> str:
    """An expected start, for example `5m (p50), 20m (p90)`; times are seconds since the epoch."""
    late = "" if p90 is None else f", {duration(max(0.0, p90 - now))} (p90)"
    return f"{duration(max(0.0, p50 - now))} (p50){late}"


def _state(job: GenericJob | None, obj: Obj | None, wl: Obj) -> tuple[State, Why]:
    finished = states.condition(wl, FINISHED)
    if finished.get("status") == "True":
        good = _succeeded(job, obj, finished)
        if not good and states.is_evicted(wl) and _is_plain(obj, wl):
            return State.EVICTED, _eviction(wl)  # its end was the eviction
        return (State.FINISHED if good else State.FAILED), _why(finished)
    if states.has_quota(wl):
        return _with_quota(job, obj, wl)
    waits_elsewhere = states.condition(wl, REQUEUED).get("status") == "False"
    if states.is_evicted(wl) and (waits_elsewhere or not states.is_active(wl)):
        return State.EVICTED, _eviction(wl)
    reserved = states.condition(wl, QUOTA_RESERVED)
    why = _why(reserved) if reserved else Why("NotEvaluated", "No manager has looked at it yet")
    causes = (_eviction(wl),) if states.is_evicted(wl) else ()
    return State.QUEUED, attrs.evolve(why, causes=(*causes, *_checks(wl)))


def _with_quota(job: GenericJob | None, obj: Obj | None, wl: Obj) -> tuple[State, Why]:
    if states.is_evicted(wl):
        return State.EVICTED, _eviction(wl)
    if not states.is_admitted(wl):
        why = Why("WaitingForChecks", "Quota is reserved; checks are not ready")
        return State.QUEUED, attrs.evolve(why, causes=_checks(wl))
    admitted, ready = states.condition(wl, ADMITTED), states.condition(wl, PODS_READY)
    causes = (_why(ready),) if ready else ()
    state = State.RUNNING if _runs(job, obj, ready) else State.ADMITTED
    return state, attrs.evolve(_why(admitted), causes=causes)


def _runs(job: GenericJob | None, obj: Obj | None, ready: Mapping[str, Any]) -> bool:
    of_many = isinstance(job, ComposableJob)
    if job is not None and of_many:
        return job.is_active()
    if job is not None:
        return not job.is_suspended() and (job.is_active() or job.pods_ready())
    if ready.get("status") == "True":
        return True
    spec = (obj or {}).get("spec") or {}
    policy = spec.get("runPolicy") or {}
    return False in (spec.get("suspend"), policy.get("suspend"))


def _succeeded(job: GenericJob | None, obj: Obj | None, finished: Mapping[str, Any]) -> bool:
    if finished.get("reason") != JOB_FINISHED:
        return bool(finished.get("reason") == REASON_SUCCEEDED)
    end = None if job is None else job.finished()
    if end is not None:
        return end.succeeded
    return not is_true(obj or {}, "Failed")


def _eviction(wl: Obj) -> Why:
    preempted = states.condition(wl, PREEMPTED)
    causes = [_why(preempted)] if preempted.get("status") == "True" else []
    state = states.status_of(wl).get("requeueState") or {}
    if state.get("requeueAt"):
        causes.append(Why("BackingOff", f"It will be tried again at {state['requeueAt']}"))
    why = _why(states.condition(wl, EVICTED))
    return attrs.evolve(why, causes=(*causes, *_checks(wl)))


def _checks(wl: Obj) -> tuple[Why, ...]:
    return tuple(
        Why(
            f"AdmissionCheck{entry.get('state', '')}",
            f"{entry['name']}: {entry['message']}" if entry.get("message") else entry["name"],
        )
        for entry in states.check_states(wl)
        if entry.get("state") != CHECK_READY
    )


def _why(condition: Mapping[str, Any]) -> Why:
    return Why(condition.get("reason", ""), condition.get("message", ""))
