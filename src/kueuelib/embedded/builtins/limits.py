"""LimitRanges and ResourceQuotas: validation, defaults for new pods, limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kueuelib.api.kinds import LIMIT_RANGES, PODS
from kueuelib.api.meta import Obj
from kueuelib.api.quantity import Quantity
from kueuelib.embedded.admission.plugin import AdmissionAttributes, AdmissionPlugin, StoreReader
from kueuelib.embedded.builtins.fields import (
    NON_NEGATIVE,
    immutable,
    invalid,
    listed,
    required,
    section,
    subobject,
)
from kueuelib.embedded.builtins.metadata import qualified_name
from kueuelib.embedded.builtins.pod_spec import operand
from kueuelib.embedded.builtins.resources import (
    HUGE_PAGES,
    STANDARD,
    containers_of,
    is_native,
    overcommits,
    parsed,
    pod_requests,
    validate_resources,
)
from kueuelib.embedded.builtins.rule_table import BrokenRules, Check, ValuePlace, check
from kueuelib.errors import FieldError

# ---- resourceQuotas and RuntimeClasses: validation -----------------------------------------------

_COUNTED = frozenset(
    (
        *("configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers"),
        *("resourcequotas", "secrets", "services", "services.loadbalancers", "services.nodeports"),
    )
)
_COMPUTED = frozenset(
    {"cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"}
)
_QUOTA = (
    _COUNTED
    | _COMPUTED
    | {"ephemeral-storage", "limits.ephemeral-storage", "requests.ephemeral-storage"}
    | {"requests.storage"}
)
_HUGE = ("hugepages-", "requests.hugepages-")
_OF_PODS = frozenset({"pods"}) | _COMPUTED
_SCOPES: Mapping[str, frozenset[str]] = {
    "Terminating": _OF_PODS,
    "NotTerminating": _OF_PODS,
    "BestEffort": frozenset({"pods"}),
    "NotBestEffort": _OF_PODS,
    "PriorityClass": _OF_PODS,
    "CrossNamespacePodAffinity": _OF_PODS,
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""The resources that are allowed with each scope."""
_PLAIN_SCOPES = _SCOPES.keys() - {"PriorityClass", "VolumeAttributesClass"}
_PLAIN_TEXT = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
    "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
    "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_OPPOSITES = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})


def resource_name(name: str, path: str) -> list[FieldError]:
    """The rule of resources: Kubernetes' own names, or qualified ones."""
    errors = [invalid(path, name, text) for text in qualified_name(name)]
    if not errors and "/" not in name and not (_is_standard(name) or name == "storage"):
        text = "must be a standard resource type or fully qualified"
        errors.append(invalid(path, name, text))
    return errors


def _is_standard(name: str) -> bool:
    return name in _QUOTA or name.startswith(_HUGE)


def check_quota(obj: Obj) -> list[FieldError]:
    """Check names, amounts and scopes."""
    spec = section(obj, "spec")
    hard = section(spec, "hard")
    errors: list[FieldError] = []
    for name in sorted(hard):
        path = f"spec.hard[{name}]"
        errors += resource_name(name, path)
        if "/" not in name and not _is_standard(name):
            errors.append(invalid(path, name, "must be a standard resource for quota"))
        errors += _validate_amount(name, hard[name], path)
    scopes = list(listed(spec, "scopes"))
    for scope in scopes:
        if scope not in _SCOPES:
            errors.append(invalid("spec.scopes", scopes, "unsupported scope"))
        errors += [
            invalid("spec.scopes", scopes, "unsupported scope applied to resource")
            for name in sorted(hard)
            if _is_standard(name) and name not in _SCOPES.get(scope, (name,))
        ]
    errors += [
        invalid("spec.scopes", scopes, "conflicting scopes")
        for pair in _OPPOSITES
        if pair <= set(scopes)
    ]
    return [*errors, *_validate_selector(spec)]


def check_changed_quota(obj: Obj, old: Obj) -> list[FieldError]:
    """Check that the scopes do not change."""
    now, before = (set(listed(section(each, "spec"), "scopes")) for each in (obj, old))
    return [] if now == before else immutable("spec.scopes", sorted(now), sorted(before))


def _validate_amount(name: str, value: Any, path: str) -> list[FieldError]:
    amount = Quantity.parse(value)
    if amount < Quantity.parse(0):
        return [invalid(path, value, NON_NEGATIVE)]
    whole = name in _COUNTED or not (is_native(name) or name.startswith("requests."))
    if whole and amount.milli() % 1000:
        return [invalid(path, value, "must be an integer")]
    return []


def _validate_selector(spec: Mapping[str, Any]) -> list[FieldError]:
    path = "spec.scopeSelector.matchExpressions"
    return [
        error
        for each in listed(section(spec, "scopeSelector"), "matchExpressions")
        for error in check("ScopeRequirement", each, path, plain=_plain)
    ]


def _plain(at: ValuePlace, _: str) -> BrokenRules:
    plain = at.outer.get("scopeName") in _PLAIN_SCOPES and at.value != "Exists"
    return [invalid(at.path, at.value or "", _PLAIN_TEXT)] if plain else []


def check_runtime_class(obj: Obj) -> list[FieldError]:
    """Check that the handler of a RuntimeClass is a DNS label."""
    return check(
        "RuntimeClass",
        obj,
        "",
        fixed=lambda at, _: validate_resources(
            {"limits": at.value}, at.path.removesuffix(".podFixed")
        ),
        operand=operand,
    )


# --------------------------------------------------------------------------------------------------

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
    texts = qualified_name(kind)
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
    texts: list[str] = []
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    for item in _items(limit_ranges, "Container"):
        limits.update(section(item, "default"))
        requests.update(section(item, "defaultRequest"))
    if not limits and not requests:
        return texts
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
                texts.append(f"{names} {key[:-1]} for {what} {container.get('name')}")
    return texts


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

    def admit(self, request: AdmissionAttributes, reader: StoreReader) -> None:
        """Fills in the defaults."""
        limit_ranges = list(reader.items(LIMIT_RANGES, request.key.namespace))
        texts = apply_defaults(request.new["spec"], limit_ranges)
        if texts:
            notes = subobject(request.new["metadata"], "annotations")
            notes[ANNOTATION] = f"LimitRanger plugin set: {'; '.join(texts)}"

    def validate(self, request: AdmissionAttributes, reader: StoreReader) -> None:
        """Checks the limits.

        Raises:
            Forbidden: the pod violates a limit.
        """
        limit_ranges = list(reader.items(LIMIT_RANGES, request.key.namespace))
        problems = broken_limits(request.new["spec"], limit_ranges)
        if problems:
            text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            raise request.refuse(text)
