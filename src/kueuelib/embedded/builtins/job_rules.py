"""The server's strategy for Jobs."""

from __future__ import annotations

from collections.abc import Sequence

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import AdmissionRequest, KindRules
from kueuelib.embedded.builtins.job_spec import generate_selector, validate_job, validate_job_update
from kueuelib.embedded.builtins.job_status import validate_job_status
from kueuelib.embedded.builtins.pod_warnings import name_warnings, spec_warnings
from kueuelib.embedded.builtins.raw import section
from kueuelib.errors import FieldError

MANY_COMPLETIONS = 100_000
MANY_PODS = 10_000


class JobRules(KindRules):
    """The strategy of Jobs."""

    def prepare_create(self, obj: Obj, request: AdmissionRequest) -> None:
        """Remove the status of a new Job, and generate its selector."""
        del request
        obj["status"] = {}
        generate_selector(obj)

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """The rules of the spec."""
        return validate_job(obj)

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """The broken rules of a changed Job."""
        if subresource == "status":
            return validate_job_status(obj, old)
        return validate_job_update(obj, old)

    def warnings(self, obj: Obj, old: Obj | None) -> Sequence[str]:
        """Warnings about the template of a new or changed Job, and about counts that are too
        large.
        """
        meta, spec = section(obj, "metadata"), section(obj, "spec")
        if old is not None and meta.get("generation") == section(old, "metadata").get("generation"):
            return ()
        warnings: list[str] = []
        if old is None:
            warnings += name_warnings(meta.get("name") or "", "Pod names and hostnames")
        completions, parallelism = spec.get("completions") or 0, spec.get("parallelism") or 0
        many = completions > MANY_COMPLETIONS and parallelism > MANY_PODS
        if spec.get("completionMode") == "Indexed" and many:
            warnings.append(
                "spec: In Indexed Jobs with a number of completions higher than 10^5 and a "
                "parallelism higher than 10^4, Kubernetes might not be able to track "
                "completedIndexes when a big number of indexes fail"
            )
        return [*warnings, *spec_warnings(section(spec, "template", "spec"), "spec.template.spec")]
