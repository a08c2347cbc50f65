"""Jobs: their strategy on the server."""

from __future__ import annotations

from collections.abc import Sequence

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import AdmissionRequest, KindRules
from kueuelib.embedded.builtins.job_defaults import default_job, generate_selector
from kueuelib.embedded.builtins.job_spec import validate_job, validate_job_update
from kueuelib.embedded.builtins.job_status import validate_job_status
from kueuelib.errors import FieldError


class JobRules(KindRules):
    """The strategy of Jobs."""

    def default(self, obj: Obj) -> None:
        """What a client may leave out."""
        default_job(obj)

    def prepare_create(self, obj: Obj, request: AdmissionRequest) -> None:
        """A new Job has no status, and a selector of its own."""
        del request
        obj["status"] = {}
        generate_selector(obj)

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """The rules of the spec."""
        return validate_job(obj)

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """What of a Job may change."""
        if subresource == "status":
            return validate_job_status(obj, old)
        return validate_job_update(obj, old)
