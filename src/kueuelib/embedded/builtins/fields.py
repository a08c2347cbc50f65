"""Field errors in the words of Kubernetes.

Clients show and match these texts, so the wording is that of the real server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.api.validation import fields as shared
from kueuelib.embedded.builtins.raw import section
from kueuelib.errors import FieldError

IMMUTABLE, NON_NEGATIVE = shared.IMMUTABLE, shared.NOT_NEGATIVE
forbidden, required, too_long = shared.forbidden, shared.required, shared.too_long


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
