"""Compiled parts of an expression, and the code of constants and type names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kueuelib.embedded.cel import types
from kueuelib.embedded.cel.running import Env, Run
from kueuelib.embedded.cel.values import TypeValue, Uint

LIST_COST = 10
MAP_COST = 30

LITERALS: Mapping[type, types.Type] = {
    bool: types.BOOL,
    int: types.INT,
    Uint: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    type(None): types.NULL,
}
TYPE_NAMES = frozenset(
    (
        *("bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"),
        *("optional_type", "google.protobuf.Timestamp", "google.protobuf.Duration", "net.IP"),
        *("net.CIDR", "kubernetes.URL", "kubernetes.Quantity", "kubernetes.NamedFormat"),
    )
)


@attrs.frozen(eq=False)
class Code:
    """A compiled part: its type, its function, and its cost."""

    type: types.Type
    run: Run
    cost: int = 0
    const: bool = False


@attrs.frozen
class Variable:
    """A name in scope: its place in the environment and its type."""

    slot: int
    type: types.Type


def _failed(_: Env) -> Any:
    raise AssertionError("an expression with mistakes is never run")


BROKEN = Code(types.DYN, _failed)


def type_code(name: str) -> Code:
    """The code of the name of a type."""
    value = TypeValue(name)
    return Code(types.TYPE, lambda _: value)
