"""Converts schemas to types, and JSON to values of those types."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from kueuelib.embedded.cel import types
from kueuelib.embedded.cel.errors import EvalError
from kueuelib.embedded.cel.parser import RESERVED
from kueuelib.embedded.cel.times import parse_duration, parse_timestamp
from kueuelib.embedded.cel.values import KeyedList, Record, SetList
from kueuelib.embedded.schema.node import ListType, SchemaNode

Adapt = Callable[[Any], Any]

_WORDS = RESERVED | {"true", "false", "null", "in"}
_ESCAPED: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_SPECIAL = re.compile(r"__|[./-]")
_REACHABLE = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*", re.ASCII)


def escaped(name: str) -> str | None:
    """The name of a property in expressions; None if they cannot access it.

    `a.b` is `a__dot__b`, `a__b` is `a__underscores__b`, `namespace` is `__namespace__`.
    """
    if not _REACHABLE.fullmatch(name):
        return None
    if name in _WORDS:
        return f"__{name}__"
    return _SPECIAL.sub(lambda match: _ESCAPED[match[0]], name)


@attrs.frozen(eq=False)
class SchemaType:
    """The type of a schema, and the function that makes its values from JSON.

    `adapt` raises EvalError for JSON that does not fit the schema.
    """

    type: types.Type
    adapt: Adapt


_META: Final = SchemaNode(
    type="object",
    properties={"name": SchemaNode(type="string"), "generateName": SchemaNode(type="string")},
)
_HEAD: Final[Mapping[str, SchemaNode]] = {
    "apiVersion": SchemaNode(type="string"),
    "kind": SchemaNode(type="string"),
    "metadata": _META,
}


class SchemaTypes:
    """The types of the nodes of one schema, each made once."""

    def __init__(self) -> None:
        self._known: dict[int, SchemaType | None] = {}

    def of(self, node: SchemaNode, *, root: bool = False) -> SchemaType | None:
        """The type of a node; None if expressions cannot know it.

        Args:
            node: the schema.
            root: whether it is that of a whole object, with apiVersion, kind and metadata.
        """
        if id(node) not in self._known:
            schema_type = self._make(node, root=root or node.embedded)
            if schema_type is not None and node.nullable:
                schema_type = SchemaType(
                    attrs.evolve(schema_type.type, nullable=True), schema_type.adapt
                )
            self._known[id(node)] = schema_type
        return self._known[id(node)]

    def _make(self, node: SchemaNode, *, root: bool) -> SchemaType | None:
        if node.int_or_string:
            return SchemaType(types.DYN, _same)
        if node.type == "object" or root:
            return self._object(node, root=root)
        if node.type == "array":
            item = None if node.items is None else self.of(node.items)
            return (
                None
                if item is None
                else SchemaType(types.list_of(item.type), _list(node, item.adapt))
            )
        if node.type == "string":
            return _TEXTS.get(node.format, _TEXT)
        return _SCALARS.get(node.type)

    def _object(self, node: SchemaNode, *, root: bool) -> SchemaType | None:
        if node.additional is not None and not root:
            value = self.of(node.additional)
            return (
                None
                if value is None
                else SchemaType(types.map_of(types.STRING, value.type), _map(value.adapt))
            )
        fields: dict[str, types.Type] = {}
        steps: list[tuple[str, str, Adapt]] = []
        properties = {**node.properties, **_HEAD} if root else node.properties
        for name, sub in properties.items():
            shape, called = self.of(sub), escaped(name)
            if shape is not None and called is not None:
                fields[called] = shape.type
                steps.append((name, called, shape.adapt))
        return SchemaType(types.Type("object", fields=fields), _record(steps))


def _same(value: Any) -> Any:
    return value


def _wrong(wanted: str, value: Any) -> EvalError:
    return EvalError(f"invalid data, expected {wanted}, got {type(value).__name__}")


def _record(steps: list[tuple[str, str, Adapt]]) -> Adapt:
    def convert(value: Any) -> Record:
        record = Record()
        for name, called, inner in steps:
            if name in value:
                record[called] = inner(value[name])
        return record

    return _checked(dict, "an object", convert)


def _map(inner: Adapt) -> Adapt:
    return _checked(dict, "a map", lambda value: {key: inner(each) for key, each in value.items()})


def _list(node: SchemaNode, inner: Adapt) -> Adapt:
    keys = tuple(called for key in node.list_map_keys if (called := escaped(key)))

    def convert(value: list[Any]) -> list[Any]:
        items = [inner(each) for each in value]
        if node.list_type is ListType.SET:
            return SetList(items)
        if node.list_type is ListType.MAP:
            keyed_list = KeyedList(items)
            keyed_list.keys = keys
            return keyed_list
        return items

    return _checked(list, "an array", convert)


def _checked(kind: type | tuple[type, ...], wanted: str, convert: Adapt = _same) -> Adapt:
    def adapt(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise _wrong(wanted, value)
        return convert(value)

    return adapt


def _whole(value: float) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise _wrong("an integer", value)
    return int(value)


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise EvalError(f"byte format is invalid: {value[:60]!r}") from None


def _day(value: str) -> Any:
    return parse_timestamp(value if len(value) > 10 else f"{value}T00:00:00Z")


_TEXT: Final = SchemaType(types.STRING, _checked(str, "a string"))
_TEXTS: Final[Mapping[str, SchemaType]] = {
    "byte": SchemaType(types.BYTES, _checked(str, "a string", _decoded)),
    "duration": SchemaType(types.DURATION, _checked(str, "a string", parse_duration)),
    "date": SchemaType(types.TIMESTAMP, _checked(str, "a string", _day)),
    "date-time": SchemaType(types.TIMESTAMP, _checked(str, "a string", _day)),
}
_SCALARS: Final[Mapping[str, SchemaType]] = {
    "boolean": SchemaType(types.BOOL, _checked(bool, "a boolean")),
    "integer": SchemaType(types.INT, _checked((int, float), "an integer", _whole)),
    "number": SchemaType(types.DOUBLE, _checked((int, float), "a number", float)),
}
