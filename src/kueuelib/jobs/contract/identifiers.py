"""Names of Workloads and groups that an object gives in an annotation or in a label.

Both have the same key. The annotation takes precedence, because it may be longer than a label. An
empty one does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import annotations_of, labels_of
from kueuelib.jobs.contract.field_rules import annotation_path, label_path


def identifier(obj: Mapping[str, Any], key: str) -> str:
    """The name that an object gives; empty for none."""
    return annotations_of(obj).get(key) or labels_of(obj).get(key, "")


def where_named(obj: Mapping[str, Any], key: str) -> str:
    """The path of the annotation, or of the label."""
    return annotation_path(key) if annotations_of(obj).get(key) else label_path(key)
