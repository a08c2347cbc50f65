"""Reads raw objects, in which null means absent, and says what is wrong with their fields.

Clients show and match these texts, so the wording is that of the real server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kueuelib.api.meta import Obj, find_condition
from kueuelib.api.validation import fields
from kueuelib.errors import FieldError

# ---- helpers for raw objects, in which null means absent -----------------------------------------

_MAPS = frozenset(
    {"annotations", "labels", "limits", "matchLabels", "nodeSelector", "overhead", "requests"}
)


def meaning(value: Any) -> Any:
    """A value without parts that mean the same as absent ones: nulls, empty lists, empty maps of
    texts.

    Objects with the same meaning are equal for Kubernetes, from any writer.
    """
    if isinstance(value, dict):
        meanings = {key: meaning(each) for key, each in value.items()}
        return {
            key: each
            for key, each in meanings.items()
            if each is not None and each != [] and (each != {} or key not in _MAPS)
        }
    if isinstance(value, list):
        return [meaning(each) for each in value]
    return value


def section(obj: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The mapping at a path of keys; empty if there is none."""
    value: Any = obj
    for key in keys:
        value = value.get(key) if isinstance(value, dict | Mapping) else None
    return value if isinstance(value, dict | Mapping) else {}


def holds(status: Mapping[str, Any], type_: str) -> bool:
    """Whether a condition is True."""
    return find_condition(status.get("conditions"), type_).get("status") == "True"


def listed(obj: Mapping[str, Any], key: str) -> Sequence[Any]:
    """The list of that key; empty if it is absent or null."""
    return obj.get(key) or ()


def keep(obj: Obj, old: Mapping[str, Any], *keys: str) -> None:
    """Restore fields to what they were before, also if they were absent."""
    for key in keys:
        if key in old:
            obj[key] = old[key]
        else:
            obj.pop(key, None)


def setdefault(obj: Obj, key: str, value: Any) -> None:
    """Like `dict.setdefault`, but null counts as absent, as in Kubernetes."""
    if obj.get(key) is None:
        obj[key] = value


def subobject(obj: Obj, key: str) -> Obj:
    """The mapping of that key, which is created if it is absent or null."""
    child = obj.get(key)
    if child is None:
        child = obj[key] = {}
    return child


# --------------------------------------------------------------------------------------------------

IMMUTABLE, NON_NEGATIVE = fields.IMMUTABLE, fields.NOT_NEGATIVE
forbidden, required, too_long = fields.forbidden, fields.required, fields.too_long


def shown(value: Any) -> str:
    """A value in the form of error texts: texts quoted, everything else as JSON."""
    if value is None:
        return "null"
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """A value that breaks a rule."""
    tail = f": {detail}" if detail else ""
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {shown(value)}{tail}")


def duplicate(path: str, value: Any, detail: str = "") -> FieldError:
    """A duplicate value."""
    tail = f": {detail}" if detail else ""
    return FieldError(path, "FieldValueDuplicate", f"Duplicate value: {shown(value)}{tail}")


def not_supported(
    path: str, value: Any, supported: Iterable[str], *, ordered: bool = False
) -> FieldError:
    """An unknown value; the known ones are listed, in their own order if `ordered`."""
    known = ", ".join(shown(choice) for choice in (supported if ordered else sorted(supported)))
    text = f"Unsupported value: {shown(value)}: supported values: {known}"
    return FieldError(path, "FieldValueNotSupported", text)


def immutable(path: str, new: Any, old: Any) -> list[FieldError]:
    """An error if the value changed; absent and empty are different."""
    return [] if new == old else [invalid(path, new, IMMUTABLE)]


def unchanged(obj: Obj, old: Obj, *paths: str) -> list[FieldError]:
    """An error for each of these immutable fields that changed."""
    errors = []
    for path in paths:
        *outer, key = path.split(".")
        now, before = section(obj, *outer).get(key), section(old, *outer).get(key)
        errors += immutable(path, now, before)
    return errors


def non_negative(path: str, value: Any) -> list[FieldError]:
    """An error if the number is negative; None passes."""
    return [invalid(path, value, NON_NEGATIVE)] if value is not None and value < 0 else []
