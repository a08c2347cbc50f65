"""`kueuelib apiserver dump`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TextIO

import anyio

from kueuelib.api.kinds import CRDS, KUEUE, WORKLOADS
from kueuelib.api.meta import Obj, Resource
from kueuelib.api.phrases import counted
from kueuelib.api.yaml_text import to_yaml
from kueuelib.app.explaining.gather import ASK_DOCTOR
from kueuelib.app.foreign_finalizers import foreign_finalizers
from kueuelib.app.stored_versions import StoredReading, is_unconverted
from kueuelib.errors import ApiError, ConfigError, KueuelibError, Unavailable
from kueuelib.runtime import logs
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import reached

_SAME_OBJECTS = {("events.k8s.io", "events"): ("", "events")}
"""Resources that show the objects of another one; these are written once."""


def run(kubeconfig: Path | None, server_timeout: float, *, backup: Path | None = None) -> None:
    """Writes every object of a server to standard output, as YAML documents.

    A backup has only those of our kinds but Workloads, which a manager makes again. Its file is
    always a new one: once something was deleted, a second backup has less than the first one.

    Args:
        kubeconfig: the cluster; found by kubectl's rules when None.
        server_timeout: seconds to wait for a server that does not answer.
        backup: the file for a backup; None for everything.

    Raises:
        ConfigError: the server cannot be reached, or the file exists or cannot be written.
        ApiError: it refused something.
        KueuelibError: it could not convert some objects; all others were written.
    """
    logs.configure("console", "error")  # that a kind is deprecated does not matter here
    if backup is None:
        lost = anyio.run(_dump, kubeconfig, server_timeout, sys.stdout, None)
    else:
        try:
            file = backup.open("x", encoding="utf-8")
        except FileExistsError as error:
            problem = "exists, and may contain more than can be saved now"
            raise ConfigError(f"file {backup}", problem, "keep it, and name another one") from error
        except OSError as error:
            problem = f"cannot be written: {error.strerror}"
            raise ConfigError(f"file {backup}", problem, "name another one") from error
        try:
            with file:
                lost = anyio.run(_dump, kubeconfig, server_timeout, file, KUEUE)
        except BaseException:
            backup.unlink()  # a part of a backup looks like one
            raise
    if lost:
        names, why = ", ".join(sorted(lost)), lost[min(lost)]
        raise KueuelibError(f"not all {names} could be read: {why}; {ASK_DOCTOR}")


async def _dump(
    kubeconfig: Path | None, server_timeout: float, out: TextIO, only: str | None
) -> Mapping[str, ApiError]:
    """Writes the objects of all kinds, or makes a backup of a group; returns why it could not read
    all objects of some kinds, by name.
    """
    async with reached(kubeconfig, server_timeout, user_agent="kueuelib-dump") as client:
        written, ending = 0, []
        lost: dict[str, ApiError] = {}
        left_out: Counter[str] | None = Counter() if only else None
        async for resource, creatable in _resources(client, lost, only):
            if only and resource.plural == WORKLOADS.plural:
                continue
            written += 1
            if not creatable:
                ending.append(f"{resource.plural}.{resource.group}")
            failure = await _dump_kind(client, resource, out, left_out)
            if failure is not None:
                lost[f"{resource.plural}.{resource.group}"] = failure
    if ending:
        names = ", ".join(sorted(ending))
        sys.stderr.write(
            f"note: being deleted: {names}; create their objects once they are defined again\n"
        )
    for name, count in sorted((left_out or {}).items()):
        where = counted(count, "object")
        sys.stderr.write(f"note: without the finalizer {name} of another program ({where})\n")
    if not written:
        raise KueuelibError(f"nothing of {KUEUE} is served, so there is nothing to save")
    return lost


async def _dump_kind(
    client: Client, resource: Resource, out: TextIO, left_out: Counter[str] | None
) -> ApiError | None:
    """Writes the objects of a kind; returns why the server could not convert all of them.

    Args:
        client: whose server.
        resource: the kind.
        out: where to write.
        left_out: counts the finalizers that a backup leaves out: those of other programs would keep
            the restored objects and their kind from being deleted. None for no backup.
    """
    reading = StoredReading(client, resource)
    try:
        async for obj in reading.objects():
            obj["metadata"].pop("resourceVersion", None)
            others = [] if left_out is None else foreign_finalizers(obj)
            if left_out is not None and others:
                left_out.update(others)
                meta = obj["metadata"]
                meta["finalizers"] = [one for one in meta["finalizers"] if one not in others]
            out.write(f"---\n{to_yaml(obj)}")
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
