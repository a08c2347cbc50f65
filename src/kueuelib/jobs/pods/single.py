"""One plain pod as a job (KEP-976 story 1, spec/jobs 4.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import Obj, Resource, find_condition
from kueuelib.api.names import EVICTED
from kueuelib.jobs.contract.capabilities import (
    JobWithCustomStop,
    JobWithEquivalence,
    JobWithFinalize,
    JobWithSkip,
    Stop,
    StopReason,
)
from kueuelib.jobs.contract.commands import Command, Emit
from kueuelib.jobs.contract.generic_job import DEFAULT_POD_SET, GenericJob, JobEnd, PodSet
from kueuelib.jobs.contract.podset_info import PodSetInfo, check_count
from kueuelib.jobs.pods import marks
from kueuelib.jobs.pods.reading import (
    FAILED,
    SUCCEEDED,
    Stage,
    is_gated,
    is_managed,
    is_ready,
    phase_of,
    stage_of,
)
from kueuelib.jobs.reconcile.equivalence import same_pod_sets


class PodJob(GenericJob, JobWithCustomStop, JobWithFinalize, JobWithSkip, JobWithEquivalence):
    """A pod that is of no group.

    It runs once: stopping deletes it, and nothing of it is ever restored. A pod that may run is
    taken for what its Workload was made from, for a flavor that changed or a resize in place must
    not cost it its life.

    Args:
        obj: the raw pod.
        workload: the raw Workload that stands for it, for the reasons of stops.
    """

    resource: ClassVar[Resource] = PODS

    def __init__(self, obj: Obj, workload: Obj | None = None) -> None:
        super().__init__(obj)
        self._workload = workload

    def copy(self) -> Self:
        """The same pod as an object of its own."""
        pod = super().copy()
        pod._workload = self._workload  # noqa: SLF001 - its own kind
        return pod

    def skip(self) -> bool:
        """Whether the label does not say that it is ours."""
        return not is_managed(self.object)

    def is_suspended(self) -> bool:
        """Whether it waits for us or is over."""
        return is_gated(self.object) or phase_of(self.object) in (SUCCEEDED, FAILED)

    def suspend(self) -> None:
        """Nothing: a gate cannot be put back."""

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        """Take the gate away and add what admission brings."""
        check_count("Pod", infos, 1)
        if is_gated(self.object):
            self.object = marks.ungated(self.object, infos[0])

    def restore_podsets_info(self, infos: Sequence[PodSetInfo]) -> bool:
        """Nothing: a pod cannot be un-run."""
        del infos
        return False

    def finished(self) -> JobEnd | None:
        """The phase shows it."""
        if phase_of(self.object) == SUCCEEDED:
            return JobEnd(True, "The pod succeeded")
        if phase_of(self.object) == FAILED:
            return JobEnd(False, (self.object.get("status") or {}).get("message") or "Pod failed")
        return None

    def pod_sets(self) -> tuple[PodSet, ...]:
        """One of one pod."""
        return (PodSet(DEFAULT_POD_SET, 1, marks.template_of(self.object)),)

    def is_equivalent(self, workload: Mapping[str, Any]) -> bool:
        """While it waits, the Workload must ask for what it asks for."""
        if not is_gated(self.object):
            return True
        return same_pod_sets(self.pod_sets(), workload["spec"]["podSets"])

    def is_active(self) -> bool:
        """Whether it is on a node and not over, also while it is being deleted."""
        stage = stage_of(self.object)
        if stage is Stage.STARTED:
            return bool(self.object["spec"].get("nodeName"))
        return stage is Stage.LEAVING

    def pods_ready(self) -> bool:
        """Whether it is ready or has succeeded."""
        return is_ready(self.object) or phase_of(self.object) == SUCCEEDED

    def is_stopping(self) -> bool:
        """Never: deleting is one step."""
        return False

    def stop(
        self, infos: Sequence[PodSetInfo], reason: StopReason, message: str, now: float
    ) -> Stop:
        """Delete it; one that still waits is deleted only with its Workload."""
        del infos
        if reason is StopReason.WORKLOAD_DELETED and stage_of(self.object) is Stage.GATED:
            return Stop((*marks.deleted(self.object), Emit(self.object, marks.STOPPED, message)))
        why = stop_reason(reason, self._workload)
        return Stop(marks.stopped(self.object, why, message, now))

    def finalize(self) -> tuple[Command, ...]:
        """Take our finalizer off."""
        return marks.released([self.object])


def stop_reason(reason: StopReason, workload: Mapping[str, Any] | None) -> str:
    """The reason that a deleted pod's status gives: that of the eviction, when it is one."""
    if reason is not StopReason.WORKLOAD_EVICTED or workload is None:
        return ""
    conditions = (workload.get("status") or {}).get("conditions")
    cause = find_condition(conditions, EVICTED).get("reason", "")
    return f"WorkloadEvictedDueTo{cause}" if cause else ""
