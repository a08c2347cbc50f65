"""Training jobs in the queue: all that kueuelib has to know about them."""

# ruff: noqa: D102 - the methods are explained in GenericJob
from collections.abc import Sequence
from copy import deepcopy

from kueuelib.jobs import GenericJob, JobEnd, PodSet, PodSetInfo, merge_all, restore_all
from kueuelib.runtime import Obj, Resource


class Training(GenericJob):
    """A launcher and its workers."""

    resource = Resource("ml.example.com", "v1", "trainings", "Training", namespaced=True)

    def roles(self) -> list[Obj]:
        return [self.spec["launcher"], self.spec["workers"]]

    def pod_sets(self) -> tuple[PodSet, ...]:
        launcher, workers = deepcopy(self.roles())
        workers_wanted = PodSet("workers", workers["replicas"], workers["template"])
        return (PodSet("launcher", 1, launcher["template"]), workers_wanted)

    def is_suspended(self) -> bool:
        return self.spec.get("suspend") is True

    def suspend(self) -> None:
        self.spec["suspend"] = True

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        merge_all("Training", [role["template"] for role in self.roles()], infos)
        self.spec["suspend"] = False

    def restore_podsets_info(self, infos: Sequence[PodSetInfo]) -> bool:
        return restore_all([role["template"] for role in self.roles()], infos)

    def finished(self) -> JobEnd | None:
        phase = self.status.get("phase")
        ended = phase in ("Succeeded", "Failed")
        return JobEnd(phase == "Succeeded", f"Training: {phase}") if ended else None

    def is_active(self) -> bool:
        return bool(self.status.get("active"))

    def pods_ready(self) -> bool:
        wanted = 1 + int(self.spec["workers"]["replicas"])
        return bool(self.status.get("ready", 0) >= wanted)
