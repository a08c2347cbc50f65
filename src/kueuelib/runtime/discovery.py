"""Which groups, versions and kinds a server has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kueuelib.api.meta import Obj, Resource
from kueuelib.errors import NotFound

Request = Callable[..., Awaitable[Any]]
"""`Client.request`."""


async def served_versions(request: Request, group: str) -> tuple[str, ...]:
    """See `Client.served_versions`."""
    body = await _read(request, f"/apis/{group}" if group else "/api")
    versions = body.get("versions") or ()
    return tuple(each["version"] for each in versions) if group else tuple(versions)


async def served_kinds(request: Request, group: str, version: str) -> tuple[str, ...]:
    """See `Client.served_kinds`."""
    entries = await _entries(request, f"{group}/{version}" if group else version)
    return tuple(entry["kind"] for entry in entries)


async def served_plurals(request: Request, api_version: str) -> dict[str, str]:
    """The kinds of a group and version by plural, without subresources; {} when not served."""
    return {entry["name"]: entry["kind"] for entry in await _entries(request, api_version)}


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
