"""The rules of tolerations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.fields import invalid, not_supported
from kueuelib.errors import FieldError

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TOLERATION_OPERATORS = ("Equal", "Exists")
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


def validate_tolerations(tolerations: Sequence[Any], path: str) -> list[FieldError]:
    """Keys, operators and effects."""
    errors = []
    for i, toleration in enumerate(tolerations):
        where = f"{path}[{i}]"
        key, operator = toleration.get("key") or "", toleration.get("operator") or ""
        effect, value = toleration.get("effect"), toleration.get("value")
        if key:
            errors += [invalid(f"{where}.key", key, text) for text in naming.qualified_name(key)]
        elif operator != "Exists":
            text = (
                "operator must be Exists when `key` is empty, "
                'which means "match all values and all keys"'
            )
            errors.append(invalid(f"{where}.operator", operator, text))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
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
            errors.append(not_supported(f"{where}.effect", effect, TAINT_EFFECTS, ordered=True))
    return errors
