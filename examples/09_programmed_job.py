"""A kind of jobs in the queue, programmed: a subclass of GenericJob, tried without a cluster."""

from collections.abc import Sequence
from copy import deepcopy

from kueuelib.jobs import GenericJob, JobEnd, PodSet, PodSetInfo, check_count, merge, restore
from kueuelib.runtime import Resource


class Pipeline(GenericJob):
    """One pod per stage, in a list; the states are words."""

    resource = Resource("example.com", "v1", "pipelines", "Pipeline", namespaced=True)

    def pod_sets(self) -> tuple[PodSet, ...]:
        """One pod set for each stage."""
        stages = deepcopy(self.object["spec"]["stages"])
        return tuple(PodSet(stage["name"], 1, stage["template"]) for stage in stages)

    def is_suspended(self) -> bool:
        """Whether the vendor's controller leaves it alone."""
        return bool(self.object["spec"].get("mode") == "Paused")

    def suspend(self) -> None:
        """Stop it."""
        self.object["spec"]["mode"] = "Paused"

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        """Start it on the nodes of its flavors."""
        check_count("Pipeline", infos, len(self.object["spec"]["stages"]))
        for stage, info in zip(self.object["spec"]["stages"], infos, strict=True):
            merge(stage["template"], info)
        self.object["spec"]["mode"] = "Running"

    def restore_podsets_info(self, infos: Sequence[PodSetInfo]) -> bool:
        """Undo what the flavors added; whether anything changed."""
        stages = zip(self.object["spec"]["stages"], infos, strict=False)
        return sum(restore(stage["template"], info) for stage, info in stages) > 0

    def finished(self) -> JobEnd | None:
        """How it ended."""
        phase = self.object.get("status", {}).get("phase")
        return JobEnd(phase == "Done", f"it is {phase}") if phase in ("Done", "Broken") else None

    def is_active(self) -> bool:
        """Whether pods still use quota."""
        return bool(self.object.get("status", {}).get("phase") == "Running")

    def pods_ready(self) -> bool:
        """Whether all pods are ready."""
        return self.is_active()


if __name__ == "__main__":
    job = Pipeline(Pipeline.resource.new("etl", spec={"mode": "Paused", "stages": []}))
    job.object["spec"]["stages"] = [{"name": "load", "template": {"spec": {"containers": []}}}]
    job.run_with_podsets_info([PodSetInfo("load", node_selector={"pool": "spot"})])
    print(job.pod_sets()[0].name, job.is_suspended(), job.object["spec"]["stages"][0]["template"])

# Prints:
# load False {'spec': {'containers': [], 'nodeSelector': {'pool': 'spot'}}}
