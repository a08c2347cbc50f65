"""OpenAPI documents of the kinds, which kubectl needs to validate, explain and apply."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from aiohttp import web

from kueuelib.api.meta import Obj
from kueuelib.embedded import failures
from kueuelib.embedded.http.answers import answer
from kueuelib.embedded.http.openapi_protobuf import document
from kueuelib.embedded.registry.kind import Kind, Version
from kueuelib.embedded.registry.registry import Registry
from kueuelib.embedded.release import RELEASE
from kueuelib.embedded.schema.announce import definition_name, definitions
from kueuelib.embedded.schema.messages import message_name

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


def _schemas(kinds: Sequence[tuple[Kind, Version]], prefix: str) -> Obj:
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


def _custom(version: Version, prefix: str) -> Obj:
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


def _paths(kind: Kind, version: Version) -> Obj:
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
