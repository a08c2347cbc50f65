"""A kind of jobs in the queue, programmed: a subclass of GenericJob, tried without a cluster."""

from collections.abc import Sequence
from copy import deepcopy

from kueuelib.jobs import GenericJob, JobEnd, PodSet, PodSetInfo, merge_all, restore_all
from kueuelib.runtime import Obj, Resource


class Pipeline(GenericJob):
    """One pod per stage, in a list; the states are words."""

    resource = Resource("example.com", "v1", "pipelines", "Pipeline", namespaced=True)

    def pod_sets(self) -> tuple[PodSet, ...]:
        """One pod set for each stage."""
        stages = deepcopy(self.spec["stages"])
        return tuple(PodSet(stage["name"], 1, stage["template"]) for stage in stages)

    def is_suspended(self) -> bool:
        """Whether the vendor's controller leaves it alone."""
        return bool(self.spec.get("mode") == "Paused")

    def suspend(self) -> None:
        """Stop it."""
        self.spec["mode"] = "Paused"

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        """Start it on the nodes of its flavors."""
        merge_all("Pipeline", [stage["template"] for stage in self.spec["stages"]], infos)
        self.spec["mode"] = "Running"

    def restore_podsets_info(self, infos: Sequence[PodSetInfo]) -> bool:
        """Undo what the flavors added; whether anything changed."""
        return restore_all([stage["template"] for stage in self.spec["stages"]], infos)

    def finished(self) -> JobEnd | None:
        """How it ended."""
        phase = self.status.get("phase")
        return JobEnd(phase == "Done", f"it is {phase}") if phase in ("Done", "Broken") else None

    def is_active(self) -> bool:
        """Whether pods still use quota."""
        return bool(self.status.get("phase") == "Running")

    def pods_ready(self) -> bool:
        """Whether all pods are ready."""
        return self.is_active()


if __name__ == "__main__":
    load: Obj = {"name": "load", "template": {"spec": {"containers": [{"name": "c"}]}}}
    job = Pipeline(Pipeline.resource.new("etl", spec={"mode": "Paused", "stages": [load]}))
    job.run_with_podsets_info([PodSetInfo("load", node_selector={"pool": "spot"})])
    print(job.pod_sets()[0].name, job.is_suspended(), job.spec["stages"][0]["template"])

# Prints:
# load False {'spec': {'containers': [{'name': 'c'}], 'nodeSelector': {'pool': 'spot'}}}
