"""The server's strategies for Services, Endpoints and the back ends of an Ingress."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import AdmissionAttributes, KindRules
from kueuelib.embedded.builtins import metadata
from kueuelib.embedded.builtins.fields import (
    duplicate,
    forbidden,
    invalid,
    listed,
    not_supported,
    required,
    section,
    setdefault,
)
from kueuelib.embedded.builtins.metadata import label_1035, subdomain
from kueuelib.embedded.builtins.rule_table import NO_IP, BrokenRules, Check, ValuePlace, check
from kueuelib.embedded.schema.written import as_given, internal
from kueuelib.errors import FieldError

# ---- the rules for Endpoints, EndpointSlices and the back ends of an Ingress ---------------------

_RANGES: Final = (
    ("is_loopback", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
    ("is_link_local", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
)
_PORT: Final = "must be between 1 and 65535, inclusive"
_ADDRESS_TYPES: Final = ("FQDN", "IPv4", "IPv6")


def _usable(text: str, kind: str, *, again: bool) -> list[str]:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return [NO_IP, NO_IP.partition(",")[0]] if again else [NO_IP]
    texts = [] if f"IPv{address.version}" in kind else [f"must be an {kind} address"]
    if address.is_unspecified:
        texts.append(f"may not be unspecified ({text})")
    return texts + [why for what, why in _RANGES if getattr(address, what)]


def check_slice(obj: Obj) -> list[FieldError]:
    """Check the type, and the addresses of that type."""
    kind = obj.get("addressType")
    if not kind:
        return [required("addressType")]
    if kind not in _ADDRESS_TYPES:
        return [not_supported("addressType", kind, _ADDRESS_TYPES)]
    errors = [
        invalid(f"endpoints[{i}].addresses[{j}]", text, why)
        for i, each in enumerate(listed(obj, "endpoints"))
        for j, text in enumerate(listed(each, "addresses"))
        for why in (subdomain(text) if kind == "FQDN" else _usable(text, kind, again=False))
    ]
    return errors + check("EndpointSlice", obj, "")


def check_ingress(obj: Obj) -> list[FieldError]:
    """Check the rules or the default, with their path types and back ends."""
    spec = section(obj, "spec")
    errors = check("IngressSpec", spec, "spec", **ENDPOINT_CHECKS)
    if not listed(spec, "rules") and not spec.get("defaultBackend"):
        text = "either `defaultBackend` or `rules` must be specified"
        errors.insert(0, invalid("spec", as_given(spec, "rules"), text))
    return errors


def _addressed(at: ValuePlace, _: str) -> BrokenRules:
    if listed(at.value, "addresses") or listed(at.value, "notReadyAddresses"):
        return []
    return [required(at.path, "must specify `addresses` or `notReadyAddresses`")]


def _named(at: ValuePlace, _: str) -> BrokenRules:
    unnamed = [i for i, port in enumerate(at.value) if not port.get("name")]
    return [required(f"{at.path}[{i}].name") for i in unnamed if len(at.value) > 1]


def _endpoint(at: ValuePlace, _: str) -> BrokenRules:
    text = at.value or ""
    return [invalid(at.path, text, why) for why in _usable(text, "IPv4 IPv6", again=True)]


def _host(at: ValuePlace, _: str) -> BrokenRules:
    text = at.value.removeprefix("*.")
    errors = [invalid(at.path, at.value, why) for why in subdomain(text)]
    try:
        ipaddress.ip_address(at.value)
    except ValueError:
        return errors
    return [invalid(at.path, at.value, "must be a DNS name, not an IP address"), *errors]


def _backend(at: ValuePlace, _: str) -> BrokenRules:
    backend: Mapping[str, Any] = at.value
    service = section(backend, "service")
    if backend.get("resource") is not None:
        text = "cannot set both resource and service backends"
        return [invalid(at.path, "", text)] if service else []
    where, name = f"{at.path}.service.name", service.get("name")
    errors = [invalid(where, name, why) for why in label_1035(name)] if name else [required(where)]
    port = section(service, "port")
    name, number = port.get("name") or "", port.get("number") or 0
    if name and number:
        errors.append(invalid(at.path, "", "cannot set both port name & port number"))
    elif not name and not number:
        errors.append(required(at.path, "port name or number is required"))
    elif number and not 0 < number < 2**16:
        errors.append(invalid(f"{at.path}.service.port.number", number, _PORT))
    return errors


ENDPOINT_CHECKS: Final[Mapping[str, Check]] = {
    "addressed": _addressed,
    "named": _named,
    "endpoint": _endpoint,
    "host": _host,
    "backend": _backend,
}


# --------------------------------------------------------------------------------------------------

HEADLESS = "None"
_FAMILIES = 2
_NODE_PORTS = range(30000, 32768)
_OUTSIDE = ("LoadBalancer", "NodePort")
_POLICIES = ("Cluster", "Local")
_CHECK = "healthCheckNodePort"
_ALLOCATED = "allocateLoadBalancerNodePorts"
_ADDRESSES = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
_OWN = {
    ("ClusterIP", *_OUTSIDE): (*_ADDRESSES, "internalTrafficPolicy"),
    _OUTSIDE: ("externalTrafficPolicy",),
    ("LoadBalancer",): (_ALLOCATED, "loadBalancerClass"),
    ("ExternalName",): ("externalName",),
}
"""Fields that are removed when the type of a service changes, unless they change as well."""


def _address(obj: Obj) -> str:
    """An address in the service network, which depends only on the name."""
    meta = obj["metadata"]
    name = f"{meta.get('namespace')}/{meta.get('name')}".encode()
    first, second = blake2b(name, digest_size=2).digest()
    return f"10.96.{first}.{max(second, 1)}"


def _port(obj: Obj, what: Any) -> int:
    """A node port, which depends only on the service and the use, so it may not be unique."""
    data = f"{obj['metadata'].get('uid')}/{what}".encode()
    digest = int.from_bytes(blake2b(data, digest_size=4).digest(), "big")
    return _NODE_PORTS.start + digest % len(_NODE_PORTS)


def _is_checked(spec: Obj) -> bool:
    return spec["type"] == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _give_ports(obj: Obj, *, dry_run: bool) -> None:
    """Add node ports, if the type of the service has them; a dry run shows none that exist."""
    spec, dry = obj["spec"], dict[Any, int]()

    def free(what: Any) -> int:
        return (
            dry.setdefault(what, _NODE_PORTS.stop + 1 + len(dry)) if dry_run else _port(obj, what)
        )

    if spec["type"] in _OUTSIDE and spec.get(_ALLOCATED) is not False:
        for port in listed(spec, "ports"):
            if not port.get("nodePort"):
                port["nodePort"] = free(port.get("port"))
    if _is_checked(spec):
        setdefault(spec, _CHECK, free(_CHECK))


def _families(spec: Obj) -> list[FieldError]:
    """The rules of the addresses in the cluster; if one is broken, no other error is reported."""
    if spec["type"] == "ExternalName":
        return []
    given, families = listed(spec, "clusterIPs"), listed(spec, "ipFamilies")
    errors, path = [], "spec.clusterIPs"
    if given and given[0] != spec.get("clusterIP"):
        errors.append(invalid(path, given, "first value must match `clusterIP`"))
    errors += check("ServiceFamilies", spec, "spec")
    if len(set(families)) > 1 and spec.get("ipFamilyPolicy") == "SingleStack":
        text = (
            "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are "
            "specified"
        )
        errors.append(invalid("spec.ipFamilyPolicy", "SingleStack", text))
    bad = [] if given == [HEADLESS] else check("Addresses", {"clusterIPs": given}, "spec")
    if len(given) > _FAMILIES:
        bad.append(invalid(path, given, f"may only hold up to {_FAMILIES} values"))
    for i, (family, text) in enumerate(zip(families, given, strict=False)):
        if not bad and text != HEADLESS and family != f"IPv{ipaddress.ip_address(text).version}":
            why = f"expected an {family} value as indicated by `ipFamilies[{i}]`"
            errors.append(invalid(f"{path}[{i}]", text, why))
    return [*errors, *bad] or _unconfigured(spec)


def _unconfigured(spec: Obj) -> list[FieldError]:
    """What the addresses ask for that a cluster with IPv4 alone does not have."""
    given = listed(spec, "clusterIPs")
    if given == [HEADLESS] and not spec.get("selector"):
        return []
    errors = []
    if spec.get("ipFamilyPolicy") == "RequireDualStack":
        text = "this cluster is not configured for dual-stack services"
        errors.append(invalid("spec.ipFamilyPolicy", "RequireDualStack", text))
    text = "not configured on this cluster"
    return errors + [
        invalid(f"spec.ipFamilies[{i}]", family, text)
        for i, family in enumerate(listed(spec, "ipFamilies"))
        if family != "IPv4"
    ]


def _balanced(spec: Obj) -> list[FieldError]:
    """Check the fields about traffic from outside."""
    errors = []
    ranges, path = listed(spec, "loadBalancerSourceRanges"), "spec.LoadBalancerSourceRanges"
    if ranges and spec["type"] != "LoadBalancer":
        errors.append(forbidden(path, "may only be used when `type` is 'LoadBalancer'"))
    for i, text in enumerate(ranges):
        try:
            ipaddress.ip_network(text.strip(), strict=False)
        except ValueError:
            fits = False
        else:
            fits = "/" in text
        if not fits:
            errors.append(invalid(f"{path}[{i}]", text, metadata.NO_NETWORK))
    policy, path = spec.get("externalTrafficPolicy"), "spec.externalTrafficPolicy"
    if policy and spec["type"] not in _OUTSIDE and not listed(spec, "externalIPs"):
        errors.append(invalid(path, policy, "may only be set for externally-accessible services"))
    elif policy and policy not in _POLICIES:
        errors.append(not_supported(path, policy, _POLICIES))
    return errors


class ServiceRules(KindRules):
    """The strategy of Services; they get addresses, but there is no traffic."""

    def prepare_create(self, obj: Obj, request: AdmissionAttributes) -> None:
        """Remove the status of a new service, and assign its address."""
        obj["status"] = {"loadBalancer": {}}
        if obj["spec"]["type"] != "ExternalName":
            self.prepare_addresses(obj)
            _give_ports(obj, dry_run=request.dry_run)

    @staticmethod
    def prepare_addresses(obj: Obj) -> None:
        """Assign the address of a service, unless it asks for a family that is not there."""
        spec = obj["spec"]
        if not spec.get("clusterIP") and "IPv6" in listed(spec, "ipFamilies"):
            return
        if not spec.get("clusterIP") and obj["metadata"].get("name"):
            spec["clusterIP"] = _address(obj)
        setdefault(spec, "clusterIPs", [spec.get("clusterIP", HEADLESS)])
        setdefault(spec, "ipFamilies", ["IPv4"])
        setdefault(spec, "ipFamilyPolicy", "SingleStack")

    def prepare_update(self, obj: Obj, old: Obj, request: AdmissionAttributes) -> None:
        """Keep an address that is not mentioned, and remove fields of another type."""
        before, spec = section(old, "spec"), obj["spec"]
        if request.subresource == "status":
            return
        if spec["type"] != "ExternalName":
            for key in _ADDRESSES:
                if before.get(key) is not None:
                    setdefault(spec, key, before[key])
            if spec.get("clusterIP") and spec.get("clusterIPs") == before.get("clusterIPs"):
                spec["clusterIPs"] = [spec["clusterIP"]]
        gone = [key for type_, keys in _OWN.items() if spec["type"] not in type_ for key in keys]
        for key in gone:
            if spec.get(key) == before.get(key):
                spec.pop(key, None)
        if spec["type"] not in _OUTSIDE:
            known = [port.get("nodePort") for port in listed(before, "ports")]
            if known == [port.get("nodePort") for port in listed(spec, "ports")]:
                for port in listed(spec, "ports"):
                    port.pop("nodePort", None)
        if not _is_checked(spec) and spec.get(_CHECK) == before.get(_CHECK):
            spec.pop(_CHECK, None)
        if spec["type"] != "ExternalName":
            if not spec.get("clusterIP"):
                self.prepare_addresses(obj)
            _give_ports(obj, dry_run=request.dry_run)

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """Check type and ports."""
        spec = obj["spec"]
        if errors := _families(spec):
            return errors
        ports = listed(spec, "ports")
        if spec["type"] == "ExternalName":
            name = spec.get("externalName") or ""
            texts = metadata.subdomain(name.removesuffix(".")) if name else ()
            errors += [invalid("spec.externalName", name, text) for text in texts]
            if not name:
                errors.append(required("spec.externalName"))
        elif not ports and spec.get("clusterIP") != HEADLESS:
            errors.append(required("spec.ports"))
        if spec["type"] in ("LoadBalancer", "NodePort") and spec.get("clusterIP") == HEADLESS:
            text = f"may not be set to 'None' for {spec['type']} services"
            errors.append(invalid("spec.clusterIPs[0]", HEADLESS, text))
        if len(ports) > 1:
            unnamed = [i for i, port in enumerate(ports) if not port.get("name")]
            errors += [required(f"spec.ports[{i}].name") for i in unnamed]
        errors += check("ServicePort", ports, "spec.ports")
        errors += check("ServiceSpec", spec, "spec")
        used = set[tuple[str, int]]()
        for i, port in enumerate(ports):
            pair = port["protocol"], port.get("port") or 0
            if pair in used:
                value = internal("ServicePort", {"protocol": pair[0], "port": pair[1]})
                errors.append(duplicate(f"spec.ports[{i}]", value))
            used.add(pair)
        return errors + _balanced(spec)

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """Check that the address does not change."""
        if subresource == "status":
            return ()
        now, before = obj["spec"], section(old, "spec")
        if errors := _families(now):
            return errors
        if now["type"] == before.get("type") != "ExternalName" and before.get("clusterIP"):
            where = "spec.clusterIPs[0]"
            if now.get("clusterIP") != before["clusterIP"]:
                text = "may not change once set"
                errors.append(invalid(where, [now.get("clusterIP") or ""], text))
        return [*errors, *self.validate_create(obj)]


def own_service(port: int) -> Obj:
    """The Service `kubernetes`, by which pods would find the server.

    Args:
        port: of the server.
    """
    ports = [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}]
    labels = {"component": "apiserver", "provider": "kubernetes"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
        "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ports": ports},
    }


def target_of(port: Mapping[str, Any], pod: Mapping[str, Any]) -> int | None:
    """The number of a port of a Service in a pod; None if no container has a port of its name."""
    target, spec = port.get("targetPort") or port.get("port"), pod["spec"]
    if isinstance(target, int):
        return target
    inits = listed(spec, "initContainers")
    sidecars = [each for each in inits if each.get("restartPolicy") == "Always"]
    for container in (*listed(spec, "containers"), *sidecars):
        for each in listed(container, "ports"):
            if (each.get("name"), each.get("protocol")) == (target, port["protocol"]):
                return int(each["containerPort"])
    return None
