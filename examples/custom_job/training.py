"""Training jobs in the queue: all that kueuelib has to know about them."""

# ruff: noqa: D102 - the methods are explained in GenericJob
from collections.abc import Sequence
from copy import deepcopy

from kueuelib.api.meta import Obj, Resource
from kueuelib.jobs import GenericJob, JobEnd, PodSet, PodSetInfo, check_count, merge, restore


class Training(GenericJob):
    """A launcher and its workers."""

    resource = Resource("ml.example.com", "v1", "trainings", "Training", namespaced=True)

    def roles(self) -> list[Obj]:
        return [self.object["spec"]["launcher"], self.object["spec"]["workers"]]

    def pod_sets(self) -> tuple[PodSet, ...]:
        launcher, workers = deepcopy(self.roles())
        workers_wanted = PodSet("workers", workers["replicas"], workers["template"])
        return (PodSet("launcher", 1, launcher["template"]), workers_wanted)

    def is_suspended(self) -> bool:
        return self.object["spec"].get("suspend") is True

    def suspend(self) -> None:
        self.object["spec"]["suspend"] = True

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        check_count("Training", infos, 2)
        for role, info in zip(self.roles(), infos, strict=True):
            merge(role["template"], info)
        self.object["spec"]["suspend"] = False

    def restore_podsets_info(self, infos: Sequence[PodSetInfo]) -> bool:
        pairs = zip(self.roles(), infos, strict=False)
        return sum(restore(role["template"], info) for role, info in pairs) > 0

    def finished(self) -> JobEnd | None:
        phase = self.object.get("status", {}).get("phase")
        ended = phase in ("Succeeded", "Failed")
        return JobEnd(phase == "Succeeded", f"Training: {phase}") if ended else None

    def is_active(self) -> bool:
        return bool(self.object.get("status", {}).get("active"))

    def pods_ready(self) -> bool:
        wanted = 1 + int(self.object["spec"]["workers"]["replicas"])
        return bool(self.object.get("status", {}).get("ready", 0) >= wanted)
