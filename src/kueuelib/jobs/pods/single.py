"""One plain pod as a job (KEP-976 story 1)."""

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
    PodStage,
    is_gated,
    is_managed,
    is_on_node,
    is_ready,
    phase_of,
    stage_of,
)
from kueuelib.jobs.pods.roster import same_shapes
from kueuelib.jobs.reconcile.matching import same_pod_sets


class PodJob(
    GenericJob,
    JobWithCustomStop,
    JobWithFinalize,
    JobWithSkip,
    JobWithEquivalence,
):
    """A pod without a group.

    It runs once: stopping deletes it, and nothing is ever restored. A pod that may run always
    matches its Workload, so that a changed flavor or an in-place resize does not delete it.

    Args:
        obj: the raw pod.
        workload: the raw Workload of the pod, for the reasons of stops.
    """

    resource: ClassVar[Resource] = PODS

    def __init__(self, obj: Obj, workload: Obj | None = None) -> None:
        super().__init__(obj)
        self._workload = workload

    def copy(self) -> Self:
        """The same pod as a separate copy."""
        pod = super().copy()
        pod._workload = self._workload  # noqa: SLF001 - its own kind
        return pod

    def skip(self) -> bool:
        """Whether it lacks the label that marks it as ours."""
        return not is_managed(self.object)

    def is_suspended(self) -> bool:
        """Whether it is gated or has finished."""
        return is_gated(self.object) or phase_of(self.object) in (SUCCEEDED, FAILED)

    def suspend(self) -> None:
        """Does nothing: a gate cannot be restored."""

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        """Remove the gate and add what admission adds."""
        check_count("Pod", infos, 1)
        if is_gated(self.object):
            self.object = marks.ungated(self.object, infos[0])

    def restore_podsets_info(self, infos: Sequence[PodSetInfo]) -> bool:
        """Does nothing: a pod cannot be reset."""
        del infos
        return False

    def finished(self) -> JobEnd | None:
        """The end, as the phase shows it."""
        if phase_of(self.object) == SUCCEEDED:
            return JobEnd(True, "The pod succeeded")
        if phase_of(self.object) == FAILED:
            return JobEnd(False, (self.object.get("status") or {}).get("message") or "Pod failed")
        return None

    def pod_sets(self) -> tuple[PodSet, ...]:
        """One pod set with one pod."""
        return (marks.pod_set_of(DEFAULT_POD_SET, 1, self.object),)

    def is_equivalent(self, workload: Mapping[str, Any]) -> bool:
        """Whether the Workload asks for the same as the pod; only checked while the pod waits."""
        if not is_gated(self.object):
            return True
        wanted = self.pod_sets()
        return same_pod_sets(wanted, workload["spec"]["podSets"]) and same_shapes(wanted, workload)

    def is_active(self) -> bool:
        """Whether it is on a node, has not finished, and is not being deleted."""
        return is_on_node(self.object)

    def is_terminating(self) -> bool:
        """Whether it is being deleted and may still run."""
        return stage_of(self.object) is PodStage.LEAVING

    def pods_ready(self) -> bool:
        """Whether it is ready or has succeeded."""
        return is_ready(self.object) or phase_of(self.object) == SUCCEEDED

    def is_stopping(self) -> bool:
        """Never: deleting is one step."""
        return False

    def stop(
        self, infos: Sequence[PodSetInfo], reason: StopReason, message: str, now: float
    ) -> Stop:
        """Delete it; a waiting pod is deleted only with its Workload."""
        del infos
        if reason is StopReason.WORKLOAD_DELETED and stage_of(self.object) is PodStage.GATED:
            return Stop((*marks.deleted(self.object), Emit(self.object, marks.STOPPED, message)))
        why = stop_reason(reason, self._workload)
        return Stop(marks.stopped(self.object, why, message, now))

    def finalize(self) -> tuple[Command, ...]:
        """Remove our finalizer."""
        return marks.released([self.object])


def stop_reason(reason: StopReason, workload: Mapping[str, Any] | None) -> str:
    """The reason in a deleted pod's status: that of the eviction, if there is one."""
    if reason is not StopReason.WORKLOAD_EVICTED or workload is None:
        return ""
    conditions = (workload.get("status") or {}).get("conditions")
    cause = find_condition(conditions, EVICTED).get("reason", "")
    return f"WorkloadEvictedDueTo{cause}" if cause else ""
