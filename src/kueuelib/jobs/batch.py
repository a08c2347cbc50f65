"""The integration of `batch/v1` Job, with its rules (KEP-369); the model for other kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Self

from kueuelib.api.batch import JobSpec
from kueuelib.api.kinds import JOBS
from kueuelib.api.meta import Obj, Resource, annotations_of, copied, find_condition, is_true
from kueuelib.api.names import MIN_PARALLELISM, SYNC_COMPLETIONS, is_go_bool
from kueuelib.api.schema import struct_schema
from kueuelib.errors import FieldError
from kueuelib.jobs.contract import podset_info
from kueuelib.jobs.contract.capabilities import (
    JobWithCustomStop,
    JobWithReclaimablePods,
    Stop,
    StopReason,
    begin_stop,
    end_stop,
    forget_condition,
    is_stop_begun,
    is_unseen,
)
from kueuelib.jobs.contract.commands import Change, Command
from kueuelib.jobs.contract.field_rules import annotation_path, forbidden, invalid
from kueuelib.jobs.contract.generic_job import DEFAULT_POD_SET, GenericJob, JobEnd, PodSet
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.contract.topology import BY_COMPLETION, asking_annotations, topology_request
from kueuelib.machinery.store import shared, strip
from kueuelib.runtime.webhook.admission import shape_with

SUSPENDED = "Suspended"
SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"
FAILURE_TARGET = "FailureTarget"

CONTROLLER_LABELS = frozenset(
    {
        "controller-uid",
        "job-name",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-name",
    }
)
"""Labels that the Job controller puts into the template."""


class BatchJob(GenericJob, JobWithReclaimablePods, JobWithCustomStop):
    """A `batch/v1` Job.

    Stopping takes up to three writes: suspend and, once the Job controller has seen that and no pod
    is active, remove the start time and restore. The API server allows changes of a Job's template
    only while the Job is suspended, without active pods, and (before 1.36) without a start time.
    The first write adds the annotation `kueue.x-k8s.io/stopping` and the last one removes it, so
    that an interrupted stop is completed.

    A Job that is about to end is not stopped, and keeps its start time: no pod would start, and
    without it the API server refuses the end.
    """

    resource: ClassVar[Resource] = JOBS

    def is_suspended(self) -> bool:
        """Whether `spec.suspend` is set and the last stop is complete."""
        return self._suspend_set and not self.is_stopping()

    def is_stopping(self) -> bool:
        """Whether the Job is suspended, but an earlier stop is incomplete."""
        if not self._suspend_set:
            return False
        return is_stop_begun(self.object) or bool(self.start_time) or self._lacks_start

    def suspend(self) -> None:
        """Set `spec.suspend`."""
        self._spec["suspend"] = True

    def suspended_copy(self) -> Self:
        """A suspended copy that shares everything outside and inside `spec`.

        A subclass whose `suspend` changes more has to override this.
        """
        job = type(self)({**self.object, "spec": {**self._spec}})
        job.suspend()
        return job

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        """Unsuspend; with a minimum parallelism, run as many pods as were admitted."""
        podset_info.check_count("Job", infos, 1)
        (info,) = infos
        podset_info.merge(self._template, info)
        self._spec["suspend"] = False
        if self._min_count is not None and info.count != self._pods_count:
            self._set_parallelism(info.count)

    def restore_podsets_info(self, infos: Sequence[PodSetInfo]) -> bool:
        """Restore the template, but keep the labels of the Job controller."""
        if not infos:
            return False
        before: Obj = copied(self._spec)
        info = infos[0]
        if info.count != self._pods_count:
            self._set_parallelism(info.count)
        kept = {
            key: value
            for key, value in ((self._template.get("metadata") or {}).get("labels") or {}).items()
            if key in CONTROLLER_LABELS
        }
        podset_info.restore(
            self._template,
            PodSetInfo(
                info.name,
                info.count,
                annotations=info.annotations,
                labels={**info.labels, **kept},
                node_selector=info.node_selector,
                tolerations=info.tolerations,
                scheduling_gates=info.scheduling_gates,
            ),
        )
        return self._spec != before

    def finished(self) -> JobEnd | None:
        """The end, as the conditions Complete and Failed show it."""
        for condition in self._status.get("conditions") or ():
            if condition.get("status") != "True":
                continue
            if condition.get("type") == "Complete":
                return JobEnd(True, condition.get("message") or "Job finished successfully")
            if condition.get("type") == "Failed":
                return JobEnd(False, condition.get("message") or "Job failed")
        return None

    def pod_sets(self) -> tuple[PodSet, ...]:
        """One pod set, with the smaller of parallelism and completions."""
        template = dict(self._template)
        if template.get("spec"):
            template["spec"] = dict(template["spec"])  # a start replaces fields, and nothing deeper
        meta = template.get("metadata") or {}
        labels = {
            key: value
            for key, value in (meta.get("labels") or {}).items()
            if key not in CONTROLLER_LABELS
        }
        kept = {"labels": labels, "annotations": meta.get("annotations")}
        template["metadata"] = {key: value for key, value in kept.items() if value}
        asked = topology_request(asking_annotations(template), BY_COMPLETION)
        return (PodSet(DEFAULT_POD_SET, self._pods_count, template, self._min_count, asked),)

    def is_active(self) -> bool:
        """Whether pods run or wait to run, by `status.active`, or may be starting, because the Job
        controller has not seen the last start or stop yet. It does not report that a Job is
        suspended, and creates no pods, once the Job is being deleted.
        """
        conditions = self._status.get("conditions")
        unseen = self._suspend_set and is_unseen(self.object, conditions, SUSPENDED)
        if self.is_deleted:
            unseen = not (self._suspend_set or self.start_time)
        return unseen or bool(self._status.get("active"))

    def is_ending(self) -> bool:
        """Whether all completions have succeeded, or the Job controller ends it for another
        reason.
        """
        if self._is(SUCCESS_CRITERIA_MET) or self._is(FAILURE_TARGET):
            return True
        succeeded, completions = self._status.get("succeeded"), self._spec.get("completions")
        return bool(succeeded) and completions is not None and succeeded >= completions

    def is_terminating(self) -> bool:
        """Whether pods that are being deleted have not ended, by `status.terminating`."""
        return bool(self._status.get("terminating"))

    def pods_ready(self) -> bool:
        """Whether as many pods are ready or have succeeded as should run at a time.

        The Job controller counts pods that have succeeded a moment after it has seen them.
        """
        ready = (self._status.get("ready") or 0) + (self._status.get("succeeded") or 0)
        uncounted = (self._status.get("uncountedTerminatedPods") or {}).get("succeeded") or ()
        return bool(ready + len(uncounted) >= self._pods_count)

    def reclaimable_pods(self) -> Mapping[str, int]:
        """How many of its pods are no longer needed, because few completions are left."""
        succeeded = self._status.get("succeeded") or 0
        completions = self._spec.get("completions")
        remaining = (self._parallelism if completions is None else completions) - succeeded
        if not succeeded or self._parallelism == 1:
            return {}
        spare = self._pods_count - max(0, remaining)
        return {DEFAULT_POD_SET: spare} if spare > 0 else {}

    def stop(
        self, infos: Sequence[PodSetInfo], reason: StopReason, message: str, now: float
    ) -> Stop:
        """The remaining writes of: suspend, and once no pod is active, remove the start time and
        restore.

        Only a Job controller that has seen the suspension sets `Suspended` to True.
        """
        del reason, message, now
        if self.is_ending():
            return Stop(self._startable_end())
        state = self.copy()
        if not self._suspend_set:
            forgotten = forget_condition(state, "status.conditions", SUSPENDED)
            return Stop((*forgotten, begin_stop(state)), True)
        if self.is_active():
            return Stop()
        cleared = self._change_status(state, startTime=None) if self.start_time else ()
        state.object.get("status", {}).pop("startTime", None)
        return Stop((*cleared, *end_stop(state, infos)))

    def _startable_end(self) -> tuple[Command, ...]:
        """Gives a Job that ended while it was stopped its start time back, without which the API
        server refuses its end.
        """
        if not self._lacks_start:
            return ()
        since = find_condition(self._status.get("conditions"), SUSPENDED)
        at = since.get("lastTransitionTime") or self.object["metadata"]["creationTimestamp"]
        return self._change_status(self.copy(), startTime=at)

    @staticmethod
    def _change_status(state: BatchJob, **fields: Any) -> tuple[Command, ...]:
        """Change the status of a copy; returns the write for it."""
        before = copied(state.object)
        state.object["status"] = {**(state.object.get("status") or {}), **fields}
        return (Change(state.resource, before, copied(state.object), subresource="status"),)

    # ---- reading

    @property
    def _spec(self) -> Obj:
        return self.object["spec"]  # type: ignore[no-any-return]

    @property
    def _template(self) -> Obj:
        return self._spec["template"]  # type: ignore[no-any-return]

    @property
    def _status(self) -> Mapping[str, Any]:
        return self.object.get("status") or {}

    def _is(self, type: str) -> bool:
        """Whether a condition is True."""
        return is_true(self.object, type)

    @property
    def _lacks_start(self) -> bool:
        """Whether it cannot end, because a stop has removed its start time."""
        over = self._is("Complete") or self._is("Failed")
        return self._suspend_set and not self.start_time and self.is_ending() and not over

    @property
    def _suspend_set(self) -> bool:
        return self._spec.get("suspend") is True

    @property
    def start_time(self) -> str:
        """When the Job controller started the Job, as text; empty before that."""
        return str(self._status.get("startTime") or "")

    @property
    def _parallelism(self) -> int:
        parallelism = self._spec.get("parallelism")
        return 1 if parallelism is None else int(parallelism)

    @property
    def _pods_count(self) -> int:
        return pods_count(self._spec)

    @property
    def _min_count(self) -> int | None:
        return min_parallelism(self.object)

    def _set_parallelism(self, count: int) -> None:
        self._spec["parallelism"] = count
        if is_go_bool(annotations_of(self.object).get(SYNC_COMPLETIONS, "")):
            self._spec["completions"] = count


def trim(obj: Obj) -> Obj:
    """What is stored of a Job; Jobs with equal templates share them. Changes its argument.

    The selector, with the UID of the Job, is the Job controller's alone.
    """
    spec = strip(obj)["spec"]
    spec.pop("selector", None)
    spec["template"]["spec"] = shared(spec["template"]["spec"])
    return obj


def pods_count(spec: Mapping[str, Any]) -> int:
    """How many pods of a Job run at the same time."""
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    count = 1 if parallelism is None else int(parallelism)
    return count if completions is None else min(count, int(completions))


def min_parallelism(obj: Mapping[str, Any]) -> int | None:
    """The fewest pods of a Job, by its annotation; None without one or if it is not a number."""
    text = annotations_of(obj).get(MIN_PARALLELISM)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        return None


# ---- validates queued `batch/v1` Jobs ------------------------------------------------------------

JUDGED: Final = ("spec.parallelism", "spec.completions")
"""The mutable fields that the rules read, besides labels and annotations."""
_COUNTS = ("parallelism", "completions")


def validate_batch_job(new: Obj, old: Obj | None) -> Sequence[FieldError]:
    """The rules of partial admission."""
    errors = [*_min_parallelism(new, old), *_sync_completions(new)]
    if old is not None:
        errors += _changes(new, old)
    return errors


def _min_parallelism(new: Obj, old: Obj | None) -> list[FieldError]:
    text = annotations_of(new).get(MIN_PARALLELISM)
    if text is None:
        return []
    path = annotation_path(MIN_PARALLELISM)
    try:
        value = int(text)
    except ValueError:
        return [invalid(path, text, "must be a number")]
    if value <= 0:
        return [invalid(path, value, "must be greater than 0")]
    count = pods_count(new["spec"])
    if value >= count and _bound_applies(new, old):
        return [invalid(path, value, f"must be less than the number of pods, {count}")]
    return []


def _bound_applies(new: Obj, old: Obj | None) -> bool:
    """Whether the minimum applies: a running Job may have been admitted with fewer pods."""
    if old is None:
        return True
    if not _suspended(new):
        return False
    changed = any(new["spec"].get(field) != old["spec"].get(field) for field in _COUNTS)
    before, after = (annotations_of(obj).get(MIN_PARALLELISM) for obj in (old, new))
    return changed or before != after


def _sync_completions(new: Obj) -> list[FieldError]:
    text = annotations_of(new).get(SYNC_COMPLETIONS)
    if text is None:
        return []
    path, spec = annotation_path(SYNC_COMPLETIONS), new["spec"]
    value = is_go_bool(text)
    if value is None:
        return [invalid(path, text, "must be true or false")]
    if not value:
        return []
    if spec.get("completionMode") != "Indexed":
        return [invalid(path, text, "needs the completion mode Indexed")]
    if spec.get("completions") != spec.get("parallelism", 1):
        detail = f"must equal the parallelism, because the annotation {SYNC_COMPLETIONS} is true"
        return [invalid("spec.completions", spec.get("completions"), detail)]
    return []


def _changes(new: Obj, old: Obj) -> list[FieldError]:
    errors = []
    if (
        MIN_PARALLELISM in annotations_of(old)
        and not _suspended(old)
        and new["spec"].get("parallelism") != old["spec"].get("parallelism")
    ):
        detail = "cannot change while a Job with partial admission is not suspended"
        errors.append(forbidden("spec.parallelism", detail))
    before, after = (annotations_of(obj).get(SYNC_COMPLETIONS) for obj in (old, new))
    if before != after and not _suspended(old) and not _suspended(new):
        detail = "cannot change while the Job is not suspended"
        errors.append(forbidden(annotation_path(SYNC_COMPLETIONS), detail))
    return errors


def _suspended(obj: Mapping[str, Any]) -> bool:
    return obj["spec"].get("suspend") is True


# ---- the integration of batch Jobs: the only one that is enabled by default ----------------------

BATCH_JOB = Integration(
    "batch/job",
    BatchJob,
    validate_batch_job,
    judged=JUDGED,
    plain=True,
    allows_prebuilt=True,
    transform=trim,
    shape=shape_with({"spec": struct_schema(JobSpec)}, required="spec"),
)
