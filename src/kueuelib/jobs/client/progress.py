"""The progress of a job, read from itself and its Workload, with any manager.

Only conditions that today's Kueue also writes are read, so any manager will do; with Kueue v0.6,
those that it has.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import attrs

from kueuelib.api.kueue import CHECK_READY
from kueuelib.api.meta import Obj, is_true
from kueuelib.api.names import (
    ADMITTED,
    EVICTED,
    FINISHED,
    PODS_READY,
    PREEMPTED,
    QUOTA_RESERVED,
    REASON_SUCCEEDED,
    REQUEUED,
)
from kueuelib.jobs.contract.capabilities import ComposableJob
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.workload import states
from kueuelib.workload.short_reasons import shorten

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
class Progress:
    """One moment in the life of a job.

    Attributes:
        state: the state of the job.
        why: the reason.
        cluster_queue: the ClusterQueue whose quota it holds; empty if it holds none.
        workload: the name of its Workload; empty if there is none.
    """

    state: State
    why: Why
    cluster_queue: str = ""
    workload: str = ""


def progress_of(
    job: GenericJob | None, obj: Obj | None, workload: Obj | None, lacks: str = ""
) -> Progress:
    """How far a job has come.

    Args:
        job: the job as its integration sees it; None when its kind is not known here.
        obj: the raw job, None when it is gone.
        workload: its raw Workload in either version, None while there is none.
        lacks: why there can be no Workload yet, if that is known.
    """
    if workload is None:
        return _without_workload(job, lacks)
    admission = states.status_of(workload).get("admission") or {}
    state, why = _state(job, obj, workload)
    name = workload["metadata"]["name"]
    return Progress(state, why, admission.get("clusterQueue", ""), name)


def _without_workload(job: GenericJob | None, lacks: str) -> Progress:
    end = None if job is None else job.finished()
    if end is None:
        why = Why("NoWorkload", lacks or "No manager has made a Workload yet")
        return Progress(State.QUEUED, why)
    state = State.FINISHED if end.succeeded else State.FAILED
    return Progress(state, Why(state.value, end.message))


def _state(job: GenericJob | None, obj: Obj | None, wl: Obj) -> tuple[State, Why]:
    finished = states.condition(wl, FINISHED)
    if finished.get("status") == "True":
        good = _succeeded(job, obj, finished)
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
