"""The rules for a structural schema, and for its parts.

A schema is structural when the shape of every value is defined outside the junctors `allOf`,
`anyOf`, `oneOf` and `not`, which then only restrict it. The functions work on the raw OpenAPI
schema, because a `SchemaNode` cannot express most of what they refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import attrs

from kueuelib.embedded.builtins.fields import forbidden, invalid, not_supported, required
from kueuelib.embedded.cel.regex import BadPattern, compile_pattern
from kueuelib.errors import FieldError

Raw = Mapping[str, Any]
Errors = Iterator[FieldError]

INT_OR_STRING: Final = "x-kubernetes-int-or-string"
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
JUNCTORS: Final = ("allOf", "anyOf", "oneOf")
_EITHER: Final = [{"type": "integer"}, {"type": "string"}]


class SchemaLevel(Enum):
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
    errors = [*_structure(schema, path, SchemaLevel.ROOT), *_incomplete(schema, schema, path, path)]
    return sorted(errors, key=lambda error: f"{error.path}: {error.message}")


# ---- walking -------------------------------------------------------------------------------------


def _structure(schema: Raw, path: str, level: SchemaLevel) -> Errors:
    for rule in (types_are_given, heads_have_their_types, metadata_of_the_root_is_known):
        yield from rule(schema, path, level)
    yield from extensions_agree(schema, path)
    yield from patterns_can_be_read(schema, path)
    skipped = _int_or_string_part(schema)
    yield from _nested_parts(schema, path, skipped)
    for name, sub in properties_of(schema):
        yield from _structure(sub, f"{path}.properties[{name}]", SchemaLevel.FIELD)
    if isinstance(schema.get("items"), Mapping):
        yield from _structure(schema["items"], f"{path}.items", SchemaLevel.ITEM)
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from _structure(
            schema["additionalProperties"], f"{path}.additionalProperties", SchemaLevel.FIELD
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
    if [_keywords(part) for part in schema.get("anyOf") or ()] == _EITHER:
        return "anyOf"
    first: Raw = (schema.get("allOf") or ({},))[0]
    if [_keywords(part) for part in first.get("anyOf") or ()] == _EITHER:
        return "allOf"
    return ""


def _keywords(schema: Raw) -> dict[str, Any]:
    """The keywords of a schema, without empty values."""
    return {name: value for name, value in schema.items() if not _is_empty(value)}


def _is_empty(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, str | list) and not value)


# ---- rules of structure --------------------------------------------------------------------------


def types_are_given(schema: Raw, path: str, level: SchemaLevel) -> Errors:
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
    if level is SchemaLevel.ROOT and type_ and type_ != "object":
        yield invalid(where, type_, "must be object at the root")
    if level is SchemaLevel.ROOT and schema.get("additionalProperties") is not None:
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


def heads_have_their_types(schema: Raw, path: str, level: SchemaLevel) -> Errors:
    """`apiVersion` and `kind` are strings, `metadata` is an object."""
    if level is not SchemaLevel.ROOT and not schema.get(EMBEDDED):
        return
    for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        head = (schema.get("properties") or {}).get(name)
        if head is not None and head.get("type") != wanted:
            where = f"{path}.properties[{name}].type"
            yield invalid(where, head.get("type") or "", f"must be {wanted}")


def metadata_of_the_root_is_known(schema: Raw, path: str, level: SchemaLevel) -> Errors:
    """Only the names in the metadata may be restricted."""
    meta = (schema.get("properties") or {}).get("metadata")
    if level is not SchemaLevel.ROOT or meta is None:
        return
    others = _keywords(meta).keys() - {"type", "default", "properties"}
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


def _incomplete(part: Raw, shape: Raw, path: str, origin: str) -> Errors:
    """The fields that a junctor restricts are also part of the shape.

    Args:
        part: the root, or a part of one of its junctors.
        shape: what the schema says about the same value outside junctors.
        path: of the shape.
        origin: its path.
    """
    for where, inner in junctors_of(part):
        yield from _incomplete(inner, shape, path, f"{origin}.{where}")
    if part is shape:
        return
    if isinstance(part.get("items"), Mapping):
        yield from _matched(part["items"], shape.get("items"), f"{path}.items", f"{origin}.items")
    for name, sub in properties_of(part):
        known = (shape.get("properties") or {}).get(name)
        where = f"properties[{name}]"
        yield from _matched(sub, known, f"{path}.{where}", f"{origin}.{where}")


def _matched(part: Raw, shape: Any, path: str, origin: str) -> Errors:
    if not isinstance(shape, Mapping):
        yield required(path, f"because it is defined in {origin}")
    else:
        yield from _incomplete(part, shape, path, origin)


# ---- the rules for the parts of the schema of a custom resource ----------------------------------
# These rules hold in every part of a schema, also within junctors; `structural_rules` has the rules
# for the schema as a whole.

LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_KEYS: Final = "x-kubernetes-list-map-keys"
MAP_TYPE: Final = "x-kubernetes-map-type"
TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
UNSUPPORTED: Final = (
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
)
"""Keywords of JSON schema that custom resources do not support."""
_ONE_SCHEMA: Final = "items must be a schema object and not an array"
_IN_META: Final = "must not be used inside of resource meta"
_QUADRATIC: Final = (
    "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
)
_EXCLUSIVE: Final = "additionalProperties and properties are mutual exclusive"
_HEAD: Final = frozenset({"apiVersion", "kind", "metadata"})


@attrs.frozen
class SchemaPlace:
    """A part of a schema with its place.

    Attributes:
        schema: a part of the whole schema.
        path: of the part in the definition.
        undefaulted: why there may be no default, or None.
        metadata: whether it describes the apiVersion, kind or metadata of an object.
    """

    schema: Raw
    path: str
    undefaulted: str | None = None
    metadata: bool = False

    @property
    def items(self) -> Raw | None:
        """The schema of the items, if there is one for all of them."""
        items = self.schema.get("items")
        return items if isinstance(items, Mapping) else None


Rule = Callable[[Raw, str, SchemaPlace], Errors]
"""A function from a part of a schema to what is wrong with it."""


def openapi_problems(schema: Raw, path: str) -> list[FieldError]:
    """What is wrong in the parts of a schema.

    Args:
        schema: the whole schema of one version.
        path: of the schema in the definition.
    """
    return list(_problems(SchemaPlace(schema, path), root=True))


def has_unsupported(schema: Any) -> bool:
    """Whether it contains a keyword of JSON schema that custom resources do not support."""
    if isinstance(schema, list):
        return True
    if not isinstance(schema, Mapping):
        return False
    if any(schema.get(name) is not None for name in UNSUPPORTED) or schema.get("$schema"):
        return True
    return any(map(has_unsupported, parts_of(schema)))


def _problems(place: SchemaPlace, *, root: bool = False) -> Errors:
    for rule in RULES:
        yield from rule(place.schema, place.path, place)
    schema, path = place.schema, place.path
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        reason = place.undefaulted
        if place.metadata:
            reason = " inside additionalProperties applying to object metadata"
        where = f"{path}.additionalProperties"
        yield from _problems(SchemaPlace(additional, where, reason, place.metadata))
    for name, sub in properties_of(schema):
        inner = attrs.evolve(place, schema=sub, path=f"{path}.properties[{name}]")
        if name in _HEAD and (root or schema.get(EMBEDDED)):
            reason = f" in top-level {name}" if root else place.undefaulted
            inner = attrs.evolve(inner, undefaulted=reason, metadata=True)
        yield from _problems(inner)
    for where, part in junctors_of(schema):
        yield from _problems(attrs.evolve(place, schema=part, path=f"{path}.{where}"))
    if place.items is not None:
        yield from _problems(attrs.evolve(place, schema=place.items, path=f"{path}.items"))


# ---- keywords ------------------------------------------------------------------------------------


def keywords_are_allowed(schema: Raw, path: str, place: SchemaPlace) -> Errors:
    """Every keyword is known, supported, and in its place."""
    type_, default = schema.get("type"), schema.get("default")
    more = schema.get("additionalProperties") not in (None, True)
    if type_ and type_ not in TYPES:
        yield not_supported(f"{path}.type", type_, TYPES)
    for name, wrong, text in (
        ("type", type_ == "null", "type cannot be set to null, use nullable as an alternative"),
        (
            "default",
            default is not None and place.undefaulted is not None,
            f"must not be set{place.undefaulted}",
        ),
        *((name, schema.get(name) is not None, f"{name} is not supported") for name in UNSUPPORTED),
        ("items", isinstance(schema.get("items"), list), _ONE_SCHEMA),
        (EMBEDDED, place.metadata and schema.get(EMBEDDED), _IN_META),
        ("uniqueItems", schema.get("uniqueItems"), _QUADRATIC),
        ("additionalProperties", more and schema.get("properties"), _EXCLUSIVE),
    ):
        if wrong:
            yield forbidden(f"{path}.{name}", text)
    if schema.get(PRESERVE) is False:
        yield invalid(f"{path}.{PRESERVE}", value=False, detail="must be true or undefined")


# ---- lists and maps ------------------------------------------------------------------------------


def _of_type(keyword: str, wanted: str, *known: str) -> Rule:
    """A keyword has one of these values, and stands at a type."""

    def rule(schema: Raw, path: str, _: SchemaPlace) -> Errors:
        value = schema.get(keyword)
        if value is None:
            return
        yield from _typed(schema, path, wanted, keyword)
        if value not in known:
            yield not_supported(f"{path}.{keyword}", value, known, ordered=True)

    return rule


def _typed(schema: Raw, path: str, wanted: str, keyword: str) -> Errors:
    type_ = schema.get("type")
    if type_ != wanted:
        text = f"must be {wanted} if {keyword} is specified"
        where = f"{path}.type"
        yield invalid(where, type_, text) if type_ else required(where, text)


def items_of_sets_are_atomic(schema: Raw, path: str, place: SchemaPlace) -> Errors:
    """An item of a set is compared as a whole."""
    items = place.items
    if schema.get("type") != "array" or schema.get(LIST_TYPE) != "set" or items is None:
        return
    own = items.get(LIST_TYPE)
    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
    if items.get("type") == "array" and own not in (None, "atomic"):
        yield invalid(f"{path}.items.{LIST_TYPE}", own, text)
    if items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
        yield invalid(f"{path}.items.{MAP_TYPE}", own, text)


def keys_are_of_map_lists(schema: Raw, path: str, _: SchemaPlace) -> Errors:
    """`x-kubernetes-list-map-keys` stands where the list type is `map`, and there only."""
    keys, type_ = schema.get(LIST_KEYS), schema.get(LIST_TYPE)
    if keys and type_ != "map":
        text = f"must be map if {LIST_KEYS} is non-empty"
        where = f"{path}.{LIST_TYPE}"
        yield required(where, text) if type_ is None else invalid(where, type_, text)
    if not keys and type_ == "map":
        text = f"must not be empty if {LIST_TYPE} is map"
        yield required(f"{path}.{LIST_KEYS}", text)


def keys_are_scalars_of_items(schema: Raw, path: str, _: SchemaPlace) -> Errors:
    """The items of a map list are objects, and its keys are different scalars in them."""
    if schema.get(LIST_TYPE) != "map":
        return
    items = schema.get("items")
    if items is None:
        yield required(f"{path}.items", f"must have a schema if {LIST_TYPE} is map")
    if not isinstance(items, Mapping):
        return
    if items.get("type") != "object":
        text = f"must be object if parent array's {LIST_TYPE} is map"
        yield invalid(f"{path}.items.type", items.get("type") or "", text)
        return
    keys = list(schema.get(LIST_KEYS) or ())
    where = f"{path}.{LIST_KEYS}"
    for i, key in enumerate(keys):
        field = (items.get("properties") or {}).get(key)
        if field is None:
            yield invalid(where, keys, "entries must all be names of item properties")
        elif field.get("type") in ("array", "object"):
            text = f"must be a scalar type if parent array's {LIST_TYPE} is map"
            yield invalid(f"{path}.items.properties[{key}].type", "object", text)
        if key in keys[:i]:
            yield invalid(where, keys, "must not contain duplicate entries")


def keys_are_always_there(schema: Raw, path: str, place: SchemaPlace) -> Errors:
    """An item of a set or a map list is not null, and no key of it is missing."""
    items, type_ = place.items, schema.get(LIST_TYPE)
    if items is None or type_ not in ("set", "map"):
        return
    if items.get("nullable"):
        text = f"cannot be nullable when {LIST_TYPE} is {type_}"
        yield forbidden(f"{path}.items.nullable", text)
    for key in schema.get(LIST_KEYS) or () if type_ == "map" else ():
        field = (items.get("properties") or {}).get(key)
        if field is None:
            continue
        where = f"{path}.items.properties[{key}]"
        text = f"this property is in {LIST_KEYS}, so it"
        if key not in (items.get("required") or ()) and field.get("default") is None:
            yield required(
                f"{where}.default", f"{text} must have a default or be a required property"
            )
        if field.get("nullable"):
            yield forbidden(f"{where}.nullable", f"{text} cannot be nullable")


RULES: Final[Sequence[Rule]] = (
    keywords_are_allowed,
    _of_type(MAP_TYPE, "object", "atomic", "granular"),
    _of_type(LIST_TYPE, "array", "atomic", "set", "map"),
    items_of_sets_are_atomic,
    keys_are_of_map_lists,
    keys_are_scalars_of_items,
    keys_are_always_there,
)
