"""Fills in the defaults of a schema."""

from __future__ import annotations

from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded.schema.node import SchemaNode


def apply_defaults(node: SchemaNode, obj: Obj) -> None:
    """Fill in the defaults of absent fields in place, including nested ones.

    If the schema does not allow null, it counts as absent: such fields get their default or are
    removed.
    """
    _default(node, obj)


def _default(node: SchemaNode, value: Any) -> None:
    if isinstance(value, dict):
        if None in value.values():
            _drop_nulls(node, value)
        for name, default in node.defaults:
            if name not in value:
                value[name] = _copy(default)
        for name, each in value.items():
            if isinstance(each, dict | list):
                known = node.properties.get(name) or node.additional
                if known is not None:
                    _default(known, each)
    elif isinstance(value, list) and node.items is not None:
        for item in value:
            _default(node.items, item)


def _drop_nulls(node: SchemaNode, value: dict[str, Any]) -> None:
    for name in [name for name, each in value.items() if each is None]:
        known = node.properties.get(name) or node.additional
        if known is not None and not known.nullable:
            del value[name]


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(each) for each in value]
    return value
