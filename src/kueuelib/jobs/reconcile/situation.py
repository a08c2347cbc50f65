"""The input of a plan for one job."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import attrs

from kueuelib.api.meta import Obj
from kueuelib.errors import InvalidJob
from kueuelib.jobs.contract.capabilities import ComposableJob
from kueuelib.jobs.contract.generic_job import GenericJob, PodSet
from kueuelib.jobs.contract.settings import JobSettings, QuotaReleaseStrategy
from kueuelib.jobs.lookups.owners import Ancestor
from kueuelib.jobs.reconcile.priority import PriorityClasses
from kueuelib.jobs.reconcile.vanished import Again


@attrs.frozen(slots=False)
class Situation:
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
