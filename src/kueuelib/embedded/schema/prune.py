"""Removes fields that a schema does not define."""

from __future__ import annotations

from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded.schema.node import SchemaNode

_HEAD = frozenset({"apiVersion", "kind", "metadata"})


def prune(node: SchemaNode, obj: Obj) -> list[str]:
    """Remove unknown fields in place.

    The `apiVersion`, `kind` and `metadata` of the object and of embedded ones stay untouched.

    Returns:
        the paths of removed fields, for example `spec.queues[0].colour`.
    """
    removed: list[str] = []
    _prune(node, obj, "", removed, head=True)
    return removed


def _prune(node: SchemaNode, value: Any, path: str, removed: list[str], *, head: bool) -> None:
    if isinstance(value, dict):
        _prune_map(node, value, path, removed, head=head or node.embedded)
    elif isinstance(value, list) and node.items is not None:
        for index, item in enumerate(value):
            _prune(node.items, item, f"{path}[{index}]", removed, head=False)


def _prune_map(node: SchemaNode, value: Obj, path: str, removed: list[str], *, head: bool) -> None:
    for name in list(value):
        if head and name in _HEAD:
            continue
        known = node.properties.get(name) or node.additional
        if known is not None:
            each = value[name]
            if isinstance(each, dict | list):
                inner = f"{path}.{name}" if path else name
                _prune(known, each, inner, removed, head=False)
        elif not (node.preserve_unknown or node.int_or_string):
            del value[name]
            removed.append(f"{path}.{name}" if path else name)
