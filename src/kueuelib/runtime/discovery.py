"""Which groups, versions and kinds a server has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import attrs

from kueuelib.api.meta import Obj, Resource
from kueuelib.errors import ConfigError, NotFound

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
