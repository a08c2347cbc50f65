"""One node of a schema: the allowed values, and how two of them merge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import attrs
import orjson

from kueuelib.embedded.cel.regex import BadPattern, Pattern, compile_pattern
from kueuelib.embedded.schema.formats import is_known

# ---- equality of JSON values ---------------------------------------------------------------------


def same_json(left: Any, right: Any) -> bool:
    """Deep equality in which `true` is not `1`; 1 and 1.0 are the same number."""
    if left is right:
        return True
    if left != right:
        return False
    if type(left) is type(right) is str:
        return True
    # Python finds 1 and True equal, so the texts are compared as well, which are mostly equal.
    return _same_text(left, right) or _same(left, right)


def _same_text(left: Any, right: Any) -> bool:
    try:
        return orjson.dumps(left) == orjson.dumps(right)
    except orjson.JSONEncodeError:
        return False  # a number of more than 64 bits, for example: the slow way knows


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(_same(value, right[name]) for name, value in left.items())
        )
    if isinstance(left, list | tuple):
        return (
            isinstance(right, list | tuple)
            and len(left) == len(right)
            and all(_same(one, other) for one, other in zip(left, right, strict=True))
        )
    return bool(left == right)


def canonical(value: Any) -> str:
    """The canonical text of a JSON value: compact, with sorted keys."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


# --------------------------------------------------------------------------------------------------

NO_NODES: Final[Mapping[str, SchemaNode]] = {}
MISSING: Final = object()
"""Stands for an absent value if None means null."""


class ListType(Enum):
    """How two lists merge (`x-kubernetes-list-type`)."""

    ATOMIC = "atomic"
    SET = "set"
    MAP = "map"


class PatchStrategy(Enum):
    """How a strategic merge patch treats a list."""

    REPLACE = "replace"
    MERGE = "merge"


@attrs.frozen(eq=False)
class SchemaNode:
    """The schema of one value.

    The empty node is "anything": such values are kept as they are, maps merge key by key, lists are
    atomic.

    Attributes:
        type: `object`, `array`, `string`, `integer`, `number`, `boolean`, or empty: any.
        properties: the known fields of an object.
        additional: the schema of the values of all other fields, or None.
        items: the schema of list items.
        required: fields that must be present.
        preserve_unknown: whether unknown fields stay.
        embedded: whether the object has its own apiVersion, kind and metadata.
        nullable: whether null is allowed.
        int_or_string: whether integers and strings are allowed.
        default: the default of an absent value, or `MISSING`.
        enum: the allowed values, or None.
        minimum, maximum: bounds of a number; exclusive with `exclusive_minimum/_maximum`.
        multiple_of: divides the number.
        min_length, max_length: bounds of a text in characters.
        pattern: searched in a text.
        format: an OpenAPI format; unknown ones are ignored.
        min_items, max_items: bounds of a list.
        min_properties, max_properties: bounds of an object.
        all_of, any_of, one_of, not_: junctors, which only restrict values.
        list_type: how lists merge.
        list_map_keys: the fields that identify an item of a `MAP` list.
        atomic_map: the object is replaced as a whole (`x-kubernetes-map-type: atomic`).
        patch_strategy: how a strategic merge patch treats the list.
        patch_merge_key: the field by which it matches items; empty: items are scalars.
        rules: the raw `x-kubernetes-validations` of the value.
        ruled: whether there are rules here or below.
        embeds: whether objects are embedded below.
        defaults: the properties that have a default, and the default.
    """

    type: str = ""
    properties: Mapping[str, SchemaNode] = NO_NODES
    additional: SchemaNode | None = None
    items: SchemaNode | None = None
    required: tuple[str, ...] = ()
    preserve_unknown: bool = False
    embedded: bool = False
    nullable: bool = False
    int_or_string: bool = False
    default: Any = MISSING
    enum: tuple[Any, ...] | None = None
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: Pattern | None = None
    format: str = ""
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    all_of: tuple[SchemaNode, ...] = ()
    any_of: tuple[SchemaNode, ...] = ()
    one_of: tuple[SchemaNode, ...] = ()
    not_: SchemaNode | None = None
    list_type: ListType = ListType.ATOMIC
    list_map_keys: tuple[str, ...] = ()
    atomic_map: bool = False
    patch_strategy: PatchStrategy = PatchStrategy.REPLACE
    patch_merge_key: str = ""
    rules: tuple[Mapping[str, Any], ...] = ()
    ruled: bool = False
    embeds: bool = False
    defaults: tuple[tuple[str, Any], ...] = attrs.field(init=False, repr=False)

    @defaults.default
    def _defaults(self) -> tuple[tuple[str, Any], ...]:
        return tuple(
            (name, child.default)
            for name, child in self.properties.items()
            if child.default is not MISSING
        )

    def child(self, name: str) -> SchemaNode:
        """The node of a field's value; `ANYTHING` if it is unknown."""
        node = self.properties.get(name)
        if node is not None:
            return node
        return ANYTHING if self.additional is None else self.additional

    @property
    def item(self) -> SchemaNode:
        """The node of list items."""
        return ANYTHING if self.items is None else self.items


ANYTHING: Final = SchemaNode(preserve_unknown=True)
"""The node of an unknown value."""

_PLAIN: Final[Mapping[str, str]] = {
    "nullable": "nullable",
    "minimum": "minimum",
    "maximum": "maximum",
    "exclusiveMinimum": "exclusive_minimum",
    "exclusiveMaximum": "exclusive_maximum",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "format": "format",
    "minItems": "min_items",
    "maxItems": "max_items",
    "minProperties": "min_properties",
    "maxProperties": "max_properties",
    "default": "default",
    "type": "type",
    "x-kubernetes-int-or-string": "int_or_string",
    "x-kubernetes-preserve-unknown-fields": "preserve_unknown",
    "x-kubernetes-embedded-resource": "embedded",
}


def from_openapi(raw: Mapping[str, Any]) -> SchemaNode:
    """The node of an OpenAPI v3 schema as a CustomResourceDefinition carries it.

    Descriptions are not part of a node; CEL rules are kept as they are.

    Raises:
        ValueError: a pattern or a list type is not valid.
    """
    fields: dict[str, Any] = {
        name: raw[keyword] for keyword, name in _PLAIN.items() if raw.get(keyword) is not None
    }
    if not is_known(raw.get("type") or "", raw.get("format") or ""):
        fields.pop("format", None)
    if raw.get("properties"):
        fields["properties"] = {name: from_openapi(sub) for name, sub in raw["properties"].items()}
    additional = raw.get("additionalProperties")
    if additional is True:
        fields["additional"] = ANYTHING
    elif additional:
        fields["additional"] = from_openapi(additional)
    if raw.get("items"):
        fields["items"] = from_openapi(raw["items"])
    if raw.get("required"):
        fields["required"] = tuple(raw["required"])
    if raw.get("enum") is not None:
        fields["enum"] = tuple(raw["enum"])
    if raw.get("pattern"):
        fields["pattern"] = _compiled(raw["pattern"])
    for keyword, name in (("allOf", "all_of"), ("anyOf", "any_of"), ("oneOf", "one_of")):
        if raw.get(keyword):
            fields[name] = tuple(from_openapi(sub) for sub in raw[keyword])
    if raw.get("not"):
        fields["not_"] = from_openapi(raw["not"])
    fields["list_type"] = ListType(raw.get("x-kubernetes-list-type") or "atomic")
    fields["list_map_keys"] = tuple(raw.get("x-kubernetes-list-map-keys") or ())
    fields["atomic_map"] = raw.get("x-kubernetes-map-type") == "atomic"
    if raw.get("x-kubernetes-validations"):
        if not all(isinstance(each, dict) for each in raw["x-kubernetes-validations"]):
            raise ValueError("x-kubernetes-validations must be a list of rules")
        fields["rules"] = tuple(raw["x-kubernetes-validations"])
    below = (*fields.get("properties", {}).values(), fields.get("items"), fields.get("additional"))
    fields["ruled"] = "rules" in fields or any(sub is not None and sub.ruled for sub in below)
    fields["embeds"] = any(sub is not None and (sub.embedded or sub.embeds) for sub in below)
    return SchemaNode(**fields)


def _compiled(pattern: str) -> Pattern:
    try:
        return compile_pattern(pattern)
    except BadPattern as error:
        raise ValueError(f"{pattern!r} is not a pattern: {error}") from error
