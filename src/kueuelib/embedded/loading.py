"""Loads manifests into a running service: snapshots of `kueuelib apiserver dump`, or
handwritten ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from kueuelib.api.kinds import CRDS, MUTATING_WEBHOOKS, NAMESPACES, VALIDATING_WEBHOOKS
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded import failures
from kueuelib.embedded.decoding import decode
from kueuelib.embedded.http.yaml_bodies import parse_yaml_stream
from kueuelib.embedded.registry.kinds import Kind, KindVersion
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.verbs import WriteOptions
from kueuelib.errors import ApiError, BadRequest, ConfigError
from kueuelib.runtime.queries import PatchType

MANAGER = "kueuelib-load"
_FIRST = (NAMESPACES.group_kind, CRDS.group_kind)
_LAST = (MUTATING_WEBHOOKS.group_kind, VALIDATING_WEBHOOKS.group_kind)
_NOT_APPLIED = ("managedFields", "resourceVersion", "creationTimestamp", "selfLink", "generation")


def read_manifests(path: Path) -> list[Obj]:
    """The objects of a file of YAML documents or JSON, with lists unpacked.

    Raises:
        ConfigError: the file cannot be read or holds something else.
    """
    try:
        body = path.read_bytes()
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(str(path), problem, "give a file of manifests") from error
    try:
        objects = [obj for data in _documents(body) for obj in _flat(data)]
    except (ApiError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise ConfigError(str(path), problem, "give YAML or JSON manifests") from error
    return objects


def _documents(body: bytes) -> Iterator[Any]:
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            yield orjson.loads(body)
        except orjson.JSONDecodeError:
            yield from parse_yaml_stream(body)
        return
    yield from parse_yaml_stream(body)


def _flat(data: Any) -> Iterator[Obj]:
    if data is None:
        return
    if isinstance(data, list):
        for each in data:
            yield from _flat(each)
        return
    if not isinstance(data, dict):
        raise BadRequest(f"an object is expected, not {str(data)[:40]!r}")
    if str(data.get("kind", "")).endswith("List") and isinstance(data.get("items"), list):
        for each in data["items"]:
            yield from _flat(each)
        return
    meta = data.get("metadata")
    named = isinstance(meta, dict) and (meta.get("name") or meta.get("generateName"))
    if not data.get("apiVersion") or not data.get("kind") or not named:
        raise ValueError("every object needs apiVersion, kind and metadata.name")
    yield data


async def load(service: ApiService, objects: Sequence[Obj], source: str) -> int:
    """Stores objects in any order; returns their number.

    Objects with a UID come from a snapshot: they are stored as they are, with UID, status and
    times, so that references between them hold; an object of the same name is replaced. Objects
    without one are applied, as by `kubectl apply --server-side --force-conflicts`.

    Args:
        service: the service.
        objects: the result of `read_manifests`.
        source: where they are from, for messages.

    Raises:
        ConfigError: an object is refused; those loaded before it stay.
    """
    ordered = sorted(objects, key=_rank)
    for obj in ordered:
        try:
            await _load(service, obj)
        except ApiError as error:
            meta = obj["metadata"]
            name = meta.get("name") or meta["generateName"]
            raise ConfigError(
                f"{source}: {obj['kind']} {name}", error.message, "correct the manifest"
            ) from error
    return len(ordered)


def _rank(obj: Obj) -> int:
    group, _, _ = obj["apiVersion"].rpartition("/")
    kind = (group, obj["kind"])
    if kind in _FIRST:
        return _FIRST.index(kind)
    return len(_FIRST) + (kind in _LAST)


async def _load(service: ApiService, given: Obj) -> None:
    group, _, version_name = given["apiVersion"].rpartition("/")
    kind = service.registry.by_kind(group, given["kind"])
    version = None if kind is None else kind.versions.get(version_name)
    if kind is None or version is None or not version.served:
        raise BadRequest(
            f'no matches for kind "{given["kind"]}" in version "{given["apiVersion"]}"'
        )
    meta = given["metadata"]
    namespace = (meta.get("namespace") or "default") if kind.namespaced else ""
    obj = {**given, "metadata": {**meta, "namespace": namespace} if namespace else dict(meta)}
    if meta.get("uid"):
        await _restore(service, kind, version, obj, ObjectKey(namespace, meta["name"]))
    else:
        await _apply(service, kind, version, obj, namespace)


async def _restore(
    service: ApiService, kind: Kind, version: KindVersion, given: Obj, key: ObjectKey
) -> None:
    obj = decode(kind, version, given, WriteOptions())
    if kind.twin is not None:
        # The rules for new objects of the other name do not hold for what is stored already.
        obj = kind.twin.into(obj)
        kind = service.registry.storing(kind)
        version = kind.versions[kind.storage]
    obj["metadata"].setdefault("creationTimestamp", "1970-01-01T00:00:00Z")
    if version.schema is not None:
        errors = version.schema.validate(obj, None)
        if errors:
            raise failures.invalid(kind, key.name, errors)
    errors = kind.rules.validate_create(obj)
    if errors:
        raise failures.invalid(kind, key.name, errors)
    stored = await service.converter.convert_one(kind, obj, kind.storage)
    service.commits.put(kind, key, stored, service.commits.present(kind, key))


async def _apply(
    service: ApiService, kind: Kind, version: KindVersion, obj: Obj, namespace: str
) -> None:
    meta, status = obj["metadata"], obj.pop("status", None)
    for name in _NOT_APPLIED:
        meta.pop(name, None)
    resource = kind.resource(version.name)
    options = WriteOptions(field_manager=MANAGER, force=True)
    if meta.get("name"):
        key = ObjectKey(namespace, meta["name"])
        await service.patch(resource, key, obj, PatchType.APPLY, options=options)
    else:
        made = await service.create(resource, obj, namespace=namespace, options=options)
        key = ObjectKey(namespace, made["metadata"]["name"])
    if status is not None and version.status and kind.kind != CRDS.kind:
        await service.patch(
            resource, key, {"status": status}, subresource="status", options=options
        )
