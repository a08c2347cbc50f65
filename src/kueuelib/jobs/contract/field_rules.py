"""Field errors of rules for jobs, in the words of Kubernetes, and names in annotations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import annotations_of, labels_of
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


# ---- names of Workloads and groups that an object gives in an annotation or in a label -----------
# Both have the same key. The annotation takes precedence, because it may be longer than a label. An
# empty one does not count.


def identifier(obj: Mapping[str, Any], key: str) -> str:
    """The name that an object gives; empty for none."""
    return annotations_of(obj).get(key) or labels_of(obj).get(key, "")


def where_named(obj: Mapping[str, Any], key: str) -> str:
    """The path of the annotation, or of the label."""
    return annotation_path(key) if annotations_of(obj).get(key) else label_path(key)
