"""The rules for Endpoints, EndpointSlices and the back ends of an Ingress."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.fields import invalid, not_supported, required
from kueuelib.embedded.builtins.naming import label_1035, subdomain
from kueuelib.embedded.builtins.raw import listed, section
from kueuelib.embedded.builtins.rule_table import NO_IP, BrokenRules, Check, ValuePlace, check
from kueuelib.embedded.schema.internal import as_given
from kueuelib.errors import FieldError

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
