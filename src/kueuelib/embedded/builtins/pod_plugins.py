"""Adds a service account and the usual tolerations to every new pod."""

from __future__ import annotations

from collections.abc import Iterable

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import AdmissionPlugin, AdmissionRequest, Operation, Reader
from kueuelib.embedded.builtins.pod_placement import NOT_READY, UNREACHABLE
from kueuelib.embedded.builtins.raw import listed, setdefault


class ServiceAccountPlugin(AdmissionPlugin):
    """Names the service account `default` in pods that name none; no token is mounted."""

    name = "ServiceAccount"
    resources = (PODS,)

    def admit(self, request: AdmissionRequest, reader: Reader) -> None:
        """Sets both fields that carry the name."""
        del reader
        spec = request.new["spec"]
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = "default"
        setdefault(spec, "serviceAccount", spec["serviceAccountName"])


class TolerationPlugin(AdmissionPlugin):
    """Lets pods stay for five minutes on lost nodes."""

    name = "DefaultTolerationSeconds"
    resources = (PODS,)
    operations = (Operation.CREATE, Operation.UPDATE)

    def admit(self, request: AdmissionRequest, reader: Reader) -> None:
        """Adds the tolerations."""
        del reader
        tolerate_unready_nodes(request.new["spec"])


def tolerate_unready_nodes(spec: Obj, seconds: int = 300) -> None:
    """Adds the tolerations that every new pod gets, unless it has its own for these taints."""
    present = listed(spec, "tolerations")
    added = [
        {"key": name, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for name in (NOT_READY, UNREACHABLE)
        if not _mentions(present, name)
    ]
    if added:
        spec["tolerations"] = [*present, *added]


def _mentions(tolerations: Iterable[Obj], key: str) -> bool:
    return any(
        (not toleration.get("key") or toleration["key"] == key)
        and toleration.get("effect") in (None, "", "NoExecute")
        for toleration in tolerations
    )
