"""Objects are only created in existing namespaces that are not being deleted."""

from __future__ import annotations

from kueuelib.api.kinds import NAMESPACES
from kueuelib.api.meta import ObjectKey
from kueuelib.embedded import failures
from kueuelib.embedded.admission.plugin import AdmissionPlugin, AdmissionRequest, Operation, Reader

IMMORTAL = frozenset(("default", "kube-system", "kube-public"))


class NamespaceLifecycle(AdmissionPlugin):
    """Refuses creations in absent or terminating namespaces, and the deletion of system
    namespaces.
    """

    name = "NamespaceLifecycle"

    def handles(self, request: AdmissionRequest) -> bool:
        """Creations in namespaces and deletions of namespaces."""
        if request.operation is Operation.CREATE:
            return bool(request.key.namespace)
        return (
            request.operation is Operation.DELETE
            and request.resource.plural == NAMESPACES.plural
            and not request.resource.group
        )

    def admit(self, request: AdmissionRequest, reader: Reader) -> None:
        """Checks the namespace before any other plug-in."""
        if request.operation is Operation.DELETE:
            name = request.key.name
            if name in IMMORTAL:
                raise request.refuse("this namespace may not be deleted")
            return
        name = request.key.namespace
        namespace = reader.get(NAMESPACES, ObjectKey("", name))
        if namespace is None:
            raise failures.absent("namespaces", name)
        if namespace["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {name} because it is being terminated"
            error = request.refuse(why)
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {name} is being terminated",
                "field": "metadata.namespace",
            }
            error.details = {**(error.details or {}), "causes": [cause]}
            raise error
