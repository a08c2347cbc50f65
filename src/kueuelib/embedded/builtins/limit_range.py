"""LimitRanges: their own rules, the defaults they give to new pods, and the limits they set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kueuelib.api.kinds import LIMIT_RANGES, PODS
from kueuelib.api.meta import Obj
from kueuelib.api.quantity import Quantity
from kueuelib.embedded.admission.plugin import (
    AdmissionPlugin,
    AdmissionRequest,
    KindRules,
    Operation,
    Reader,
)
from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.fields import (
    duplicate,
    forbidden,
    invalid,
    listed,
    section,
    subobject,
)
from kueuelib.embedded.builtins.refusals import refuse
from kueuelib.embedded.builtins.resources import containers_of, make_canonical, pod_requests
from kueuelib.errors import FieldError

_PARTS = ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio")


class LimitRangeRules(KindRules):
    """The strategy of LimitRanges."""

    def default(self, obj: Obj) -> None:
        """For containers: the default limit is the maximum, the default request that limit."""
        for item in listed(section(obj, "spec"), "limits"):
            for key in _PARTS:
                make_canonical(item.get(key))
            if item.get("type") != "Container":
                continue
            limits = subobject(item, "default")
            for name, value in section(item, "max").items():
                limits.setdefault(name, value)
            requests = subobject(item, "defaultRequest")
            for source in (limits, section(item, "min")):
                for name, value in source.items():
                    requests.setdefault(name, value)
            for key in ("default", "defaultRequest"):
                if not item[key]:
                    del item[key]

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """Every item is consistent in itself."""
        errors = []
        seen = set()
        for i, item in enumerate(listed(section(obj, "spec"), "limits")):
            path = f"spec.limits[{i}]"
            kind = item.get("type") or ""
            errors += [invalid(f"{path}.type", kind, text) for text in naming.qualified_name(kind)]
            if kind in seen:
                errors.append(duplicate(f"{path}.type", kind))
            seen.add(kind)
            if kind == "Pod":
                text = "may not be specified when `type` is 'Pod'"
                errors += [
                    forbidden(f"{path}.{key}", text)
                    for key in ("default", "defaultRequest")
                    if item.get(key)
                ]
            errors += _validate_order(item, path)
        return errors

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """The same as for a new one."""
        del old, subresource
        return self.validate_create(obj)


def _validate_order(item: Mapping[str, Any], path: str) -> list[FieldError]:
    """Minimum, default request, default limit, maximum: none below the one before."""
    errors = []
    order = (
        ("min", "minimum value"),
        ("defaultRequest", "default request value"),
        ("default", "default value"),
        ("max", "max value"),
    )
    names = {name for key in _PARTS for name in section(item, key)}
    for name in sorted(names):
        found = [
            (key, text, section(item, key)[name])
            for key, text in order
            if name in section(item, key)
        ]
        for low, (key, low_text, low_value) in enumerate(found):
            for _, high_text, high_value in found[low + 1 :]:
                if Quantity.parse(low_value) > Quantity.parse(high_value):
                    text = f"{low_text} {low_value} is greater than {high_text} {high_value}"
                    errors.append(invalid(f"{path}.{key}[{name}]", low_value, text))
    return errors


def apply_defaults(spec: Obj, limit_ranges: Sequence[Mapping[str, Any]]) -> None:
    """Gives the containers of a pod the default limits and requests they lack."""
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    for item in _items(limit_ranges, "Container"):
        limits.update(section(item, "default"))
        requests.update(section(item, "defaultRequest"))
    if not limits and not requests:
        return
    for container in containers_of(spec):
        resources = subobject(container, "resources")
        for key, defaults in (("limits", limits), ("requests", requests)):
            missing = {
                name: value
                for name, value in defaults.items()
                if name not in section(resources, key)
            }
            if missing:
                resources[key] = {**section(resources, key), **missing}


def _items(limit_ranges: Sequence[Mapping[str, Any]], kind: str) -> Iterator[Mapping[str, Any]]:
    for found in limit_ranges:
        for item in listed(section(found, "spec"), "limits"):
            if item.get("type") == kind:
                yield item


def broken_limits(spec: Mapping[str, Any], limit_ranges: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a pod asks for beyond the limits, one text each."""
    problems = []
    for item in _items(limit_ranges, "Container"):
        for container in containers_of(spec):
            resources = section(container, "resources")
            requests = _parsed(section(resources, "requests"))
            limits = _parsed(section(resources, "limits"))
            problems += _broken(item, requests, limits, "Container")
    for item in _items(limit_ranges, "Pod"):
        limit_spec = {
            key: [
                {**one, "resources": {"requests": section(one, "resources", "limits")}}
                for one in listed(spec, key)
            ]
            for key in ("containers", "initContainers")
        }
        problems += _broken(item, pod_requests(spec), pod_requests(limit_spec), "Pod")
    return problems


def _parsed(amounts: Mapping[str, Any]) -> dict[str, Quantity]:
    return {name: Quantity.parse(value) for name, value in amounts.items()}


def _broken(
    item: Mapping[str, Any],
    requests: Mapping[str, Quantity],
    limits: Mapping[str, Quantity],
    kind: str,
) -> list[str]:
    problems = []
    for name, text in section(item, "min").items():
        least = Quantity.parse(text)
        usage = f"minimum {name} usage per {kind} is {text}"
        if name not in requests:
            problems.append(f"{usage}.  No request is specified")
        elif requests[name] < least:
            problems.append(f"{usage}, but request is {requests[name]}")
        if name in limits and limits[name] < least:
            problems.append(f"{usage}, but limit is {limits[name]}")
    for name, text in section(item, "max").items():
        most = Quantity.parse(text)
        usage = f"maximum {name} usage per {kind} is {text}"
        if name not in limits:
            problems.append(f"{usage}.  No limit is specified")
        elif limits[name] > most:
            problems.append(f"{usage}, but limit is {limits[name]}")
        if name in requests and requests[name] > most:
            problems.append(f"{usage}, but request is {requests[name]}")
    for name, text in section(item, "maxLimitRequestRatio").items():
        ratio = f"{name} max limit to request ratio per {kind} is {text}"
        if name not in requests or not requests[name]:
            problems.append(f"{ratio}, but no request is specified or request is 0")
        elif name not in limits:
            problems.append(f"{ratio}, but no limit is specified")
        elif limits[name].fraction() / requests[name].fraction() > Quantity.parse(text).fraction():
            found = float(limits[name].fraction() / requests[name].fraction())
            problems.append(f"{ratio}, but provided ratio is {found:f}")
    return problems


class LimitRangePlugin(AdmissionPlugin):
    """Applies the LimitRanges of the namespace to new pods."""

    name = "LimitRanger"

    def handles(self, request: AdmissionRequest) -> bool:
        """New pods."""
        return (
            request.operation is Operation.CREATE
            and not request.subresource
            and request.resource.group_kind == PODS.group_kind
        )

    def admit(self, request: AdmissionRequest, reader: Reader) -> None:
        """Fills in the defaults."""
        if request.obj is not None:
            found = list(reader.items(LIMIT_RANGES, request.key.namespace))
            apply_defaults(request.obj["spec"], found)

    def validate(self, request: AdmissionRequest, reader: Reader) -> None:
        """Looks at the limits.

        Raises:
            Forbidden: the pod asks for more, or less, than it may.
        """
        if request.obj is None:
            return
        found = list(reader.items(LIMIT_RANGES, request.key.namespace))
        problems = broken_limits(request.obj["spec"], found)
        if problems:
            text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            raise refuse(request, text)
