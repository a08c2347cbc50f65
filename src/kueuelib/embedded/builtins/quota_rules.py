"""ResourceQuotas and RuntimeClasses: validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.api.quantity import Quantity
from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.fields import NON_NEGATIVE, immutable, invalid
from kueuelib.embedded.builtins.pod_placement import operand
from kueuelib.embedded.builtins.raw import listed, section
from kueuelib.embedded.builtins.resources import is_native, validate_resources
from kueuelib.embedded.builtins.rule_table import BrokenRules, ValuePlace, check
from kueuelib.errors import FieldError

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
    errors = [invalid(path, name, text) for text in naming.qualified_name(name)]
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
