"""The rules for a structural schema.

A schema is structural when the shape of every value is defined outside the junctors `allOf`,
`anyOf`, `oneOf` and `not`, which then only restrict it. The functions work on the raw OpenAPI
schema, because a `SchemaNode` cannot express most of what they refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from kueuelib.embedded.builtins.fields import forbidden, invalid, required
from kueuelib.embedded.cel.regex import BadPattern, compile_pattern
from kueuelib.errors import FieldError

Raw = Mapping[str, Any]
Errors = Iterator[FieldError]

INT_OR_STRING: Final = "x-kubernetes-int-or-string"
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
JUNCTORS: Final = ("allOf", "anyOf", "oneOf")
_EITHER: Final = [{"type": "integer"}, {"type": "string"}]


class Level(Enum):
    """The level of a schema; the value is its name in messages."""

    ROOT = "at the root"
    ITEM = "for specified array items"
    FIELD = "for specified object fields"


def structural_problems(schema: Raw, path: str) -> list[FieldError]:
    """Why a schema is not structural, in the order of the messages.

    Args:
        schema: the whole schema of one version, without unsupported keywords.
        path: of the schema in the definition.
    """
    errors = [*_structure(schema, path, Level.ROOT), *_incomplete(schema, schema, path, path)]
    return sorted(errors, key=lambda error: f"{error.path}: {error.message}")


# ---- walking -------------------------------------------------------------------------------------


def _structure(schema: Raw, path: str, level: Level) -> Errors:
    for rule in (types_are_told, heads_have_their_types, metadata_of_the_root_is_known):
        yield from rule(schema, path, level)
    yield from extensions_agree(schema, path)
    yield from patterns_can_be_read(schema, path)
    skipped = _int_or_string_part(schema)
    yield from _nested_parts(schema, path, skipped)
    for name, sub in properties_of(schema):
        yield from _structure(sub, f"{path}.properties[{name}]", Level.FIELD)
    if isinstance(schema.get("items"), Mapping):
        yield from _structure(schema["items"], f"{path}.items", Level.ITEM)
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from _structure(
            schema["additionalProperties"], f"{path}.additionalProperties", Level.FIELD
        )


def _nested_parts(schema: Raw, path: str, skipped: str = "") -> Errors:
    for where, part in junctors_of(schema):
        inner = f"{path}.{where}"
        if where.partition("[")[0] == skipped == "anyOf":
            continue
        below = "anyOf" if skipped == "allOf" and where == "allOf[0]" else ""
        yield from _nested(part, inner, below)


def _nested(schema: Raw, path: str, skipped: str = "") -> Errors:
    yield from junctors_only_restrict(schema, path)
    yield from patterns_can_be_read(schema, path)
    yield from _nested_parts(schema, path, skipped)
    for name, sub in properties_of(schema):
        yield from _nested(sub, f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), Mapping):
        yield from _nested(schema["items"], f"{path}.items")


def properties_of(schema: Raw) -> Sequence[tuple[str, Raw]]:
    """The fields of a schema, by name."""
    return sorted((schema.get("properties") or {}).items())


def junctors_of(schema: Raw) -> Iterator[tuple[str, Raw]]:
    """The schemas in the junctors of a schema, with their paths: `anyOf[0]`, `not`."""
    for name in JUNCTORS:
        for i, part in enumerate(schema.get(name) or ()):
            yield f"{name}[{i}]", part
    if schema.get("not") is not None:
        yield "not", schema["not"]


def parts_of(schema: Raw) -> Iterator[Any]:
    """Everything in a schema that is, or in its place should be, a schema."""
    yield from (schema.get("items"), schema.get("additionalProperties"))
    yield from (part for _, part in (*properties_of(schema), *junctors_of(schema)))


def _int_or_string_part(schema: Raw) -> str:
    """The junctor in which an integer-or-string may name its two types."""
    if [_told(part) for part in schema.get("anyOf") or ()] == _EITHER:
        return "anyOf"
    first: Raw = (schema.get("allOf") or ({},))[0]
    if [_told(part) for part in first.get("anyOf") or ()] == _EITHER:
        return "allOf"
    return ""


def _told(schema: Raw) -> dict[str, Any]:
    """The keywords of a schema, without empty values."""
    return {name: value for name, value in schema.items() if not _is_empty(value)}


def _is_empty(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, str | list) and not value)


# ---- rules of structure --------------------------------------------------------------------------


def types_are_told(schema: Raw, path: str, level: Level) -> Errors:
    """Every value has a type, unless it may be anything or an integer or a string; the root is an
    object and no map, and the items of an array have a schema.
    """
    type_, where = schema.get("type"), f"{path}.type"
    if type_ == "array" and schema.get("items") is None:
        yield required(f"{path}.items", "must be specified")
    if schema.get(EMBEDDED) and type_ != "object":
        text = f"must be object if {EMBEDDED} is true"
        yield invalid(where, type_, text) if type_ else required(where, text)
    elif not type_ and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        yield required(where, f"must not be empty {level.value}")
    if level is Level.ROOT and type_ and type_ != "object":
        yield invalid(where, type_, "must be object at the root")
    if level is Level.ROOT and schema.get("additionalProperties") is not None:
        yield forbidden(f"{path}.additionalProperties", "must not be used at the root")


def extensions_agree(schema: Raw, path: str) -> Errors:
    """An integer-or-string has no other type; an embedded object is not a map, and names its fields
    or keeps unknown ones.
    """
    for name in (PRESERVE, EMBEDDED):
        if schema.get(INT_OR_STRING) and schema.get(name):
            text = f"must be false if {INT_OR_STRING} is true"
            yield invalid(f"{path}.{name}", value=True, detail=text)
    if schema.get(EMBEDDED) and schema.get("additionalProperties") is not None:
        text = f"must not be used if {EMBEDDED} is set"
        yield forbidden(f"{path}.additionalProperties", text)
    if schema.get(EMBEDDED) and not schema.get(PRESERVE) and not schema.get("properties"):
        text = f"must not be empty if {EMBEDDED} is true without {PRESERVE}"
        yield required(f"{path}.properties", text)


def heads_have_their_types(schema: Raw, path: str, level: Level) -> Errors:
    """`apiVersion` and `kind` are strings, `metadata` is an object."""
    if level is not Level.ROOT and not schema.get(EMBEDDED):
        return
    for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        head = (schema.get("properties") or {}).get(name)
        if head is not None and head.get("type") != wanted:
            where = f"{path}.properties[{name}].type"
            yield invalid(where, head.get("type") or "", f"must be {wanted}")


def metadata_of_the_root_is_known(schema: Raw, path: str, level: Level) -> Errors:
    """Only the names in the metadata may be restricted."""
    meta = (schema.get("properties") or {}).get("metadata")
    if level is not Level.ROOT or meta is None:
        return
    others = _told(meta).keys() - {"type", "default", "properties"}
    if others or not (meta.get("properties") or {}).keys() <= {"name", "generateName"}:
        text = (
            "must not specify anything other than name and generateName, but metadata is "
            "implicitly specified"
        )
        yield forbidden(f"{path}.properties[metadata]", text)


def patterns_can_be_read(schema: Raw, path: str) -> Errors:
    """A pattern is a regular expression of Go."""
    pattern = schema.get("pattern")
    if not pattern:
        return
    try:
        compile_pattern(pattern)
    except BadPattern as error:
        text = f"must be a valid regular expression, but isn't: {error}"
        yield invalid(f"{path}.pattern", pattern, text)


# ---- rules of junctors ---------------------------------------------------------------------------

_FORBIDDEN_IN_JUNCTORS: Final[Mapping[str, str]] = {
    "type": "empty",
    "additionalProperties": "undefined",
    "default": "undefined",
    "title": "empty",
    "description": "empty",
    "nullable": "false",
    PRESERVE: "false",
    EMBEDDED: "false",
    INT_OR_STRING: "false",
    "x-kubernetes-list-map-keys": "empty",
    "x-kubernetes-list-type": "undefined",
    "x-kubernetes-map-type": "undefined",
    "x-kubernetes-validations": "empty",
}


def junctors_only_restrict(schema: Raw, path: str) -> Errors:
    """A junctor contains nothing that belongs to the shape, and does not restrict metadata."""
    for name, wanted in _FORBIDDEN_IN_JUNCTORS.items():
        value = schema.get(name)
        if not _is_empty(value) or (name == "default" and value is not None):
            yield forbidden(f"{path}.{name}", f"must be {wanted} to be structural")
    if "metadata" in (schema.get("properties") or {}):
        where = f"{path}.properties[metadata]"
        yield forbidden(where, "must not be specified in a nested context")


def _incomplete(part: Raw, shape: Raw, path: str, told: str) -> Errors:
    """The fields that a junctor restricts are also part of the shape.

    Args:
        part: the root, or a part of one of its junctors.
        shape: what the schema says about the same value outside junctors.
        path: of the shape.
        told: its path.
    """
    for where, inner in junctors_of(part):
        yield from _incomplete(inner, shape, path, f"{told}.{where}")
    if part is shape:
        return
    if isinstance(part.get("items"), Mapping):
        yield from _matched(part["items"], shape.get("items"), f"{path}.items", f"{told}.items")
    for name, sub in properties_of(part):
        known = (shape.get("properties") or {}).get(name)
        where = f"properties[{name}]"
        yield from _matched(sub, known, f"{path}.{where}", f"{told}.{where}")


def _matched(part: Raw, shape: Any, path: str, told: str) -> Errors:
    if not isinstance(shape, Mapping):
        yield required(path, f"because it is defined in {told}")
    else:
        yield from _incomplete(part, shape, path, told)
