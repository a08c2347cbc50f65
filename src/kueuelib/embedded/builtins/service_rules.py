"""Services: their strategy on the server."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import AdmissionRequest, KindRules
from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.fields import (
    duplicate,
    invalid,
    listed,
    not_supported,
    required,
    section,
    setdefault,
)
from kueuelib.embedded.builtins.metadata import validate_labels
from kueuelib.errors import FieldError

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
PROTOCOLS = ("SCTP", "TCP", "UDP")
HEADLESS = "None"
_LAST_PORT = 65535


def _address(obj: Obj) -> str:
    """An address of the service network that depends on the name only."""
    meta = obj["metadata"]
    name = f"{meta.get('namespace')}/{meta.get('name')}".encode()
    first, second = blake2b(name, digest_size=2).digest()
    return f"10.96.{first}.{max(second, 1)}"


class ServiceRules(KindRules):
    """The strategy of Services; addresses are given, traffic does not flow."""

    def prepare_create(self, obj: Obj, request: AdmissionRequest) -> None:
        """A new service has no status, and gets its address."""
        del request
        obj["status"] = {"loadBalancer": {}}
        spec = obj["spec"]
        if spec["type"] == "ExternalName":
            return
        if not spec.get("clusterIP") and obj["metadata"].get("name"):
            spec["clusterIP"] = _address(obj)
        setdefault(spec, "clusterIPs", [spec.get("clusterIP", HEADLESS)])
        setdefault(spec, "ipFamilies", ["IPv4"])
        setdefault(spec, "ipFamilyPolicy", "SingleStack")

    def prepare_update(self, obj: Obj, old: Obj, request: AdmissionRequest) -> None:
        """The address stays when it is not mentioned."""
        del request
        before = section(old, "spec")
        if obj["spec"]["type"] != "ExternalName":
            for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
                if before.get(key) is not None:
                    setdefault(obj["spec"], key, before[key])

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """Type and ports."""
        spec = obj["spec"]
        errors = []
        if spec["type"] not in TYPES:
            errors.append(not_supported("spec.type", spec["type"], TYPES))
        ports = listed(spec, "ports")
        if spec["type"] == "ExternalName":
            if not spec.get("externalName"):
                errors.append(required("spec.externalName"))
        elif not ports and spec.get("clusterIP") != HEADLESS:
            errors.append(required("spec.ports"))
        if spec["type"] in ("LoadBalancer", "NodePort") and spec.get("clusterIP") == HEADLESS:
            text = f"may not be set to 'None' for {spec['type']} services"
            errors.append(invalid("spec.clusterIPs[0]", HEADLESS, text))
        names: set[str] = set()
        for i, port in enumerate(ports):
            path = f"spec.ports[{i}]"
            name = port.get("name") or ""
            if name:
                errors += [invalid(f"{path}.name", name, text) for text in naming.label(name)]
                if name in names:
                    errors.append(duplicate(f"{path}.name", name))
                names.add(name)
            elif len(ports) > 1:
                errors.append(required(f"{path}.name"))
            number = port.get("port") or 0
            if not 1 <= number <= _LAST_PORT:
                text = f"must be between 1 and {_LAST_PORT}, inclusive"
                errors.append(invalid(f"{path}.port", number, text))
            goal = port.get("targetPort")
            if isinstance(goal, int) and not 1 <= goal <= _LAST_PORT:
                text = f"must be between 1 and {_LAST_PORT}, inclusive"
                errors.append(invalid(f"{path}.targetPort", goal, text))
            if port["protocol"] not in PROTOCOLS:
                errors.append(not_supported(f"{path}.protocol", port["protocol"], PROTOCOLS))
        return [*errors, *validate_labels(spec.get("selector"), "spec.selector")]

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """The address does not change."""
        if subresource == "status":
            return ()
        now, before = obj["spec"], section(old, "spec")
        errors = list(self.validate_create(obj))
        if now["type"] == before.get("type") != "ExternalName" and before.get("clusterIP"):
            where = "spec.clusterIPs[0]"
            if now.get("clusterIP") != before["clusterIP"]:
                text = "may not change once set"
                errors.append(invalid(where, [now.get("clusterIP") or ""], text))
        return errors


def own_service(port: int) -> Obj:
    """The Service `kubernetes`, by which pods would find the server.

    Args:
        port: on which the server listens.
    """
    ports = [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}]
    labels = {"component": "apiserver", "provider": "kubernetes"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
        "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ports": ports},
    }
