"""Checks that the defaults of a schema are valid by that schema."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import attrs

from kueuelib.embedded.builtins.fields import invalid
from kueuelib.embedded.schema.node import MISSING, SchemaNode
from kueuelib.embedded.schema.prune import prune
from kueuelib.embedded.schema.validate import validate_value
from kueuelib.errors import FieldError

_HEAD = frozenset({"apiVersion", "kind", "metadata"})


def default_problems(node: SchemaNode, path: str) -> list[FieldError]:
    """Why defaults of a structural schema are not valid.

    CEL rules are not evaluated. Values of maps have no defaults.

    Args:
        node: the root of the schema.
        path: of the schema in the definition.
    """
    return list(_problems(node, path, head=True))


def _problems(node: SchemaNode, path: str, *, head: bool = False) -> Iterator[FieldError]:
    if node.default is not MISSING:
        yield from _problems_of(node, node.default, f"{path}.default")
    if node.items is not None:
        yield from _problems(node.items, f"{path}.items")
    for name, sub in sorted(node.properties.items()):
        if not ((head or node.embedded) and name in _HEAD):
            yield from _problems(sub, f"{path}.properties[{name}]")


def _problems_of(node: SchemaNode, default: Any, path: str) -> Iterator[FieldError]:
    holder = SchemaNode(properties={"value": node})
    if prune(holder, {"value": copy.deepcopy(default)}):
        yield invalid(path, default, "must not have unknown fields")
    for error in validate_value(node, default):
        where = error.path if error.path.startswith("[") or not error.path else f".{error.path}"
        yield attrs.evolve(error, path=path + where)
