"""Objects are only created in existing namespaces that are not being deleted."""

from __future__ import annotations

from kueuelib.api.kinds import NAMESPACES
from kueuelib.api.meta import ObjectKey
from kueuelib.embedded.admission.plugin import AdmissionPlugin, AdmissionRequest, Operation, Reader
from kueuelib.errors import Forbidden, NotFound

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
                raise Forbidden(
                    f'namespaces "{name}" is forbidden: this namespace may not be deleted',
                    details={"name": name, "kind": "namespaces"},
                )
            return
        name = request.key.namespace
        namespace = reader.get(NAMESPACES, ObjectKey("", name))
        if namespace is None:
            raise NotFound(
                f'namespaces "{name}" not found', details={"name": name, "kind": "namespaces"}
            )
        if namespace["metadata"].get("deletionTimestamp"):
            self._refuse(request, name)

    @staticmethod
    def _refuse(request: AdmissionRequest, namespace: str) -> None:
        resource = request.resource
        plural = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        about = {"name": request.key.name, "group": resource.group, "kind": resource.plural}
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        raise Forbidden(
            f'{plural} "{request.key.name}" is forbidden: unable to create new content in '
            f"namespace {namespace} because it is being terminated",
            details={**{key: value for key, value in about.items() if value}, "causes": [cause]},
        )
