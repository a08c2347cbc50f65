"""A kind of jobs: what its users write, what the queue knows, and what its controller does."""

# ruff: noqa: D102 - the methods are explained in GenericJob
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from kueuelib import runtime as rt
from kueuelib.jobs import GenericJob, JobEnd, PodSet, PodSetInfo, merged_all, restored_all


@rt.frozen(kw_only=True)
class Spec(rt.Struct):
    """What a user asks for."""

    suspend: bool = False
    workers: int = 1
    template: Mapping[str, Any]


@rt.frozen
class Status(rt.Struct):
    """How it goes."""

    phase: str = ""


@rt.crd("ml.example.com", "v1", plural="trainings")
@rt.frozen(kw_only=True)
class Training(rt.KubeObject):
    """Some workers."""

    spec: Spec
    status: Status = Status()


class TrainingJob(GenericJob[Training]):
    """What the queue knows of a training."""

    def pod_sets(self) -> tuple[PodSet, ...]:
        spec = self.object.spec
        return (PodSet("workers", spec.workers, deepcopy({**spec.template})),)

    def is_suspended(self) -> bool:
        return self.object.spec.suspend

    def suspend(self) -> None:
        self._change(self.object.spec.evolve(suspend=True))

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        (template,) = merged_all("Training", [self.object.spec.template], infos)
        self._change(self.object.spec.evolve(suspend=False, template=template))

    def restore_podsets_info(self, infos: Sequence[PodSetInfo]) -> bool:
        before, (template,) = self.object, restored_all([self.object.spec.template], infos)
        self._change(before.spec.evolve(template=template))
        return self.object != before

    def finished(self) -> JobEnd | None:
        phase = self.object.status.phase
        return JobEnd(True, "the training is over") if phase == "Succeeded" else None

    def is_active(self) -> bool:
        return self.object.status.phase == "Running"

    def pods_ready(self) -> bool:
        return self.is_active()

    def _change(self, spec: Spec) -> None:
        self.object = self.object.evolve(spec=spec)


class Trainer:
    """Stands in for the controller of the kind: a training that may run succeeds, without pods."""

    def __init__(self, client: rt.Client, cache: rt.Cache) -> None:
        self.trainings = cache.informer(Training)
        self._client = client

    async def reconcile(self, key: rt.ObjectKey) -> rt.Result:
        """Look at one training."""
        training = self.trainings.get(key)
        if training is None or training.spec.suspend or training.status.phase == "Succeeded":
            return rt.DONE
        phase = "Succeeded" if training.status.phase == "Running" else "Running"
        body = {"status": rt.encode(training.status.evolve(phase=phase))}
        merge = rt.PatchType.MERGE
        await self._client.patch(Training.resource, key, body, merge, subresource="status")
        return rt.DONE
