"""The input of a plan for one job: its phase, and what is known around it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import attrs

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.errors import InvalidJob
from kueuelib.jobs.contract.capabilities import ComposableJob, JobWithCustomStop, Matching
from kueuelib.jobs.contract.generic_job import GenericJob, PodSet
from kueuelib.jobs.contract.settings import JobSettings, QuotaReleaseStrategy
from kueuelib.jobs.lookups.owners import Ancestor
from kueuelib.jobs.reconcile.priority import PriorityClasses
from kueuelib.workload import states

# ---- counts how often the Workload of a job vanished, so that it is not created again blindly ----
# A job may exist only in the cache: its watch may lag or be silent. The garbage collector removes
# every Workload of a deleted job, so a reconciler that trusts its cache would create one after the
# other. Before a Workload is created *again*, its job is therefore read from the server (client-go
# has the same rule: `RecheckDeletionTimestamp`), and each time the wait gets longer.

FIRST_PAUSE = 1.0
"""Seconds until a Workload that vanished twice is created again; doubles each time."""
LAST_PAUSE = 60.0
"""The maximum number of seconds until a Workload is created again."""
STEADY = 10.0
"""Seconds that a Workload has to exist before its end counts as the first one again."""


@attrs.frozen
class Again:
    """A Workload would be created again.

    Attributes:
        wait: seconds to wait first; 0 if it may be created now.
    """

    wait: float = 0.0


@attrs.frozen
class _Trail:
    uid: str
    present: bool
    since: float
    times: int = 0


class Vanished:
    """How often the Workload of each job vanished.

    One entry for each job that has, or had, a Workload; `forget` removes it.
    """

    def __init__(self) -> None:
        self._trails: dict[ObjectKey, _Trail] = {}

    def __len__(self) -> int:
        return len(self._trails)

    def look(self, key: ObjectKey, uid: str, now: float, *, present: bool) -> Again | None:
        """Record whether a job has a Workload.

        Args:
            key: the job.
            uid: its UID; another one starts at 0.
            now: monotonic seconds.
            present: whether it has a Workload.

        Returns:
            None if the job has a Workload or never had one.
        """
        trail = self._trails.get(key)
        if trail is None or trail.uid != uid:
            trail = _Trail(uid, present, now)
        elif present is not trail.present:
            times = trail.times
            if not present:
                times = 1 if now - trail.since >= STEADY else times + 1
            trail = _Trail(uid, present, now, times)
        self._trails[key] = trail
        if present or not trail.times:
            return None
        return Again(max(trail.since + _pause(trail.times) - now, 0.0))

    def forget(self, key: ObjectKey) -> None:
        """Forget a deleted job."""
        self._trails.pop(key, None)


def _pause(times: int) -> float:
    if times == 1:
        return 0.0
    return min(FIRST_PAUSE * 2.0 ** min(times - 2, 10), LAST_PAUSE)


# --------------------------------------------------------------------------------------------------


@attrs.frozen(slots=False)
class JobSnapshot:
    """The known facts about one job at one moment. Workloads are raw, in the internal version.

    Attributes:
        job: the job; None when it is gone.
        now: seconds since the epoch.
        settings: the configuration.
        workloads: those whose controller is the job, oldest first.
        orphans: those of a deleted owner with the job's name and kind.
        prebuilt: the one that the job's label names, if it exists.
        ancestor: the object that is queued instead of the job; None if the job stands for itself.
        namespace_labels: of the job's namespace; None while it is not known.
        flavors: the raw ResourceFlavors by name.
        classes: the priority classes by name.
        again: set if the job had a Workload before and has none now.
    """

    job: GenericJob | None
    now: float
    settings: JobSettings = attrs.field(factory=JobSettings)
    workloads: tuple[Obj, ...] = ()
    orphans: tuple[Obj, ...] = ()
    prebuilt: Obj | None = None
    ancestor: Ancestor | None = None
    namespace_labels: Mapping[str, str] | None = attrs.field(factory=dict)
    flavors: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    classes: PriorityClasses = attrs.field(factory=PriorityClasses)
    again: Again | None = None

    @cached_property
    def is_left_alone(self) -> bool:
        """Whether the configuration excludes the job's namespace."""
        labels = self.namespace_labels
        return labels is not None and not self.settings.selects(labels)

    def uses_quota(self, job: GenericJob) -> bool:
        """Whether pods of the job still use the quota that was reserved for them."""
        release = self.settings.release_of(group=isinstance(job, ComposableJob))
        waits = release is QuotaReleaseStrategy.ON_TERMINAL
        return job.is_active() or (waits and job.is_terminating())

    def pod_sets(self, job: GenericJob) -> tuple[PodSet, ...]:
        """The job's pod sets as its Workload should have them.

        Without partial admission, a Workload that is made for it has no smallest counts. A prebuilt
        one is not changed; the scheduler ignores what it has.
        """
        return self._pod_sets if job is self.job else self._pod_sets_of(job)

    @cached_property
    def _pod_sets(self) -> tuple[PodSet, ...]:
        """Those of the job itself, which several steps of a plan read."""
        assert self.job is not None
        return self._pod_sets_of(self.job)

    def _pod_sets_of(self, job: GenericJob) -> tuple[PodSet, ...]:
        try:
            pod_sets = job.pod_sets()
        except (LookupError, TypeError, AttributeError) as error:  # a field that is not there
            raise InvalidJob(f"{type(job).__name__}.pod_sets()", f"raised {error!r}") from error
        if self.settings.partial_admission or job.prebuilt_workload is not None:
            return pod_sets
        return tuple(attrs.evolve(entry, min_count=None) for entry in pod_sets)


# ---- the phases of a job that stands for itself, and of its Workload (KEP-369) -------------------


class JobPhase(enum.Enum):
    """The phase of a job that stands for itself, and of its Workload."""

    WORKLOAD_FINISHED = "the workload is finished"
    JOB_FINISHED = "the job is finished"
    WORKLOAD_DELETED = "the workload is being deleted"
    NO_WORKLOAD = "there is no workload"
    MISMATCH = "no workload matches the job"
    EVICTED = "the workload is evicted and holds quota"
    STOPPING = "an earlier stop is not complete"
    STARTING = "the workload is admitted, the job suspended"
    WAITING = "the workload is not admitted, the job suspended"
    NOT_ADMITTED = "the job runs without admission"
    RUNNING = "the job runs"


@attrs.frozen
class Case:
    """A job with its Workload."""

    situation: JobSnapshot
    job: GenericJob
    matching: Matching

    @property
    def workload(self) -> Obj:
        """The Workload; only in phases that have one."""
        assert self.matching.chosen is not None
        return self.matching.chosen

    @property
    def remembered(self) -> Obj | None:
        """The Workload that remembers the original templates, if there is only one candidate."""
        if self.matching.chosen is not None:
            return self.matching.chosen
        return self.matching.surplus[0] if len(self.matching.surplus) == 1 else None


def job_phase_of(case: Case) -> JobPhase:
    """The phase of the job and its Workload (KEP-369); the order of the tests counts."""
    job, workload = case.job, case.matching.chosen
    if workload is not None and states.is_finished(workload):
        return JobPhase.WORKLOAD_FINISHED
    if workload is not None and states.is_deleted(workload):
        return JobPhase.WORKLOAD_DELETED
    if job.finished():
        return JobPhase.JOB_FINISHED
    if workload is None:
        made = job.prebuilt_workload is None and case.matching.surplus
        return JobPhase.MISMATCH if made else JobPhase.NO_WORKLOAD
    if states.is_evicted(workload) and states.has_quota(workload):
        return JobPhase.EVICTED
    if isinstance(job, JobWithCustomStop) and job.is_stopping():
        return JobPhase.STOPPING
    if job.is_suspended() and states.is_admitted(workload) and _is_stopped_by_hand(case):
        return JobPhase.STOPPING
    if job.is_suspended():
        return JobPhase.STARTING if states.is_admitted(workload) else JobPhase.WAITING
    return JobPhase.RUNNING if states.is_admitted(workload) else JobPhase.NOT_ADMITTED


def _is_stopped_by_hand(case: Case) -> bool:
    """Whether somebody else suspended a job whose pods still use quota.

    Composable jobs and those with a stop of their own decide this themselves.
    """
    knows = isinstance(case.job, ComposableJob | JobWithCustomStop)
    return not knows and case.situation.uses_quota(case.job)
