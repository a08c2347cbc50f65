"""Validates the schema of one version of a CustomResourceDefinition."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from kueuelib.embedded.builtins.fields import forbidden, invalid
from kueuelib.embedded.schema.node import MISSING, SchemaNode
from kueuelib.embedded.schema.openapi_rules import has_unsupported, openapi_problems
from kueuelib.embedded.schema.structural import StructuralSchema, prune
from kueuelib.embedded.schema.structural_rules import structural_problems
from kueuelib.embedded.schema.validate import validate_value
from kueuelib.errors import FieldError

_AT_THE_ROOT = {
    **{
        name: name[0].upper() + name[1:]
        for name in (
            *("description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum"),
            *("exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems"),
            *("uniqueItems", "multipleOf", "required", "items", "properties", "externalDocs"),
            "example",
        )
    },
    "x-kubernetes-preserve-unknown-fields": "XPreserveUnknownFields",
    "x-kubernetes-validations": "XValidations",
}
"""What the root may contain when the status is a subresource, and its name in messages."""


def schema_problems(
    schema: Mapping[str, Any], path: str, *, status: bool, lenient: bool
) -> list[FieldError]:
    """What is wrong with a schema; CEL rules are compiled only if it is otherwise valid.

    Args:
        schema: the OpenAPI schema.
        path: of the schema in the definition.
        status: whether the status is a subresource.
        lenient: whether the definition was stored before with a schema that is not structural.
    """
    errors = _root_problems(schema, path) if status else []
    if schema.get("nullable"):
        errors.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    shape: list[FieldError] = []
    if not lenient and not has_unsupported(schema):
        shape = structural_problems(schema, path)
        errors += shape
    basics = openapi_problems(schema, path)
    if shape or basics or lenient:
        return [*errors, *basics]
    try:
        structural = StructuralSchema.of(schema)
    except (ValueError, TypeError, AttributeError) as error:
        return [*errors, invalid(path, "", f"error building validator: {error}")]
    errors += _default_problems(structural.node, path, head=True)
    return errors or structural.rule_problems(path)


def is_structural(schema: Mapping[str, Any]) -> bool:
    """Whether a schema that was stored before is structural."""
    return not has_unsupported(schema) and not structural_problems(schema, "")


def _root_problems(schema: Mapping[str, Any], path: str) -> list[FieldError]:
    """What is wrong with the root, if the status is a subresource."""
    if schema.get("type") != "object":
        text = (
            'only "object" is allowed as the type at the root of the schema if the status '
            "subresource is enabled"
        )
        return [invalid(f"{path}.type", schema.get("type") or "", text)] if "type" in schema else []
    told = (name for name, value in schema.items() if value not in (None, False, "", []))
    if all(name in _AT_THE_ROOT or name == "nullable" for name in told):
        return []
    names = " ".join(_AT_THE_ROOT.values())
    text = (
        f"only [{names}] fields are allowed at the root of the schema if the status subresource "
        "is enabled"
    )
    return [invalid(path, dict(schema), text)]


_HEAD = frozenset({"apiVersion", "kind", "metadata"})


def _default_problems(node: SchemaNode, path: str, *, head: bool = False) -> Iterator[FieldError]:
    """Why defaults are not valid without a look at CEL rules; values of maps have none."""
    if node.default is not MISSING:
        yield from _problems_of(node, node.default, f"{path}.default")
    if node.items is not None:
        yield from _default_problems(node.items, f"{path}.items")
    for name, sub in sorted(node.properties.items()):
        if not ((head or node.embedded) and name in _HEAD):
            yield from _default_problems(sub, f"{path}.properties[{name}]")


def _problems_of(node: SchemaNode, default: Any, path: str) -> Iterator[FieldError]:
    holder = SchemaNode(properties={"value": node})
    if prune(holder, {"value": copy.deepcopy(default)}):
        yield invalid(path, default, "must not have unknown fields")
    for error in validate_value(node, default):
        where = error.path if error.path.startswith("[") or not error.path else f".{error.path}"
        yield attrs.evolve(error, path=path + where)
