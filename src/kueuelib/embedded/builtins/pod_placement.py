"""The rules of tolerations and node affinity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.fields import (
    forbidden,
    invalid,
    listed,
    not_supported,
    required,
    section,
)
from kueuelib.errors import FieldError

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TOLERATION_OPERATORS = ("Equal", "Exists")
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def validate_tolerations(tolerations: Sequence[Any], path: str) -> list[FieldError]:
    """Keys, operators and effects."""
    errors = []
    for i, found in enumerate(tolerations):
        where = f"{path}[{i}]"
        key, operator = found.get("key") or "", found.get("operator") or ""
        effect, value = found.get("effect"), found.get("value")
        if key:
            errors += [invalid(f"{where}.key", key, text) for text in naming.qualified_name(key)]
        elif operator != "Exists":
            text = (
                "operator must be Exists when `key` is empty, "
                'which means "match all values and all keys"'
            )
            errors.append(invalid(f"{where}.operator", operator, text))
        if found.get("tolerationSeconds") is not None and effect != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errors.append(invalid(f"{where}.effect", effect or "", text))
        if operator in ("", "Equal"):
            if texts := naming.label_value(value or ""):
                errors.append(invalid(f"{where}.operator", value, ";".join(texts)))
        elif operator == "Exists":
            if value:
                text = "value must be empty when `operator` is 'Exists'"
                errors.append(invalid(f"{where}.operator", value, text))
        else:
            errors.append(not_supported(f"{where}.operator", operator, TOLERATION_OPERATORS))
        if effect and effect not in TAINT_EFFECTS:
            errors.append(not_supported(f"{where}.effect", effect, TAINT_EFFECTS))
    return errors


def validate_affinity(affinity: Mapping[str, Any], path: str) -> list[FieldError]:
    """Node affinity; the affinity to other pods is stored as it is."""
    errors = []
    node = section(affinity, "nodeAffinity")
    wanted = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    where = f"{path}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    if wanted is not None:
        terms = listed(wanted, "nodeSelectorTerms")
        if not terms:
            text = "must have at least one node selector term"
            errors.append(required(f"{where}.nodeSelectorTerms", text))
        for i, term in enumerate(terms):
            errors += validate_node_selector_term(term, f"{where}.nodeSelectorTerms[{i}]")
    where = f"{path}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
    for i, found in enumerate(listed(node, "preferredDuringSchedulingIgnoredDuringExecution")):
        weight = found.get("weight") or 0
        if not 1 <= weight <= 100:
            errors.append(invalid(f"{where}[{i}].weight", weight, "must be in the range 1-100"))
        term = section(found, "preference")
        errors += validate_node_selector_term(term, f"{where}[{i}].preference")
    return errors


def validate_node_selector_term(term: Mapping[str, Any], path: str) -> list[FieldError]:
    """Keys, operators and the number of their values."""
    errors = []
    for i, found in enumerate(listed(term, "matchExpressions")):
        where = f"{path}.matchExpressions[{i}]"
        operator, values = found.get("operator"), listed(found, "values")
        if operator in ("In", "NotIn") and not values:
            text = "must be specified when `operator` is 'In' or 'NotIn'"
            errors.append(required(f"{where}.values", text))
        elif operator in ("Exists", "DoesNotExist") and values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(forbidden(f"{where}.values", text))
        elif operator in ("Gt", "Lt") and len(values) != 1:
            text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errors.append(required(f"{where}.values", text))
        elif operator not in NODE_OPERATORS:
            text = "not a valid selector operator"
            errors.append(invalid(f"{where}.operator", operator, text))
        key = found.get("key") or ""
        errors += [invalid(f"{where}.key", key, text) for text in naming.qualified_name(key)]
    for i, found in enumerate(listed(term, "matchFields")):
        if found.get("key") != "metadata.name":
            text = "not a valid field selector key"
            errors.append(invalid(f"{path}.matchFields[{i}].key", found.get("key"), text))
    return errors
