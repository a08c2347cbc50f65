"""LimitRanges: their validation, their defaults for new pods, and their limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kueuelib.api.kinds import LIMIT_RANGES, PODS
from kueuelib.api.meta import Obj
from kueuelib.api.quantity import Quantity
from kueuelib.embedded.admission.plugin import AdmissionPlugin, AdmissionRequest, Reader
from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.fields import invalid, required
from kueuelib.embedded.builtins.quota_rules import resource_name
from kueuelib.embedded.builtins.raw import listed, section, subobject
from kueuelib.embedded.builtins.resources import (
    HUGE_PAGES,
    STANDARD,
    containers_of,
    overcommits,
    parsed,
    pod_requests,
)
from kueuelib.embedded.builtins.rule_table import BrokenRules, Check, ValuePlace
from kueuelib.errors import FieldError

TYPES = ("Container", "PersistentVolumeClaim", "Pod")
_ORDER = (
    ("min", "max", "min", "min"),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default", "defaultRequest", "defaultRequest"),
    ("min", "default", "default", "min"),
    ("default", "max", "default", "max"),
)
"""Pairs of fields in ascending order, with the field of the error and the value that it shows."""
_CALLED = {"default": "default limit", "defaultRequest": "default request"}
"""The names in messages about default requests."""
ANNOTATION = "kubernetes.io/limit-ranger"
_PARTS = ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio")


def _limited(at: ValuePlace, _: str) -> BrokenRules:
    kind = at.value or ""
    texts = naming.qualified_name(kind)
    if not texts and "/" not in kind and kind not in TYPES:
        texts = ["must be a standard limit type or fully qualified"]
    return [invalid(at.path, kind, text) for text in texts]


def _names(at: ValuePlace, _: str) -> BrokenRules:
    errors: list[FieldError] = []
    kind = at.value.get("type")
    for key in _PARTS:
        if kind == "Pod" and key in ("default", "defaultRequest"):
            continue
        for name in sorted(section(at.value, key)):
            where = f"{at.path}.{key}[{name}]"
            errors += resource_name(name, where)
            own = name in STANDARD or name.startswith(HUGE_PAGES)
            if kind in ("Pod", "Container") and "/" not in name and not own:
                text = "must be a standard resource for containers"
                errors.append(invalid(where, name, text))
    return errors


def _order(at: ValuePlace, _: str) -> BrokenRules:
    """Check that minimum, default request, default limit and maximum are in ascending order."""
    errors: list[FieldError] = []
    item, path = at.value, at.path
    kind = item.get("type")
    if kind == "PersistentVolumeClaim" and not (
        "storage" in section(item, "min") or "storage" in section(item, "max")
    ):
        text = "either minimum or maximum storage value is required, but neither was provided"
        errors.append(required(f"{path}.limits", text))
    parts = {key: section(item, key) for key in _PARTS}
    if kind == "Pod":
        parts |= {"default": {}, "defaultRequest": {}}
    for name in sorted({name for part in parts.values() for name in part}):
        given = {key: str(part[name]) for key, part in parts.items() if name in part}
        for low, high, where, shown in _ORDER:
            if low in given and high in given:
                less, more = given[low], given[high]
                if Quantity.parse(less) > Quantity.parse(more):
                    words = {} if where == "default" else _CALLED
                    first, second = words.get(low, low), words.get(high, high)
                    text = f"{first} value {less} is greater than {second} value {more}"
                    errors.append(invalid(f"{path}.{where}[{name}]", given[shown], text))
        errors += _validate_ratio(given, f"{path}.maxLimitRequestRatio[{name}]")
        default, request = given.get("default"), given.get("defaultRequest")
        if default and request and not overcommits(name) and default != request:
            text = f"default value {default} must equal to defaultRequest value {request} in {name}"
            errors.append(invalid(f"{path}.defaultRequest[{name}]", request, text))
    return errors


LIMIT_CHECKS: Final[Mapping[str, Check]] = {
    "limited": _limited,
    "known_names": _names,
    "ascending": _order,
}


def _validate_ratio(given: Mapping[str, str], path: str) -> list[FieldError]:
    text = given.get("maxLimitRequestRatio")
    if text is None:
        return []
    errors: list[FieldError] = []
    ratio = Quantity.parse(text).fraction()
    if ratio < 1:
        errors.append(invalid(path, text, f"ratio {text} is less than 1"))
    if "min" in given and "max" in given:
        least = Quantity.parse(given["min"]).fraction()
        limit = Quantity.parse(given["max"]).fraction() / least if least else None
        if limit is not None and ratio > limit:
            words = f"ratio {text} is greater than max/min = {float(limit):f}"
            errors.append(invalid(path, text, words))
    return errors


def apply_defaults(spec: Obj, limit_ranges: Sequence[Mapping[str, Any]]) -> list[str]:
    """Gives the containers of a pod the default limits and requests they lack.

    Returns:
        The defaults that were set, one text for each container and part.
    """
    told: list[str] = []
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    for item in _items(limit_ranges, "Container"):
        limits.update(section(item, "default"))
        requests.update(section(item, "defaultRequest"))
    if not limits and not requests:
        return told
    every = [("container", each) for each in listed(spec, "containers")]
    every += [("init container", each) for each in listed(spec, "initContainers")]
    for what, container in every:
        resources = subobject(container, "resources")
        for key, defaults in (("requests", requests), ("limits", limits)):
            missing = {
                name: value
                for name, value in defaults.items()
                if name not in section(resources, key)
            }
            if missing:
                resources[key] = {**section(resources, key), **missing}
                names = ", ".join(sorted(missing))
                told.append(f"{names} {key[:-1]} for {what} {container.get('name')}")
    return told


def _items(limit_ranges: Sequence[Mapping[str, Any]], kind: str) -> Iterator[Mapping[str, Any]]:
    for limit_range in limit_ranges:
        for item in listed(section(limit_range, "spec"), "limits"):
            if item.get("type") == kind:
                yield item


def broken_limits(spec: Mapping[str, Any], limit_ranges: Sequence[Mapping[str, Any]]) -> list[str]:
    """The violations of the limits by a pod, one text each."""
    problems = []
    for item in _items(limit_ranges, "Container"):
        for container in containers_of(spec):
            resources = section(container, "resources")
            requests = parsed(section(resources, "requests"))
            limits = parsed(section(resources, "limits"))
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


def _broken(
    item: Mapping[str, Any],
    requests: Mapping[str, Quantity],
    limits: Mapping[str, Quantity],
    kind: str,
) -> list[str]:
    problems = []
    amounts = {"request": requests, "limit": limits}
    for bound, must, other in (("min", "request", "limit"), ("max", "limit", "request")):
        for name, text in section(item, bound).items():
            usage = f"{bound}imum {name} usage per {kind} is {text}"
            if name not in amounts[must]:
                problems.append(f"{usage}.  No {must} is specified")
            for what in (must, other):
                amount, edge = amounts[what].get(name), Quantity.parse(text)
                if amount is not None and (amount < edge if bound == "min" else amount > edge):
                    problems.append(f"{usage}, but {what} is {amount}")
    for name, text in section(item, "maxLimitRequestRatio").items():
        ratio = f"{name} max limit to request ratio per {kind} is {text}"
        if not requests.get(name):
            problems.append(f"{ratio}, but no request is specified or request is 0")
        elif name not in limits:
            problems.append(f"{ratio}, but no limit is specified")
        else:
            actual_ratio = limits[name].fraction() / requests[name].fraction()
            if actual_ratio > Quantity.parse(text).fraction():
                problems.append(f"{ratio}, but provided ratio is {float(actual_ratio):f}")
    return problems


class LimitRangePlugin(AdmissionPlugin):
    """Applies the LimitRanges of the namespace to new pods."""

    name = "LimitRanger"
    resources = (PODS,)

    def admit(self, request: AdmissionRequest, reader: Reader) -> None:
        """Fills in the defaults."""
        limit_ranges = list(reader.items(LIMIT_RANGES, request.key.namespace))
        told = apply_defaults(request.new["spec"], limit_ranges)
        if told:
            notes = subobject(request.new["metadata"], "annotations")
            notes[ANNOTATION] = f"LimitRanger plugin set: {'; '.join(told)}"

    def validate(self, request: AdmissionRequest, reader: Reader) -> None:
        """Checks the limits.

        Raises:
            Forbidden: the pod violates a limit.
        """
        limit_ranges = list(reader.items(LIMIT_RANGES, request.key.namespace))
        problems = broken_limits(request.new["spec"], limit_ranges)
        if problems:
            text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            raise request.refuse(text)
