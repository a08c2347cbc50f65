"""The queues of a live cluster, read with GET and LIST only."""

from __future__ import annotations

from pathlib import Path

import anyio

from kueuelib.api.kinds import KUEUE
from kueuelib.api.meta import Obj, Resource
from kueuelib.app.explaining.gather import NEEDED
from kueuelib.app.wiring import queueing_version
from kueuelib.errors import Forbidden, NotFound
from kueuelib.runtime import logs
from kueuelib.runtime.client import Client
from kueuelib.runtime.connect import connect, wait_for_server
from kueuelib.simulator.cluster import KINDS


def read(kubeconfig: Path, server_timeout: float) -> tuple[list[Obj], list[str]]:
    """The objects of a cluster that a simulation reads.

    Args:
        kubeconfig: of the cluster.
        server_timeout: seconds to wait for a server that does not answer.

    Returns:
        raw objects, and what may not be read and is left out, for people.

    Raises:
        ConfigError: the cluster cannot be reached, or serves no queueing API.
        Forbidden: queues or flavors may not be listed.
    """
    logs.configure("console", "warning")
    return anyio.run(_read, kubeconfig, server_timeout)


async def _read(kubeconfig: Path, server_timeout: float) -> tuple[list[Obj], list[str]]:
    found: list[Obj] = []
    notes: list[str] = []
    async with await connect(kubeconfig, user_agent="kueuelib-simulate") as client:
        await wait_for_server(client, server_timeout)
        version = await queueing_version(client)
        for known in KINDS.values():
            resource = known.at(version) if known.group == KUEUE else known
            try:
                found += await _list(client, resource)
            except (Forbidden, NotFound) as error:
                if known in NEEDED:
                    raise
                if isinstance(error, Forbidden):
                    notes.append(f"{known.plural} were not read and count as absent: {error}")
    return found, notes


async def _list(client: Client, resource: Resource) -> list[Obj]:
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    return [{**kind, **obj} async for obj in client.list_all(resource)]
