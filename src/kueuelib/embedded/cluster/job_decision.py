"""Decides the next actions and the status of a Job: a pure function of Job and pods.

Pods are counted without finalizers: the controller remembers which ended pods the status already
counts (`JobMemory`). After a restart it trusts the numbers in the status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import attrs

from kueuelib.api.meta import (
    Obj,
    annotations_of,
    find_condition,
    format_time,
    parse_time,
)
from kueuelib.embedded.builtins.fields import holds
from kueuelib.embedded.cluster.contract import COMPLETION_INDEX, JOB_CONTROLLER
from kueuelib.embedded.cluster.owned_pods import (
    first_to_go,
    from_template,
    is_active,
    is_ready,
    is_terminating,
)
from kueuelib.embedded.cluster.pod_life import is_terminal, phase

# ---- the values of the Job controller's decisions, and its view of a Job -------------------------

Pods = Sequence[Mapping[str, Any]]

COMPLETE, FAILED = "Complete", "Failed"
MET, TARGET = "SuccessCriteriaMet", "FailureTarget"
SUSPENDED = "Suspended"

MOST_AT_ONCE = 500
"""The maximum number of pods that one evaluation of a Job creates or deletes; the rest follows in
the next one.
"""


@attrs.frozen
class PodBackoff:
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


# ---- the pods of a Job: classifies them, and makes new ones --------------------------------------

_PREFIX_LIMIT = 57
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"


def index_of(pod: Mapping[str, Any]) -> int | None:
    """The completion index of a pod, None when it has none."""
    text = annotations_of(pod).get(COMPLETION_INDEX)
    return int(text) if text is not None and text.isdigit() else None


def new_pod(job: Mapping[str, Any], index: int | None) -> Obj:
    """A pod from the template of a Job.

    Args:
        job: the Job.
        index: its completion index, None for a Job that is not Indexed.
    """
    name = job["metadata"]["name"]
    pod = from_template(job)
    pod["metadata"]["generateName"] = f"{name[:_PREFIX_LIMIT]}-"
    if index is not None:
        _set_index(pod, name, index)
    return pod


def _set_index(pod: Obj, job: str, index: int) -> None:
    text = str(index)
    meta, spec = pod["metadata"], pod["spec"]
    meta["generateName"] = f"{job[: _PREFIX_LIMIT - len(text) - 1]}-{text}-"
    for key in ("labels", "annotations"):
        meta[key] = {**(meta.get(key) or {}), COMPLETION_INDEX: text}
    spec.setdefault("hostname", f"{job}-{text}"[:63])
    for key in ("containers", "initContainers"):
        for container in spec.get(key) or ():
            env = container.get("env") or []
            if not any(one.get("name") == _INDEX_VARIABLE for one in env):
                path = f"metadata.annotations['{COMPLETION_INDEX}']"
                source = {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}
                container["env"] = [*env, {"name": _INDEX_VARIABLE, "valueFrom": source}]


# --------------------------------------------------------------------------------------------------


def first_memory(job: Mapping[str, Any], pods: Pods) -> JobMemory:
    """The memory of a controller that sees a Job for the first time.

    If the Job was handled before, all ended pods are assumed to be counted.
    """
    status = job.get("status") or {}
    if not status:
        return JobMemory()
    ended = frozenset(uid_of(pod) for pod in pods if is_terminal(pod))
    leaving = frozenset(uid_of(pod) for pod in pods if is_terminating(pod))
    return JobMemory(counted=ended, disposed=leaving)


def decide(
    job: Mapping[str, Any],
    pods: Pods,
    memory: JobMemory,
    now: float,
    backoff: PodBackoff,
    room: int = MOST_AT_ONCE,
) -> JobDecision:
    """The next actions for a Job of this controller.

    Args:
        job: the Job.
        pods: the pods whose controller it is.
        memory: from the last decision whose status was stored, or `first_memory`.
        now: seconds since the epoch.
        backoff: how long failures delay new pods.
        room: how many more pods the cluster accepts.
    """
    old: Mapping[str, Any] = job.get("status") or {}
    if job["metadata"].get("deletionTimestamp"):
        return JobDecision(dict(old), memory)
    if is_finished(job):
        return _after_the_end(job, memory, now)
    return _Sync(job, pods, memory, now, backoff, room).run()


def _after_the_end(job: Mapping[str, Any], memory: JobMemory, now: float) -> JobDecision:
    status = dict(job.get("status") or {})
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is None:
        return JobDecision(status, memory)
    done = find_condition(status["conditions"], COMPLETE if holds(status, COMPLETE) else FAILED)
    due = parse_time(done["lastTransitionTime"]) + ttl
    return JobDecision(status, memory, due=due, expire=due <= now)


@attrs.define(eq=False, slots=False)
class _Sync:
    job: Mapping[str, Any]
    pods: Pods
    memory: JobMemory
    now: float
    backoff: PodBackoff
    room: int

    def __attrs_post_init__(self) -> None:
        self.spec: Mapping[str, Any] = self.job["spec"]
        self.status: Obj = dict(self.job.get("status") or {})
        self.withheld = 0
        self.indexed = self.spec.get("completionMode") == "Indexed"
        self.completions: int | None = self.spec.get("completions")
        self.parallelism: int = self.spec.get("parallelism", 1)
        self.suspended = bool(self.spec.get("suspend"))
        self.patient = self.spec.get("podReplacementPolicy") == "Failed"
        self.active = [pod for pod in self.pods if is_active(pod)]
        self.terminating = [pod for pod in self.pods if is_terminating(pod)]
        self.done = parse_indexes(self.status.get("completedIndexes"), self.completions)
        self.succeeded: int = len(self.done) if self.indexed else self.status.get("succeeded", 0)
        self.failed: int = self.status.get("failed", 0)
        self.create: tuple[int | None, ...] = ()
        self.delete: list[Mapping[str, Any]] = []
        self.due: float | None = None

    def run(self) -> JobDecision:
        self._start_and_suspend()
        self._count()
        ending = self._ending()
        if ending is not None:
            self._condemn()
            self._end(*ending)
        elif self.suspended:
            self._delete(self._next(self.active))
        else:
            self._manage()
        self._write_numbers()
        return JobDecision(
            self.status,
            self.memory,
            self.create,
            tuple(self.delete),
            self.due,
            withheld=self.withheld,
        )

    # ---- state

    def _condition(self, type_: str, value: str, reason: str, message: str) -> None:
        self.status["conditions"] = with_condition(
            self.status, type_, value, reason, message, self.now
        )

    def _start_and_suspend(self) -> None:
        suspended = find_condition(self.status.get("conditions"), SUSPENDED).get("status")
        if self.suspended:
            if suspended != "True":
                self._condition(SUSPENDED, "True", "JobSuspended", "Job suspended")
            return
        if suspended == "True":
            self._condition(SUSPENDED, "False", "JobResumed", "Job resumed")
            self.status["startTime"] = format_time(self.now)
        elif self.status.get("startTime") is None:
            self.status["startTime"] = format_time(self.now)

    # ---- numbers

    def _count(self) -> None:
        """Counts pods that ended since the last time, and forgets deleted ones."""
        present = {uid_of(pod) for pod in self.pods}
        counted = set(self.memory.counted & present)
        disposed = self.memory.disposed & present
        failures, failed_at = self.memory.failures, self.memory.failed_at
        new_failures = 0
        succeeded = False
        for pod in self.pods:
            uid = uid_of(pod)
            if uid in counted:
                continue
            if phase(pod) == "Succeeded":
                counted.add(uid)
                succeeded = self._count_success(pod) or succeeded
            elif uid not in disposed and self._is_failure(pod):
                counted.add(uid)
                new_failures += 1
        self.failed += new_failures
        if succeeded:
            failures = 0
        if new_failures:
            failures += new_failures
            failed_at = self.now
        self.memory = JobMemory(frozenset(counted), disposed, failures, failed_at)

    def _count_success(self, pod: Mapping[str, Any]) -> bool:
        if not self.indexed:
            self.succeeded += 1
            return True
        index = index_of(pod)
        if index is None or (self.completions is not None and index >= self.completions):
            return False
        self.done.add(index)
        self.succeeded = len(self.done)
        return True

    def _is_failure(self, pod: Mapping[str, Any]) -> bool:
        if phase(pod) == "Failed":
            return True
        return bool(pod["metadata"].get("deletionTimestamp")) and not self.patient

    # ---- the end

    def _ending(self) -> tuple[str, str, str] | None:
        """Why the Job ends: the first condition that shows it, with reason and message."""
        for type_ in (TARGET, MET):
            condition = find_condition(self.status.get("conditions"), type_)
            if condition.get("status") == "True":
                return type_, condition.get("reason", ""), condition.get("message", "")
        if self.failed > self.spec.get("backoffLimit", 6):
            text = "Job has reached the specified backoff limit"
            return TARGET, "BackoffLimitExceeded", text
        deadline = self._deadline()
        if deadline is not None and deadline <= self.now:
            text = "Job was active longer than specified deadline"
            return TARGET, "DeadlineExceeded", text
        if self._is_complete():
            return MET, "CompletionsReached", "Reached expected number of succeeded pods"
        self.due = deadline
        return None

    def _deadline(self) -> float | None:
        seconds = self.spec.get("activeDeadlineSeconds")
        start = self.status.get("startTime")
        if seconds is None or start is None or self.suspended:
            return None
        return parse_time(start) + seconds  # type: ignore[no-any-return]

    def _is_complete(self) -> bool:
        if self.completions is None:
            return self.succeeded > 0 and not self.active and not self.terminating
        return self.succeeded >= self.completions

    def _condemn(self) -> None:
        """Deletes pods that are still active when a Job ends; they count as failed."""
        condemned = self._next(self.active)
        uids = {uid_of(pod) for pod in condemned}
        self.failed += len(uids)
        self.memory = attrs.evolve(self.memory, counted=self.memory.counted | uids)
        self._delete(condemned)

    def _end(self, first: str, reason: str, message: str) -> None:
        """Announces the end of the Job, and reports it once no pod is active.

        The API server refuses the end of a Job without a start time, for example of one whose pods
        end after it was suspended.
        """
        if not holds(self.status, first):
            self._condition(first, "True", reason, message)
        never_started = self.suspended and self.completions == 0
        if self.status.get("startTime") is None and not never_started:
            return
        if self.active or self.terminating:
            return
        last = COMPLETE if first == MET else FAILED
        self._condition(last, "True", reason, message)
        if last == COMPLETE:
            self.status["completionTime"] = format_time(self.now)

    # ---- pods

    def _next(self, pods: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """As many pods as one evaluation may delete; another evaluation follows at once for the
        rest.
        """
        if len(pods) > MOST_AT_ONCE:
            self.due = self.now
        return pods[:MOST_AT_ONCE]

    def _delete(self, pods: Sequence[Mapping[str, Any]]) -> None:
        """Deletes pods, which stop being active in the same status."""
        self.delete += pods
        gone = {uid_of(pod) for pod in pods}
        self.memory = attrs.evolve(self.memory, disposed=self.memory.disposed | gone)
        self.active = [pod for pod in self.active if uid_of(pod) not in gone]
        self.terminating = [
            *self.terminating,
            *(pod for pod in pods if pod["spec"].get("nodeName")),
        ]

    def _manage(self) -> None:
        if self.indexed:
            self._delete_misplaced()
        wanted = self._wanted()
        if len(self.active) > wanted:
            excess = sorted(self.active, key=first_to_go)[: len(self.active) - wanted]
            self._delete(self._next(excess))
            return
        missing = wanted - len(self.active)
        if self.patient:
            missing -= len(self.terminating)
        if missing <= 0:
            return
        ready_at = self.memory.failed_at + self.backoff.delay(self.memory.failures)
        if self.memory.failures and ready_at > self.now:
            self.due = ready_at if self.due is None else min(self.due, ready_at)
            return
        count = min(missing, MOST_AT_ONCE, max(self.room, 0))
        if self.indexed:
            self.create = tuple(self._free_indexes(count))
        else:
            self.create = (None,) * count
        if missing > count == MOST_AT_ONCE:
            self.due = self.now
        elif missing > count:
            self.withheld = missing - count

    def _wanted(self) -> int:
        """The desired number of active pods."""
        if self.completions is None:
            return min(self.parallelism, len(self.active)) if self.succeeded else self.parallelism
        return min(self.parallelism, max(self.completions - self.succeeded, 0))

    def _delete_misplaced(self) -> None:
        """For an Indexed Job, deletes pods with unneeded or duplicate indexes."""
        seen: set[int] = set()
        misplaced = []
        for pod in sorted(self.active, key=first_to_go, reverse=True):
            index = index_of(pod)
            if (
                index is None
                or index in seen
                or index in self.done
                or (self.completions is not None and index >= self.completions)
            ):
                misplaced.append(pod)
            else:
                seen.add(index)
        if misplaced:
            self._delete(self._next(misplaced))

    def _free_indexes(self, count: int) -> list[int]:
        used = {index_of(pod) for pod in self.active} | self.done
        if self.patient:
            used |= {index_of(pod) for pod in self.terminating}
        free = (index for index in range(self.completions or 0) if index not in used)
        return list(islice(free, count))

    def _write_numbers(self) -> None:
        numbers = {
            "active": len(self.active) + len(self.create),
            "succeeded": self.succeeded,
            "failed": self.failed,
        }
        for key, value in numbers.items():
            if value:
                self.status[key] = value
            else:
                self.status.pop(key, None)
        self.status["ready"] = sum(1 for pod in self.active if is_ready(pod))
        self.status["terminating"] = len(self.terminating)
        self.status.setdefault("uncountedTerminatedPods", {})
        if self.indexed and self.done:
            self.status["completedIndexes"] = format_indexes(self.done)
        elif self.indexed:
            self.status.pop("completedIndexes", None)


def parse_indexes(text: str | None, limit: int | None = None) -> set[int]:
    """The indexes in a text, ignoring those at or above the limit and invalid numbers."""
    indexes: set[int] = set()
    for part in (text or "").split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            continue
        low = int(first)
        high = int(last) if dash else low
        if limit is not None:
            high = min(high, limit - 1)
        indexes.update(range(low, high + 1))
    return indexes


def format_indexes(indexes: Iterable[int]) -> str:
    """The text of a set of indexes."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
