"""What the verbs of a `Client` send and receive, and which kinds a server has."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Self

import attrs

from kueuelib.api.meta import PARTIAL, Obj, ObjectKey, Resource
from kueuelib.errors import ConfigError, NotFound

# ---- which groups, versions and kinds a server has -----------------------------------------------

Request = Callable[..., Awaitable[Any]]
"""`Client.request`."""
_INSTALL = "run `kueuelib manifests FILE | kubectl apply -f -`"


async def served_versions(request: Request, group: str) -> tuple[str, ...]:
    """See `Client.served_versions`."""
    body = await _read(request, f"/apis/{group}" if group else "/api")
    versions = body.get("versions") or ()
    return tuple(each["version"] for each in versions) if group else tuple(versions)


async def served_kinds(request: Request, group: str, version: str) -> tuple[str, ...]:
    """See `Client.served_kinds`."""
    entries = await _entries(request, f"{group}/{version}" if group else version)
    return tuple(entry["kind"] for entry in entries)


@attrs.frozen
class Unserved:
    """A kind that the API server does not serve.

    Attributes:
        error: names the kind, and the nearest one that is served.
        misnamed: whether the kind is served under another plural: waiting cannot help.
        absent: whether nothing of its group and version is served.
    """

    error: ConfigError
    misnamed: bool = False
    absent: bool = False


def unserved(
    resource: Resource, served: Mapping[str, str], api_versions: Iterable[str], *, own: bool
) -> Unserved | None:
    """What is wrong with a kind; None if it is served.

    Args:
        resource: the kind.
        served: the kinds of its group and version, by plural.
        api_versions: all that the API server serves; read only when `served` is empty.
        own: whether the manifests of the operator define it.
    """
    if resource.plural in served:
        return None
    problem = f"is not served in {resource.api_version}"
    if own:
        return Unserved(ConfigError(resource.plural, problem, _INSTALL), absent=not served)
    if served:
        same = [plural for plural, kind in served.items() if kind.lower() == resource.kind.lower()]
        near = same or get_close_matches(resource.plural, served, 1)
        fix = f"did you mean {near[0]}?" if near else "install what serves it"
        return Unserved(ConfigError(resource.plural, problem, fix), misnamed=bool(same))
    near = get_close_matches(resource.api_version, api_versions, 1, cutoff=0.8)
    fix = "install what serves it" + (f"; or did you mean {near[0]}?" if near else "")
    return Unserved(ConfigError(resource.plural, problem, fix), absent=True)


async def served_plurals(request: Request, api_version: str) -> dict[str, str]:
    """The kinds of a group and version by plural, without subresources; {} when not served."""
    return {entry["name"]: entry["kind"] for entry in await _entries(request, api_version)}


async def ending_plurals(request: Request, api_version: str) -> tuple[str, ...]:
    """The plurals of the kinds whose definitions are being deleted: none can be created."""
    entries = await _entries(request, api_version)
    return tuple(entry["name"] for entry in entries if "create" not in entry["verbs"])


async def api_versions(request: Request) -> tuple[str, ...]:
    """All groups with their versions, as in `apiVersion`."""
    groups = (await _read(request, "/apis")).get("groups") or ()
    named = [each["groupVersion"] for group in groups for each in group["versions"]]
    return (*await served_versions(request, ""), *named)


async def find_resource(request: Request, api_version: str, kind: str) -> Resource | None:
    """See `Client.find_resource`."""
    group, _, version = api_version.rpartition("/")
    for entry in await _entries(request, api_version):
        if entry["kind"] == kind:
            return Resource(group, version, entry["name"], kind, bool(entry["namespaced"]))
    return None


async def _entries(request: Request, api_version: str) -> list[Obj]:
    """The kinds of a version, without subresources."""
    root = "/apis" if "/" in api_version else "/api"
    body = await _read(request, f"{root}/{api_version}")
    return [entry for entry in body.get("resources") or () if "/" not in entry["name"]]


async def _read(request: Request, path: str) -> Obj:
    try:
        return await request("GET", path, verb="get") or {}
    except NotFound:
        return {}


# --------------------------------------------------------------------------------------------------

JSON = "application/json"
_AS = "application/json;as={};g=meta.k8s.io;v=v1"
METADATA = f"{_AS.format(PARTIAL)},{JSON}"
"""Accept objects reduced to their metadata; whole ones from a server that cannot do that."""
METADATA_LIST = f"{_AS.format(f'{PARTIAL}List')},{JSON}"
"""The same for lists."""


Params = list[tuple[str, str]]


class PatchType(enum.StrEnum):
    """The four kinds of patches, by content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"
    STRATEGIC = "application/strategic-merge-patch+json"


def content_type_of(given: object) -> str:
    """The content type of a patch.

    Raises:
        ConfigError: it is not a type of patches.
    """
    if not isinstance(given, PatchType):
        fix = "give PatchType.MERGE, STRATEGIC, JSON or APPLY"
        raise ConfigError(f"{given!r:.60}", "is not a type of patches", fix)
    return given.value


def without_managed_fields(obj: Obj) -> Obj:
    """An object as it can be applied: `managedFields` are refused there, though answers have them.

    Everything else is sent. A `resourceVersion` protects changes that others made meanwhile.
    """
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or "managedFields" not in meta:
        return obj
    sent = {name: value for name, value in meta.items() if name != "managedFields"}
    return {**obj, "metadata": sent}


@attrs.frozen
class ObjectList:
    """One page of a list.

    Attributes:
        items: the objects, each with `apiVersion` and `kind`.
        resource_version: of the list as a whole.
        continue_token: asks for the next page; empty on the last one.
        remaining: how many objects are left, when the server says so.
    """

    items: tuple[Obj, ...]
    resource_version: str = ""
    continue_token: str = ""
    remaining: int | None = None

    @classmethod
    def read(cls, body: Obj, resource: Resource) -> Self:
        """A page out of the answer to a list; its items are changed.

        Items whose kind the server left out get it. Metadata gets the kind of its object.
        """
        meta = body.get("metadata") or {}
        items = body.get("items") or ()
        kind = str(body.get("kind", "")).removesuffix("List") or resource.kind
        if kind == PARTIAL:
            for item in items:
                item |= {"apiVersion": resource.api_version, "kind": resource.kind}
        for item in items:
            item.setdefault("apiVersion", body.get("apiVersion", resource.api_version))
            item.setdefault("kind", kind)
        return cls(
            items=tuple(items),
            resource_version=meta.get("resourceVersion") or "",
            continue_token=meta.get("continue") or "",
            remaining=meta.get("remainingItemCount"),
        )


def object_path(resource: Resource, key: ObjectKey, subresource: str = "") -> str:
    """The URL path of an object.

    Raises:
        ConfigError: it is not a kind, the key is none, or its namespace is missing or too much.
    """
    _check_kind(resource)
    if not isinstance(key, ObjectKey):
        raise ConfigError(f"{resource.kind} {key!r:.60}", "is not a key", "give an ObjectKey")
    _check_namespace(resource, *key)
    return resource.path(key.namespace, key.name, subresource)


def collection_path(resource: Resource, namespace: str) -> str:
    """The URL path of all objects of a kind, or of those in one namespace.

    Raises:
        ConfigError: it is not a kind.
    """
    _check_kind(resource)
    return resource.path(namespace)


def creation_path(resource: Resource, obj: Mapping[str, Any], name: str, subresource: str) -> str:
    """The URL path under which an object is created, or a subresource of the object `name`.

    Raises:
        ConfigError: it is not a kind, or the namespace is missing or too much.
    """
    _check_kind(resource)
    meta = obj.get("metadata") or {}
    namespace = meta.get("namespace") or ""
    _check_namespace(resource, namespace, name or meta.get("name") or "")
    return resource.path(namespace, name, subresource)


def _check_kind(given: object) -> None:
    if not isinstance(given, Resource):
        name = getattr(given, "__name__", repr(given))
        fix = f"use client.of({name})" if isinstance(given, type) else "give a Resource"
        raise ConfigError(name, "is not a Resource", fix)


def _check_namespace(resource: Resource, namespace: str, name: str) -> None:
    if resource.namespaced and not namespace:
        fix = "give it one; objects of this kind live in namespaces"
        raise ConfigError(f"{resource.kind} {name}", "has no namespace", fix)
    if namespace and not resource.namespaced:
        problem = f"has the namespace {namespace!r}"
        fix = "leave it out; the kind is cluster-scoped"
        raise ConfigError(f"{resource.kind} {name}", problem, fix)


def params_of(**values: str) -> Params:
    """Query parameters, without empty ones."""
    return [(name, value) for name, value in values.items() if value]


def present_only(**values: Any) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def delete_options(
    preconditions: dict[str, Any],
    propagation: str | None,
    grace_period: int | None,
    *,
    dry_run: bool = False,
) -> Obj:
    """The raw `DeleteOptions` of a request; with them, a server ignores those in the URL."""
    return {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        **present_only(
            preconditions=preconditions or None,
            propagationPolicy=propagation,
            gracePeriodSeconds=grace_period,
            dryRun=["All"] if dry_run else None,
        ),
    }
