"""Training jobs in the queue, as values of a class: the same kind with a typed object."""

# ruff: noqa: D102 - the methods are explained in GenericJob
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from kueuelib.jobs import GenericJob, JobEnd, PodSet, PodSetInfo, merged_all, restored_all
from kueuelib.runtime import KubeObject, Obj, Struct, crd, frozen


@frozen(kw_only=True)
class Role(Struct):
    """Pods of one shape."""

    replicas: int = 1
    template: Mapping[str, Any]


@frozen(kw_only=True)
class TrainingSpec(Struct):
    """What a user asks for."""

    suspend: bool = False
    launcher: Role
    workers: Role


@frozen
class TrainingStatus(Struct):
    """What the controller of the kind reports."""

    phase: str = ""
    active: int = 0
    ready: int = 0


@crd("ml.example.com", "v1", plural="trainings")
@frozen(kw_only=True)
class Training(KubeObject):
    """A launcher and its workers."""

    spec: TrainingSpec
    status: TrainingStatus = TrainingStatus()


class TrainingJob(GenericJob[Training]):
    """All that kueuelib has to know about them."""

    def pod_sets(self) -> tuple[PodSet, ...]:
        spec = self.object.spec
        workers = PodSet("workers", spec.workers.replicas, deepcopy({**spec.workers.template}))
        return (PodSet("launcher", 1, deepcopy({**spec.launcher.template})), workers)

    def is_suspended(self) -> bool:
        return self.object.spec.suspend

    def suspend(self) -> None:
        self.object = self.object.evolve(spec=self.object.spec.evolve(suspend=True))

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        self._change(merged_all("Training", self._templates(), infos), suspend=False)

    def restore_podsets_info(self, infos: Sequence[PodSetInfo]) -> bool:
        before = self.object
        self._change(restored_all(self._templates(), infos))
        return self.object != before

    def finished(self) -> JobEnd | None:
        phase = self.object.status.phase
        ended = phase in ("Succeeded", "Failed")
        return JobEnd(phase == "Succeeded", f"Training: {phase}") if ended else None

    def is_active(self) -> bool:
        return self.object.status.active > 0

    def pods_ready(self) -> bool:
        return self.object.status.ready >= 1 + self.object.spec.workers.replicas

    def _templates(self) -> list[Mapping[str, Any]]:
        return [self.object.spec.launcher.template, self.object.spec.workers.template]

    def _change(self, templates: Iterable[Obj], **more: bool) -> None:
        spec, (launcher, workers) = self.object.spec, templates
        roles = {
            "launcher": spec.launcher.evolve(template=launcher),
            "workers": spec.workers.evolve(template=workers),
        }
        self.object = self.object.evolve(spec=spec.evolve(**roles, **more))
