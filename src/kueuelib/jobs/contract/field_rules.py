"""The field errors of rules for jobs, in the words of Kubernetes."""

from __future__ import annotations

import json
from typing import Any

from kueuelib.errors import FieldError

IMMUTABLE = "field is immutable"
NO_SUBDOMAIN = (
    "must be lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit "
    "(a DNS subdomain)"
)


def label_path(key: str) -> str:
    """The path of a label."""
    return f"metadata.labels[{key}]"


def annotation_path(key: str) -> str:
    """The path of an annotation."""
    return f"metadata.annotations[{key}]"


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """A value that breaks a rule."""
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {json.dumps(value)}: {detail}")


def forbidden(path: str, detail: str) -> FieldError:
    """A field that must not be set or changed now."""
    return FieldError(path, "FieldValueForbidden", f"Forbidden: {detail}")
