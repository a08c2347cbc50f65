"""The merge rules of the built-in kinds: list types and keys for server-side apply and strategic
merge.

The nodes are made from the fields in `wire.txt`. Lists are atomic and maps granular, unless it says
otherwise. The two patch types differ in places: a container port is identified by its number in a
strategic merge patch, but by number and protocol in server-side apply. Conditions of a Job are
merged by type in the former, and replaced as a whole in the latter.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

import attrs

from kueuelib.embedded.schema.messages import Field, exists, is_atomic, json_fields, message_name
from kueuelib.embedded.schema.node import ANYTHING, ListType, PatchStrategy, SchemaNode

_ZEROS: Final = {"string": "", "boolean": False}
_OPEN: Final = ("r", "S", "F", "o", "apiextensions.JSONSchemaProps")
_TYPES: Final = {"i": "integer", "l": "integer", "b": "boolean", "n": "number"}


@cache
def message_node(message: str) -> SchemaNode:
    """The merge rules of a type; an unknown type has none."""
    fields = json_fields(message) if exists(message) else ()
    return SchemaNode(
        type="object",
        properties={field.name: _field(field) for field in fields},
        preserve_unknown=True,
        atomic_map=is_atomic(message),
    )


def _field(field: Field) -> SchemaNode:
    inner = _inner(field)
    if field.form == "%":
        return SchemaNode(type="object", additional=inner, atomic_map="atomic" in field.facts)
    if field.form == "+" or field.type.startswith("&"):
        return _list(field.facts, inner)
    return attrs.evolve(inner, atomic_map=False) if "granular" in field.facts else inner


def _inner(field: Field) -> SchemaNode:
    if field.type in _OPEN:
        return ANYTHING
    if field.message:
        return message_node(field.message)
    type_ = _TYPES.get(field.type, "string")
    if field.default and type_ == "string":  # of the defaults of OpenAPI, those of keys matter
        return SchemaNode(type=type_, default=field.default)
    if field.always and not field.form:
        return SchemaNode(type=type_, default=_ZEROS.get(type_, 0))
    return SchemaNode(type=type_)


def _list(facts: Mapping[str, str], item: SchemaNode) -> SchemaNode:
    keys = facts.get("merge") or facts.get("apply")
    patched = facts.get("merge") or facts.get("patch") or ""
    merges = "merge" in facts or "patch" in facts
    how = ListType.MAP if keys else ListType.SET if "set" in facts else ListType.ATOMIC
    return SchemaNode(
        type="array",
        items=item,
        list_type=how,
        list_map_keys=tuple(keys.split(",")) if keys else (),
        patch_strategy=PatchStrategy.MERGE if merges else PatchStrategy.REPLACE,
        patch_merge_key=patched.partition(",")[0],
    )


def builtin_node(group: str, kind: str) -> SchemaNode:
    """The merge rules of a built-in kind; an unknown kind has only those of the metadata."""
    return _whole(message_name(group, kind))


@cache
def _whole(message: str) -> SchemaNode:
    return custom_node(message_node(message))


_METADATA: Final = message_node("meta.ObjectMeta")
_TEXT: Final = SchemaNode(type="string")


def custom_node(node: SchemaNode) -> SchemaNode:
    """The node of a custom resource with the metadata that every object has."""
    head = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": _METADATA}
    return SchemaNode(
        type=node.type,
        properties={**node.properties, **head},
        additional=node.additional,
        preserve_unknown=node.preserve_unknown,
    )
