"""The rules for the parts of the schema of a custom resource.

These rules hold in every part of a schema, also within junctors; `structural_rules` has the rules
for the schema as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from kueuelib.embedded.builtins.fields import forbidden, invalid, not_supported, required
from kueuelib.embedded.schema.structural_rules import (
    EMBEDDED,
    PRESERVE,
    junctors_of,
    parts_of,
    properties_of,
)
from kueuelib.errors import FieldError

Raw = Mapping[str, Any]
Errors = Iterator[FieldError]

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
