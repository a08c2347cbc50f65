"""OpenAPI documents of the kinds, which kubectl needs to validate, explain and apply."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson
from aiohttp import web

from kueuelib.api.meta import Obj
from kueuelib.embedded import failures
from kueuelib.embedded.http.answers import answer
from kueuelib.embedded.registry.builtin_kinds import RELEASE
from kueuelib.embedded.registry.kinds import Kind, KindVersion, Registry
from kueuelib.embedded.schema.messages import Field, exists, json_fields, message_name, message_node
from kueuelib.embedded.schema.node import ListType, PatchStrategy, SchemaNode

# ---- `/openapi/v2` in protobuf, which kubectl reads before it validates --------------------------
# The field numbers are those of gnostic's `openapi.v2`.

Encode = Callable[[Any], bytes]


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _part(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _parts(number: int, values: Iterable[bytes]) -> bytes:
    return b"".join(_part(number, value) for value in values)


def _text(value: str) -> bytes:
    return value.encode()


def _named(number: int, values: Mapping[str, Any], encode: Encode) -> bytes:
    pairs = (_part(1, _text(name)) + _part(2, encode(each)) for name, each in values.items())
    return _parts(number, pairs)


def schema(given: Mapping[str, Any]) -> bytes:
    """A schema, with the parts that clients need to navigate an object."""
    encoded = b""
    for number, name, encode in _FIELDS:
        if name in given:
            encoded += _part(number, encode(given[name]))
    encoded += _parts(19, map(_text, given.get("required") or ()))
    extensions = {name: value for name, value in given.items() if name.startswith("x-")}
    return encoded + _named(31, extensions, lambda value: _part(2, orjson.dumps(value)))


_FIELDS: Final[tuple[tuple[int, str, Encode], ...]] = (
    (1, "$ref", _text),
    (2, "format", _text),
    (4, "description", _text),
    (21, "additionalProperties", lambda it: b"\x10\x01" if it is True else _part(1, schema(it))),
    (22, "type", lambda given: _part(1, _text(given))),
    (23, "items", lambda given: _part(1, schema(given))),
    (25, "properties", lambda given: _named(1, given, schema)),
)


def document(given: Mapping[str, Any]) -> bytes:
    """The document as protobuf: its version, its title and its definitions."""
    info = given["info"]
    return b"".join(
        (
            _part(1, _text(given["swagger"])),
            _part(2, _part(1, _text(info["title"])) + _part(2, _text(info["version"]))),
            _part(8, b""),
            _part(9, _named(1, given["definitions"], schema)),
        )
    )


# The types of the built-in kinds as OpenAPI definitions, for `/openapi/v2` and `/openapi/v3`.

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


# --------------------------------------------------------------------------------------------------

META = definition_name("meta.ObjectMeta")
GVK = "x-kubernetes-group-version-kind"
PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2"

_PATCH_TYPES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
"""Strategic merge is accepted but not announced, so that clients use their own knowledge of the
types, which is more than these documents contain.
"""


class OpenApi:
    """Builds the documents on demand and keeps them until the kinds change."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._revision = -1
        self._cache: dict[str, bytes] = {}

    def answer(self, path: str, accept: str) -> web.Response:
        """A document.

        Raises:
            NotFound: there is no document at that path.
        """
        if self._revision != self._registry.revision:
            self._revision = self._registry.revision
            self._cache.clear()
        if path == "/openapi/v2":
            if PROTOBUF_V2 in accept and "application/json" not in accept:
                raw = self._cache.get(PROTOBUF_V2)
                if raw is None:
                    raw = self._cache[PROTOBUF_V2] = document(self._v2())
                media = f"{PROTOBUF_V2}.v1.0+protobuf"
                return web.Response(body=raw, headers={"Content-Type": media})
            return self._cached(path, self._v2)
        if path == "/openapi/v3":
            return self._cached(path, self._index)
        group, version = _of_path(path)
        if not self._registry.kinds_of(group, version):
            raise failures.no_page()
        return self._cached(path, lambda: self._v3(group, version))

    def _cached(self, path: str, build: Any) -> web.Response:
        raw = self._cache.get(path)
        if raw is None:
            raw = self._cache[path] = orjson.dumps(build())
        return answer(raw)

    def _group_versions(self) -> list[tuple[str, str]]:
        group_versions = [("", "v1")]
        for group in self._registry.groups():
            group_versions += [(group, version) for version in self._registry.group_versions(group)]
        return group_versions

    def _index(self) -> Obj:
        paths = {}
        for group, version in self._group_versions():
            where = f"apis/{group}/{version}" if group else f"api/{version}"
            tag = f"{where}:{self._revision}".encode()
            mark = hashlib.sha256(tag).hexdigest()[:32].upper()
            paths[where] = {"serverRelativeURL": f"/openapi/v3/{where}?hash={mark}"}
        return {"paths": paths}

    def _v3(self, group: str, version: str) -> Obj:
        paths: Obj = {}
        kinds = self._registry.kinds_of(group, version)
        for kind, served in kinds:
            paths.update(_paths(kind, served))
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": RELEASE},
            "paths": paths,
            "components": {"schemas": _schemas(kinds, "#/components/schemas/")},
        }

    def _v2(self) -> Obj:
        kinds = [
            pair
            for group, version in self._group_versions()
            for pair in self._registry.kinds_of(group, version)
        ]
        return {
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": RELEASE},
            "paths": {},
            "definitions": _schemas(kinds, "#/definitions/"),
        }


def _schemas(kinds: Sequence[tuple[Kind, KindVersion]], prefix: str) -> Obj:
    own = [(kind.group, kind.kind) for kind, _ in kinds if kind.builtin]
    schemas = definitions([*own, ("meta", "ObjectMeta")], prefix)
    for kind, version in kinds:
        gvk = {"group": kind.group, "version": version.name, "kind": kind.kind}
        if kind.builtin:
            definition = schemas[definition_name(message_name(kind.group, kind.kind))]
            typed = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
            definition["properties"] = {**typed, **definition.get("properties", {})}
            definition[GVK] = [gvk]
        else:
            group = ".".join(reversed(kind.group.split(".")))
            name = f"{group}.{version.name}.{kind.kind}"
            schemas[name] = {**_custom(version, prefix), GVK: [gvk]}
    return schemas


def _of_path(path: str) -> tuple[str, str]:
    parts = path.removeprefix("/openapi/v3/").split("/")
    if len(parts) == 2 and parts[0] == "api":
        return "", parts[1]
    if len(parts) == 3 and parts[0] == "apis":
        return parts[1], parts[2]
    raise failures.no_page()


def _custom(version: KindVersion, prefix: str) -> Obj:
    given: Mapping[str, Any] = version.openapi or {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    properties = dict(given.get("properties") or {})
    properties["apiVersion"] = {"type": "string"}
    properties["kind"] = {"type": "string"}
    meta = {"$ref": prefix + META}
    properties["metadata"] = {"allOf": [meta]} if "components" in prefix else meta
    return {**given, "type": "object", "properties": properties}


def _paths(kind: Kind, version: KindVersion) -> Obj:
    root = f"/apis/{kind.group}/{version.name}" if kind.group else f"/api/{version.name}"
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    collection = f"{root}{scope}/{kind.plural}"
    gvk = {"group": kind.group, "version": version.name, "kind": kind.kind}

    def operation(action: str, *parameters: str, body: tuple[str, ...] = ()) -> Obj:
        spec: Obj = {
            "x-kubernetes-action": action,
            GVK: gvk,
            "parameters": [
                {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
                for name in parameters
            ],
            "responses": {"200": {"description": "OK"}},
        }
        if body:
            spec["requestBody"] = {"content": {media: {} for media in body}}
        return spec

    write = ("dryRun", "fieldManager", "fieldValidation")
    json_body = ("application/json",)
    return {
        collection: {
            "get": operation(
                "list", "labelSelector", "fieldSelector", "limit", "continue", "watch"
            ),
            "post": operation("post", *write, body=json_body),
        },
        f"{collection}/{{name}}": {
            "get": operation("get"),
            "put": operation("put", *write, body=json_body),
            "patch": operation("patch", *write, "force", body=_PATCH_TYPES),
            "delete": operation("delete", "dryRun", "propagationPolicy"),
        },
    }
