"""Makes structural schemas (OpenAPI v3 as CRDs use it) from the classes of typed values.

Types give the shape, `wire` metadata gives limits, enums, defaults and list kinds, docstrings give
the descriptions that `kubectl explain` shows.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

import attrs

from kueuelib.api.codec import encode
from kueuelib.api.core import PodTemplateSpec
from kueuelib.api.meta import KubeObject, Obj, ObjectMeta
from kueuelib.api.patch import merge_patch
from kueuelib.api.quantity import PATTERN, Quantity
from kueuelib.api.struct import MicroTime, Struct, Time, WireField, json_name
from kueuelib.errors import ConfigError

QUANTITY: Final[Mapping[str, Any]] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": PATTERN,
    "x-kubernetes-int-or-string": True,
}

_OPEN: Final = {"x-kubernetes-preserve-unknown-fields": True}
_TEMPLATE_METADATA: Final = ("name", "namespace", "labels", "annotations", "finalizers")
_OBJECT_HEAD: Final = {
    "apiVersion": {
        "type": "string",
        "description": "The group and version of this representation of the object.",
    },
    "kind": {"type": "string", "description": "The kind of the object."},
    "metadata": {"type": "object"},
}


def object_schema(cls: type[KubeObject], *, derived: bool = False) -> Obj:
    """The schema of a whole object, with `apiVersion`, `kind` and `metadata`.

    Args:
        cls: the class of the objects.
        derived: see `struct_schema`.
    """
    schema = struct_schema(cls, derived=derived)
    del schema["properties"]["metadata"]
    schema["properties"] = {**_OBJECT_HEAD, **schema["properties"]}
    return schema


def struct_schema(cls: type[Struct], *, keep_unknown: bool = False, derived: bool = False) -> Obj:
    """The schema of one class.

    Args:
        cls: a class of typed values. Pod templates always keep what their classes do not know, so
            that nothing of a user's template is lost.
        keep_unknown: keep fields that the class does not know, at every level.
        derived: an attribute without default is required, and a default other than the zero of its
            type is a default of the schema. Otherwise only `wire` says so.

    Raises:
        ConfigError: a field has a type without schema, a default that its type does not allow, or
            no annotation, or the type of a field is not defined.
    """
    keep_unknown = keep_unknown or issubclass(cls, PodTemplateSpec)
    summary, documented = _documentation(cls)
    whole: Obj = {"type": "object", "description": summary}
    properties, required = {}, []
    if derived:
        _check_decorated(cls)
        _check_annotations(cls)
    for field in _fields(cls):
        if field.name == "extra" or (
            keep_unknown and cls is ObjectMeta and field.name not in _TEMPLATE_METADATA
        ):
            continue
        name = json_name(field)
        wire = field.metadata.get("wire") or WireField()
        try:
            schema = _type_schema(field.type, keep_unknown=keep_unknown, derived=derived)
        except _NoSchema:
            raise ConfigError(
                _subject(cls, field.name),
                f"the type {_type_name(field.type)} has no schema",
                _replacement(field.type)
                or "use str, int, float, bool, Literal, Quantity, Time, a Struct, tuple[X, ...] "
                "or Mapping[str, X]",
            ) from None
        if text := documented.get(field.name):
            schema["description"] = text
        _add_keywords(schema, wire)
        if derived:
            _check_none(cls, field)
            _check_default(cls, field, schema)
            _add_default(schema, field.default)
        properties[name] = schema
        if wire.required or (derived and field.default is attrs.NOTHING):
            required.append(name)
    if properties:
        whole["properties"] = properties
    if required:
        whole["required"] = required
    if keep_unknown:
        whole |= _OPEN
    return whole


def _fields(cls: type[Struct]) -> Sequence[attrs.Attribute[Any]]:
    try:
        return tuple(attrs.fields(attrs.resolve_types(cls)))
    except NameError as error:
        fix = "define it before its first use, or import it at the top of the module"
        raise ConfigError(_subject(cls), f"the type of a field is unknown: {error}", fix) from error


def _subject(cls: type[Struct], field: str = "") -> str:
    """The class, or its field, after file and line if its source can be read."""
    name = f"{cls.__name__}.{field}" if field else cls.__name__
    try:
        lines, first = inspect.getsourcelines(cls)
    except (OSError, TypeError):
        return name
    written = re.compile(rf"\s*{field}\s*[:=]" if field else rf"\s*class {cls.__name__}\b")
    offset = next((index for index, line in enumerate(lines) if written.match(line)), 0)
    return f"{inspect.getsourcefile(cls)}, line {first + offset}: {name}"


def _type_name(kind: Any) -> str:
    if kind in (Time, MicroTime):
        return "Time" if kind == Time else "MicroTime"
    if isinstance(kind, type) and not get_args(kind):
        return kind.__name__
    return str(kind).replace("typing.", "").replace("collections.abc.", "")


def _replacement(kind: Any) -> str:
    """What to write for a list or a dict, which are mutable; empty for other types."""
    arguments = [_type_name(each) for each in get_args(kind)]
    if get_origin(kind) is list:
        return f"write tuple[{arguments[0]}, ...]"
    if get_origin(kind) is dict:
        return f"write Mapping[{', '.join(arguments)}]"
    return ""


def _check_decorated(cls: type[Struct]) -> None:
    """Refuse a class without `@frozen`: attrs has not read its fields, so the schema lacks them."""
    if "__attrs_attrs__" in vars(cls):
        return
    own = (str(each) for each in inspect.get_annotations(cls).values())
    if any(not each.startswith(("ClassVar", "typing.ClassVar")) for each in own):
        problem = "its fields would be lost"
        raise ConfigError(_subject(cls), problem, "put @frozen of kueuelib.runtime above it")


def check_readable(cls: type[Struct]) -> None:
    """Check that objects can be read as values of a class, which may have no schema.

    Raises:
        ConfigError: it is not decorated, or a field has one of several types.
    """
    _check_decorated(cls)
    for field in _fields(cls):
        if get_origin(field.type) in (Union, UnionType) and _is_of_many(field.type):
            problem = f"the type {_type_name(field.type)} cannot be read"
            raise ConfigError(_subject(cls, field.name), problem, f"write {field.name}: Any")


def _is_of_many(kind: Any) -> bool:
    return len({*get_args(kind)} - {NoneType}) > 1


def _check_none(cls: type[Struct], field: attrs.Attribute[Any]) -> None:
    if field.default is None and NoneType not in get_args(field.type):
        kind = _type_name(field.type)
        raise ConfigError(
            _subject(cls, field.name),
            f"the default None is not of the type {kind}",
            f"write {field.name}: {kind} | None = None",
        )


def _check_annotations(cls: type[Struct]) -> None:
    """Refuse a class with an attribute without annotation: it would not become a field."""
    for name, value in vars(cls).items():
        plain = isinstance(value, str | int | float | tuple | Quantity | Struct)
        if plain and name[0] != "_" and name not in cls.__annotations__ and name != "definition":
            raise ConfigError(
                _subject(cls, name),
                "has no annotation, so it is not a field",
                f"write {name}: {type(value).__name__} = {value!r}, or ClassVar",
            )


def _check_default(cls: type[Struct], field: attrs.Attribute[Any], schema: Obj) -> None:
    default = field.default
    wanted = _PYTHON.get(schema.get("type", ""))
    if wanted is None or ("format" in schema and schema["type"] == "string"):
        return
    if not isinstance(default, str | int | float):
        return
    is_bool = isinstance(default, bool)
    if not isinstance(default, wanted) or is_bool is not (schema["type"] == "boolean"):
        problem = f"the default {default!r} is not of the type {schema['type']}"
        raise ConfigError(
            _subject(cls, field.name), problem, "correct the default, or the annotation"
        )
    if default not in schema.get("enum", (default,)):
        problem = f"the default {default!r} is none of its values"
        raise ConfigError(
            _subject(cls, field.name), problem, f"use one of {', '.join(map(repr, schema['enum']))}"
        )
    if schema.get("format") == "int32" and not -(2**31) <= default < 2**31:
        problem = f"the default {default} does not fit into int32"
        fix = f'write field(default={default}, metadata=wire(format="int64"))'
        raise ConfigError(_subject(cls, field.name), problem, fix)


_PYTHON: Final[Mapping[str, Any]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": (),
    "object": (),
}


def _add_keywords(schema: Obj, wire: WireField) -> None:
    for keyword, value in wire.schema.items():
        if keyword == "kind":
            name = (
                "x-kubernetes-list-type" if schema["type"] == "array" else "x-kubernetes-map-type"
            )
            schema[name] = value
        else:
            schema[keyword] = value
    if wire.items:
        inner = "items" if schema["type"] == "array" else "additionalProperties"
        schema[inner] = {**schema[inner], **wire.items}


def _add_default(schema: Obj, default: Any) -> None:
    """The default of an attribute; nothing for zeros, which mean the same as an absent field."""
    if "default" in schema or not default:
        return
    if isinstance(default, str | int | float):
        schema["default"] = default
    elif isinstance(default, Quantity):
        schema["default"] = str(default)
    elif isinstance(default, Struct):
        inner = schema.get("properties", {}).items()
        nested = {name: each["default"] for name, each in inner if "default" in each}
        whole = merge_patch(nested, encode(default))
        if whole and set(schema.get("required", ())) <= whole.keys():
            schema["default"] = whole  # with nested ones, because rules must hold for it as it is


class _NoSchema(Exception):
    """A type that cannot be written as a schema."""


def _type_schema(kind: Any, *, keep_unknown: bool, derived: bool = False) -> Obj:
    if kind in (Time, MicroTime):
        return {"type": "string", "format": "date-time"}
    if kind is Quantity:
        return dict(QUANTITY)
    if kind is bool:
        return {"type": "boolean"}
    if kind is int:
        return {"type": "integer", "format": "int32"}
    if kind is str:
        return {"type": "string"}
    if kind is float:
        return {"type": "number"}
    if isinstance(kind, type) and issubclass(kind, Struct):
        return struct_schema(kind, keep_unknown=keep_unknown, derived=derived)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
        (inner,) = (one for one in arguments if one is not NoneType)
        return _type_schema(inner, keep_unknown=keep_unknown, derived=derived)
    if origin is tuple and arguments[1:] == (...,):
        items = _type_schema(arguments[0], keep_unknown=keep_unknown, derived=derived)
        return {"type": "array", "items": items}
    if origin is Mapping and arguments[0] is str:
        if arguments[1] is Any:
            return {"type": "object", **_OPEN}
        values = _type_schema(arguments[1], keep_unknown=keep_unknown, derived=derived)
        return {"type": "object", "additionalProperties": values}
    raise _NoSchema


# ---- descriptions

_ENTRY: Final = re.compile(r"(\w+): (.*)")


def _documentation(cls: type) -> tuple[str, dict[str, str]]:
    """The summary of a class, and the sentences of its `Attributes:` section."""
    text = cls.__doc__ or ""
    summary, _, section = text.partition("Attributes:")
    attributes: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        entry = _ENTRY.match(line.strip())
        indent = len(line) - len(line.lstrip())
        if entry is not None and indent <= _ENTRY_INDENT:
            name, attributes[entry[1]] = entry[1], entry[2]
        elif name and line.strip():
            attributes[name] += " " + line.strip()
    summary = summary.strip().partition("\n\n")[0]
    return " ".join(summary.split()), {key: _sentence(value) for key, value in attributes.items()}


_ENTRY_INDENT: Final = 8


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
