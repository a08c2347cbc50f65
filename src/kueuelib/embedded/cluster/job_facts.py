"""The values of the Job controller's decisions, and its view of a Job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj, format_time
from kueuelib.embedded.builtins.raw import holds
from kueuelib.embedded.cluster.contract import JOB_CONTROLLER

Pods = Sequence[Mapping[str, Any]]

COMPLETE, FAILED = "Complete", "Failed"
MET, TARGET = "SuccessCriteriaMet", "FailureTarget"
SUSPENDED = "Suspended"

MOST_AT_ONCE = 500
"""The maximum number of pods that one evaluation of a Job creates or deletes; the rest follows in
the next one.
"""


@attrs.frozen
class Backoff:
    """The delay before a pod replaces a failed one.

    Attributes:
        base: seconds after the first failure; each further one in a row doubles it.
        cap: the maximum number of seconds.
    """

    base: float = 0.5
    cap: float = 10.0

    def delay(self, failures: int) -> float:
        """The delay in seconds after that many consecutive failures."""
        return 0.0 if failures <= 0 else min(self.base * 2.0 ** min(failures - 1, 30), self.cap)


@attrs.frozen
class JobMemory:
    """What the controller remembers between two evaluations of a Job.

    Attributes:
        counted: UIDs of pods that the status counts.
        disposed: UIDs of pods that the controller deleted itself; these are not failures.
        failures: failed pods since the last success.
        failed_at: when the latest of these was seen.
    """

    counted: frozenset[str] = frozenset()
    disposed: frozenset[str] = frozenset()
    failures: int = 0
    failed_at: float = 0.0


@attrs.frozen
class JobDecision:
    """The decision about a Job.

    Attributes:
        status: the whole new status; equal to the old one if nothing changed.
        create: the completion indexes of new pods, None for each pod of a NonIndexed Job.
        delete: pods to delete.
        withheld: how many more pods are due now but exceed the cluster's limit.
        memory: the new memory, valid once the status is stored.
        due: when to evaluate it again without an event; None for never.
        expire: whether to delete the Job itself, because its TTL after the end is over.
    """

    status: Obj
    memory: JobMemory
    create: tuple[int | None, ...] = ()
    delete: tuple[Mapping[str, Any], ...] = ()
    due: float | None = None
    expire: bool = False
    withheld: int = 0


def uid_of(obj: Mapping[str, Any]) -> str:
    """The UID of an object."""
    return obj["metadata"]["uid"]  # type: ignore[no-any-return]


def is_finished(job: Mapping[str, Any]) -> bool:
    """Whether a Job is over."""
    status = job.get("status") or {}
    return holds(status, COMPLETE) or holds(status, FAILED)


def is_ours(job: Mapping[str, Any]) -> bool:
    """Whether this controller manages the Job, and not one named in `managedBy`."""
    manager = job["spec"].get("managedBy")
    return manager is None or manager == JOB_CONTROLLER


def with_condition(
    status: Mapping[str, Any], type_: str, value: str, reason: str, message: str, now: float
) -> list[Obj]:
    """The conditions with one added or changed."""
    at = format_time(now)
    new = {
        "type": type_,
        "status": value,
        "lastProbeTime": at,
        "lastTransitionTime": at,
        "reason": reason,
        "message": message,
    }
    return [one for one in status.get("conditions") or () if one["type"] != type_] + [new]
