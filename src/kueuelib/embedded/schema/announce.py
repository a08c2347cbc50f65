"""The types of the built-in kinds as OpenAPI definitions, for `/openapi/v2` and `/openapi/v3`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kueuelib.embedded.schema.builtin_schemas import message_node
from kueuelib.embedded.schema.messages import Field, exists, json_fields, message_name
from kueuelib.embedded.schema.node import ListType, PatchStrategy, SchemaNode

_MACHINERY: Final = "io.k8s.apimachinery.pkg"
_SCALARS: Final[Mapping[str, Mapping[str, Any]]] = {
    "s": {"type": "string"},
    "b": {"type": "boolean"},
    "B": {"type": "string", "format": "byte"},
    "n": {"type": "number", "format": "double"},
}
_NAMED: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "q": (f"{_MACHINERY}.api.resource.Quantity", {"type": "string"}),
    "t": (f"{_MACHINERY}.apis.meta.v1.Time", {"type": "string", "format": "date-time"}),
    "u": (f"{_MACHINERY}.apis.meta.v1.MicroTime", {"type": "string", "format": "date-time"}),
    "o": (f"{_MACHINERY}.util.intstr.IntOrString", {"type": "string", "format": "int-or-string"}),
    "r": ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", {}),
    "F": (f"{_MACHINERY}.apis.meta.v1.FieldsV1", {"type": "object"}),
    "S": ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", {}),
}
_EITHER: Final = {"q": ("string", "number"), "o": ("integer", "string")}
"""Types that OpenAPI v3 does not have to call texts; clients then show their names."""
_PACKAGES: Final[Mapping[str, str]] = {
    "meta": f"{_MACHINERY}.apis.meta.v1",
    "apiregistration": "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1",
    "apiextensions": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
}


def definition_name(message: str) -> str:
    """The name of a message's definition: `io.k8s.api.core.v1.PodSpec`."""
    group, _, name = message.rpartition(".")
    return f"{_PACKAGES.get(group, f'io.k8s.api.{group}.v1')}.{name}"


def definitions(kinds: Iterable[tuple[str, str]], prefix: str) -> dict[str, Any]:
    """The definitions of kinds and of all types that they refer to, by name.

    Args:
        kinds: group and kind of each; those without types are left out.
        prefix: of references, `#/definitions/` or `#/components/schemas/`.
    """
    schemas: dict[str, Any] = {}
    named = (message_name(group, kind) for group, kind in kinds)
    waiting = [message for message in named if exists(message)]
    while waiting:
        message = waiting.pop()
        name = definition_name(message)
        if name not in schemas:
            schemas[name] = _definition(message, prefix, waiting, schemas)
    return schemas


def _definition(
    message: str, prefix: str, waiting: list[str], schemas: dict[str, Any]
) -> dict[str, Any]:
    node = message_node(message)
    properties: dict[str, Any] = {}
    for field in json_fields(message):
        child = node.child(field.name)
        inner = _type(field, prefix, schemas)
        if field.message:
            waiting.append(field.message)
        elif field.type == "S":
            waiting.append("apiextensions.JSONSchemaProps")
        properties[field.name] = _formed(field, inner, child, prefix)
    result: dict[str, Any] = {"type": "object"}
    if node.atomic_map:
        result["x-kubernetes-map-type"] = "atomic"
    required = [field.name for field in json_fields(message) if "required" in field.facts]
    if required:
        result["required"] = required
    if properties:
        result["properties"] = properties
    return result


def _type(field: Field, prefix: str, schemas: dict[str, Any]) -> dict[str, Any]:
    if field.type in ("i", "l"):
        return {"type": "integer", "format": f"int{field.bits}"}
    if field.type in _SCALARS:
        return dict(_SCALARS[field.type])
    if field.type in _NAMED:
        name, schema = _NAMED[field.type]
        if field.type in _EITHER and "components" in prefix:
            schema = {key: value for key, value in schema.items() if key != "type"}
            schema["oneOf"] = [{"type": each} for each in _EITHER[field.type]]
        schemas.setdefault(name, dict(schema))
        return {"$ref": prefix + name}
    if field.type.startswith("&"):
        return {"type": "array", "items": {"type": "string"}}
    return {"$ref": prefix + definition_name(field.type)}


def _formed(field: Field, inner: dict[str, Any], node: SchemaNode, prefix: str) -> dict[str, Any]:
    if field.form == "%":
        return {"type": "object", "additionalProperties": inner}
    if field.form != "+":
        # OpenAPI v3 allows nothing next to a reference.
        return {"allOf": [inner]} if "$ref" in inner and "components" in prefix else inner
    result: dict[str, Any] = {"type": "array", "items": inner}
    if node.list_type is not ListType.ATOMIC:
        result["x-kubernetes-list-type"] = node.list_type.value
    if node.list_map_keys:
        result["x-kubernetes-list-map-keys"] = list(node.list_map_keys)
    if node.patch_strategy is PatchStrategy.MERGE:
        result["x-kubernetes-patch-strategy"] = "merge"
        if node.patch_merge_key:
            result["x-kubernetes-patch-merge-key"] = node.patch_merge_key
    return result
