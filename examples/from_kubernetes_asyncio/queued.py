"""Jobs in the queue, as a GenericJob with models: the bundled kind in small.

The bundled one stops a Job more carefully, and can run it with fewer pods.
"""

# ruff: noqa: D102 - the methods are explained in GenericJob
from collections.abc import Sequence

from kubernetes_asyncio.client import V1Job, V1PodTemplateSpec

from kueuelib.jobs import GenericJob, JobEnd, PodSet, PodSetInfo, merged_all, restored_all
from kueuelib.runtime import Obj, decode, is_true


class SmallJob(GenericJob[V1Job]):
    """All that kueuelib has to know about a Job."""

    def pod_sets(self) -> tuple[PodSet, ...]:
        spec = self.object.spec
        return (PodSet("main", spec.parallelism or 1, spec.template),)

    def is_suspended(self) -> bool:
        return bool(self.object.spec.suspend)

    def suspend(self) -> None:
        self.object.spec.suspend = True

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        spec = self.object.spec
        self._replace_template(merged_all("Job", [spec.template], infos))
        spec.suspend = False

    def restore_podsets_info(self, infos: Sequence[PodSetInfo]) -> bool:
        return self._replace_template(restored_all([self.object.spec.template], infos))

    def finished(self) -> JobEnd | None:
        for end in ("Complete", "Failed"):
            if is_true(self.raw, end):
                return JobEnd(end == "Complete", f"Job: {end}")
        return None

    def is_active(self) -> bool:
        return bool(self.status.get("active"))  # raw, as a new Job has no status

    def pods_ready(self) -> bool:
        done = self.status.get("ready", 0) + self.status.get("succeeded", 0)
        return bool(done >= (self.object.spec.parallelism or 1))

    def _replace_template(self, templates: Sequence[Obj]) -> bool:
        (template,) = templates
        made = decode(V1PodTemplateSpec, template)
        changed = made != self.object.spec.template
        self.object.spec.template = made
        return changed
