"""Endpoints, EndpointSlices and the back ends of an Ingress: addresses and ports."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.fields import (
    duplicate,
    invalid,
    listed,
    not_supported,
    required,
    section,
)
from kueuelib.embedded.builtins.naming import label, label_1035, subdomain
from kueuelib.errors import FieldError

_NO_IP: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_RANGES: Final = (
    ("is_loopback", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
    ("is_link_local", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
)
_PORT: Final = "must be between 1 and 65535, inclusive"
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_ADDRESS_TYPES: Final = ("FQDN", "IPv4", "IPv6")
_PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
Errors = Iterator[FieldError]


def check_endpoints(obj: Obj) -> list[FieldError]:
    """The addresses and ports of every subset."""
    errors: list[FieldError] = []
    for i, subset in enumerate(listed(obj, "subsets")):
        path = f"subsets[{i}]"
        if not listed(subset, "addresses") and not listed(subset, "notReadyAddresses"):
            errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for name in ("addresses", "notReadyAddresses"):
            for j, address in enumerate(listed(subset, name)):
                errors += _endpoint_address(address.get("ip") or "", f"{path}.{name}[{j}].ip")
        ports = listed(subset, "ports")
        for j, port in enumerate(ports):
            errors += _port(port, f"{path}.ports[{j}]", named=len(ports) > 1)
    return errors


def _endpoint_address(text: str, path: str) -> Errors:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        yield invalid(path, text, _NO_IP)
        yield invalid(path, text, _NO_IP.partition(",")[0])
        return
    yield from _unusable(found, text, path)


def _unusable(found: Any, text: str, path: str) -> Errors:
    if found.is_unspecified:
        yield invalid(path, text, f"may not be unspecified ({text})")
    for what, why in _RANGES:
        if getattr(found, what):
            yield invalid(path, text, why)


def _port(port: Mapping[str, Any], path: str, *, named: bool) -> Errors:
    name = port.get("name") or ""
    if name:
        yield from (invalid(f"{path}.name", name, why) for why in label(name))
    elif named:
        yield required(f"{path}.name")
    number = port.get("port") or 0
    if not 0 < number < 2**16:
        yield invalid(f"{path}.port", number, _PORT)
    if port.get("protocol") not in _PROTOCOLS:
        yield not_supported(f"{path}.protocol", port.get("protocol"), _PROTOCOLS)


def check_slice(obj: Obj) -> list[FieldError]:
    """The type, and addresses of that type."""
    kind = obj.get("addressType")
    if not kind:
        return [required("addressType")]
    if kind not in _ADDRESS_TYPES:
        return [not_supported("addressType", kind, _ADDRESS_TYPES)]
    errors: list[FieldError] = []
    for i, each in enumerate(listed(obj, "endpoints")):
        path = f"endpoints[{i}].addresses"
        if not listed(each, "addresses"):
            errors.append(required(path, "must contain at least 1 address"))
        for j, text in enumerate(listed(each, "addresses")):
            errors += _slice_address(kind, text, f"{path}[{j}]")
    names: set[str] = set()
    for i, port in enumerate(listed(obj, "ports")):
        path, name = f"ports[{i}]", port.get("name") or ""
        if name:
            errors += [invalid(f"{path}.name", name, why) for why in label(name)]
        if name in names:
            errors.append(duplicate(f"{path}.name", name))
        names.add(name)
        if port.get("protocol") not in _PROTOCOLS:
            errors.append(not_supported(f"{path}.protocol", port.get("protocol"), _PROTOCOLS))
    return errors


def _slice_address(kind: str, text: str, path: str) -> Errors:
    if kind == "FQDN":
        yield from (invalid(path, text, why) for why in subdomain(text))
        return
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        yield invalid(path, text, _NO_IP)
        return
    if found.version != int(kind[-1]):
        yield invalid(path, text, f"must be an {kind} address")
    yield from _unusable(found, text, path)


def check_ingress(obj: Obj) -> list[FieldError]:
    """Rules or a default, with types of paths and back ends."""
    spec = section(obj, "spec")
    errors: list[FieldError] = []
    if not listed(spec, "rules") and not spec.get("defaultBackend"):
        text = "either `defaultBackend` or `rules` must be specified"
        errors.append(invalid("spec", spec.get("rules"), text))
    if spec.get("defaultBackend"):
        errors += _backend(spec["defaultBackend"], "spec.defaultBackend")
    for i, rule in enumerate(listed(spec, "rules")):
        errors += _host(rule.get("host"), f"spec.rules[{i}].host")
        paths = listed(section(rule, "http"), "paths")
        if rule.get("http") is not None and not paths:
            errors.append(required(f"spec.rules[{i}].http.paths"))
        for j, path in enumerate(paths):
            errors += _ingress_path(path, f"spec.rules[{i}].http.paths[{j}]")
    for i, entry in enumerate(listed(spec, "tls")):
        for j, host in enumerate(listed(entry, "hosts")):
            errors += _host(host or None, f"spec.tls[{i}].hosts[{j}]")
        if name := entry.get("secretName"):
            errors += [invalid(f"spec.tls[{i}].secretName", name, why) for why in subdomain(name)]
    if (name := spec.get("ingressClassName")) is not None:
        errors += [invalid("spec.ingressClassName", name, why) for why in subdomain(name)]
    return errors


def _host(host: str | None, path: str) -> Errors:
    if not host:
        return
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        yield invalid(path, host, "must be a DNS name, not an IP address")
    yield from (invalid(path, host, why) for why in subdomain(host.removeprefix("*.")))


def _ingress_path(path: Mapping[str, Any], where: str) -> Errors:
    type_ = path.get("pathType")
    if not type_:
        yield required(f"{where}.pathType", "pathType must be specified")
        return
    if type_ not in _PATH_TYPES:
        yield not_supported(f"{where}.pathType", type_, _PATH_TYPES)
    elif type_ != "ImplementationSpecific" and not (path.get("path") or "").startswith("/"):
        yield invalid(f"{where}.path", path.get("path") or "", "must be an absolute path")
    yield from _backend(path.get("backend") or {}, f"{where}.backend")


def _backend(backend: Mapping[str, Any], where: str) -> Errors:
    service = backend.get("service")
    if backend.get("resource") is not None:
        if service:
            yield invalid(where, "", "cannot set both resource and service backends")
        return
    if service is None:
        yield invalid(where, "", "resource or service backend is required")
        return
    if not service.get("name"):
        yield required(f"{where}.service.name")
    yield from (
        invalid(f"{where}.service.name", service["name"], why)
        for why in (label_1035(service["name"]) if service.get("name") else ())
    )
    port = section(service, "port")
    name, number = port.get("name") or "", port.get("number") or 0
    if name and number:
        yield invalid(where, "", "cannot set both port name & port number")
    elif not name and not number:
        yield required(where, "port name or number is required")
    elif number and not 0 < number < 2**16:
        yield invalid(f"{where}.service.port.number", number, _PORT)
