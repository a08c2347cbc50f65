"""The 403 of an admission plug-in."""

from __future__ import annotations

from kueuelib.embedded.admission.plugin import AdmissionRequest
from kueuelib.errors import Forbidden


def refuse(request: AdmissionRequest, why: str) -> Forbidden:
    """The exception that says a plug-in does not want the request."""
    resource = request.resource
    plural = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    meta = (request.obj or request.old or {}).get("metadata") or {}
    name = request.key.name or meta.get("name") or meta.get("generateName") or ""
    details = {"name": name, "kind": resource.plural}
    if resource.group:
        details["group"] = resource.group
    return Forbidden(f'{plural} "{name}" is forbidden: {why}', details=details)
