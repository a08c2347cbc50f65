"""`kueuelib apiserver dump`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

from kueuelib.api.kinds import CRDS, KUEUE, WORKLOADS
from kueuelib.api.meta import Obj, Resource
from kueuelib.api.yaml_text import to_yaml
from kueuelib.app.explaining.gather import ASK_DOCTOR
from kueuelib.app.stored_versions import StoredReading, is_unconverted
from kueuelib.errors import ApiError, KueuelibError, Unavailable
from kueuelib.runtime import logs
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import reached

_SAME_OBJECTS = {("events.k8s.io", "events"): ("", "events")}
"""Resources that show the objects of another one; these are written once."""


def run(kubeconfig: Path | None, server_timeout: float, *, backup: bool = False) -> None:
    """Writes every object of a server to standard output, as YAML documents.

    With `backup` only those of our kinds but Workloads, which a manager makes again.

    Raises:
        ConfigError: the server cannot be reached.
        ApiError: it refused something.
        KueuelibError: it could not convert some objects; all others were written.
    """
    logs.configure("console", "error")  # that a kind is deprecated does not matter here
    anyio.run(_dump, kubeconfig, server_timeout, backup)


async def _dump(kubeconfig: Path | None, server_timeout: float, backup: bool) -> None:
    async with reached(kubeconfig, server_timeout, user_agent="kueuelib-dump") as client:
        written, ending = 0, []
        lost: dict[str, ApiError] = {}
        async for resource, creatable in _resources(client, lost, KUEUE if backup else None):
            if backup and resource.plural == WORKLOADS.plural:
                continue
            written += 1
            if not creatable:
                ending.append(f"{resource.plural}.{resource.group}")
            failure = await _dump_kind(client, resource)
            if failure is not None:
                lost[f"{resource.plural}.{resource.group}"] = failure
    if ending:
        names = ", ".join(sorted(ending))
        sys.stderr.write(
            f"note: being deleted: {names}; create their objects once they are defined again\n"
        )
    if not written:
        raise KueuelibError(f"nothing of {KUEUE} is served, so there is nothing to save")
    if lost:
        names, why = ", ".join(sorted(lost)), lost[min(lost)]
        raise KueuelibError(f"not all {names} could be read: {why}; {ASK_DOCTOR}")


async def _dump_kind(client: Client, resource: Resource) -> ApiError | None:
    """Writes the objects of a kind; returns why the server could not convert all of them."""
    reading = StoredReading(client, resource)
    try:
        async for obj in reading.objects():
            obj["metadata"].pop("resourceVersion", None)
            sys.stdout.write(f"---\n{to_yaml(obj)}")
    except ApiError as error:
        if is_unconverted(error):
            return error
        raise
    return None if reading.complete else reading.failure


async def _resources(
    client: Client, lost: dict[str, ApiError], only: str | None
) -> AsyncIterator[tuple[Resource, bool]]:
    """Every kind whose objects are stored, definitions before what they define; and whether such
    objects can be created, which is not so while a definition is being deleted.

    Custom resources come at the version in which they are stored, so that they need no conversion
    when they are loaded.

    Args:
        client: whose server.
        lost: gets the versions of APIs whose servers, which are other ones, do not answer.
        only: the only group; None for all.
    """
    stored = {
        (crd["spec"]["group"], crd["spec"]["names"]["plural"]): version["name"]
        async for crd in client.list_all(CRDS)
        for version in crd["spec"]["versions"]
        if version.get("storage") and version.get("served")
    }
    groups = await client.request("GET", "/apis", verb="get")
    group_versions: list[tuple[str, str]] = [("", "v1")]
    for group in groups.get("groups") or ():
        preferred = group["preferredVersion"]["version"]
        versions = [preferred, *(each["version"] for each in group["versions"])]
        group_versions += [(group["name"], version) for version in dict.fromkeys(versions)]
    seen: set[tuple[str, str]] = set()
    for group_name, version in group_versions:
        if only not in (None, group_name):
            continue
        prefix = f"/apis/{group_name}" if group_name else "/api"
        try:
            body: Obj = await client.request("GET", f"{prefix}/{version}", verb="get")
        except Unavailable as error:
            lost[f"{version}.{group_name}"] = error
            continue
        for entry in body.get("resources") or ():
            place = (group_name, entry["name"])
            wanted = stored.get(place, version)
            verbs = set(entry.get("verbs") or ())
            stored_here = {"list", "delete"} <= verbs  # not what is computed, like metrics
            known = place in seen or _SAME_OBJECTS.get(place) in seen
            if "/" in entry["name"] or not stored_here or known or wanted != version:
                continue
            seen.add(place)
            resource = Resource(
                group_name, version, entry["name"], entry["kind"], entry["namespaced"]
            )
            yield resource, "create" in verbs
