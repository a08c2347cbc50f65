"""Which Events say that the API server still refuses something for a Workload or its job.

What is refused is tried and reported again, about once a minute. An Event no longer counts once the
write has succeeded, or if none follows it for two minutes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Obj, is_true, parse_time
from kueuelib.app.refusers import is_refusal, latest
from kueuelib.controllers.applier import ADMISSION_FAILED, PREEMPTION_FAILED
from kueuelib.jobs.reconcile.refusals import REFUSED, STATUS, WORKLOAD
from kueuelib.jobs.reconcile.steps import COMPOSE_ERROR
from kueuelib.workload import states

STANDING: Final = 120.0
"""Seconds for which an Event counts: nothing pauses longer between two tries."""
PODS_REFUSED: Final = "FailedCreate"
"""The reason of Kubernetes' own controllers."""
REASONS: Final = (REFUSED, ADMISSION_FAILED, PREEMPTION_FAILED, PODS_REFUSED, COMPOSE_ERROR)


def standing(events: Iterable[Obj], workload: Obj, job: Obj | None, now: float) -> Obj | None:
    """The last Event about a refused write that nothing has overtaken; None without one.

    Args:
        events: about the Workload, or about its job.
        workload: the raw one.
        job: the raw Job or Pod; None if it is of another kind, or was not read.
        now: seconds since the epoch.
    """
    return latest(one for one in events if _stands(one, workload, job, now))


def problem_of(event: Obj) -> str:
    """What such an Event says, for people.

    Args:
        event: the raw one.
    """
    message: str = event["message"]
    return f"its pods are not created: {message}" if event["reason"] == PODS_REFUSED else message


def _stands(event: Obj, workload: Obj, job: Obj | None, now: float) -> bool:
    reason, message, at = event["reason"], event["message"], event.get("lastTimestamp")
    if reason not in REASONS or not at or now - parse_time(at) > STANDING:
        return False
    if states.is_finished(workload) and not (reason == REFUSED and states.is_deleted(workload)):
        return False  # only its release is still to come
    if reason in (ADMISSION_FAILED, PREEMPTION_FAILED):
        return not states.has_quota(workload)
    if reason == PODS_REFUSED:
        return is_refusal(message) and (job is None or _lacks_pods(job))
    what, refused, _ = message.partition(" could not be ")
    if not refused or message.startswith(f"{WORKLOAD} could not be created"):
        return False  # something else is wrong, or the Workload was made meanwhile
    named = what.removeprefix(STATUS)
    obj = workload if named == WORKLOAD or named.startswith(f"{WORKLOADS.kind} ") else job
    part = "status" if what.startswith(STATUS) else ""
    return obj is None or _changed_at(obj, part) <= parse_time(at)


def _changed_at(obj: Obj, part: str) -> float:
    """When an object, or a subresource of it, was changed last."""
    times = [
        parse_time(entry["time"])
        for entry in obj["metadata"].get("managedFields") or ()
        if (entry.get("subresource") or "") == part and entry.get("time")
    ]
    return max(times, default=0.0)


def _lacks_pods(job: Obj) -> bool:
    """Whether a Job that may run has fewer pods than it wants."""
    spec, status = job["spec"], job.get("status") or {}
    over = is_true(job, "Complete") or is_true(job, "Failed")
    done, wanted = status.get("succeeded") or 0, spec.get("parallelism", 1)
    if spec.get("completions") is not None:
        wanted = min(wanted, spec["completions"] - done)
    elif done:
        return False  # a queue of work: no more pods follow the first success
    return not over and not spec.get("suspend") and (status.get("active") or 0) < wanted
