"""The names of taints, and a rule of tolerations."""

from __future__ import annotations

from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.fields import invalid
from kueuelib.embedded.builtins.rule_table import BrokenRules, ValuePlace

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


def operand(at: ValuePlace, _: str) -> BrokenRules:
    """The rule of the value that a toleration compares."""
    operator, value = at.value.get("operator") or "", at.value.get("value")
    why = ""
    if operator in ("", "Equal"):
        why = ";".join(naming.label_value(value or ""))
    elif operator == "Exists" and value:
        why = "value must be empty when `operator` is 'Exists'"
    return [invalid(f"{at.path}.operator", value, why)] if why else []
