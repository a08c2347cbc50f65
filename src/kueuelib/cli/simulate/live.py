"""The queues of a live cluster, read with GET and LIST only."""

from __future__ import annotations

from pathlib import Path

import anyio

from kueuelib.api.kinds import spoken
from kueuelib.api.meta import Obj
from kueuelib.app.explaining.gather import list_kinds
from kueuelib.runtime import logs
from kueuelib.runtime.connection import reached
from kueuelib.simulator.cluster import KINDS
from kueuelib.workload.served import queueing_version


def read(kubeconfig: Path, server_timeout: float) -> tuple[list[Obj], list[str]]:
    """The objects of a cluster that a simulation reads.

    Args:
        kubeconfig: of the cluster.
        server_timeout: seconds to wait for a server that does not answer.

    Returns:
        raw objects, and notes on kinds that may not be read and are left out.

    Raises:
        ConfigError: the cluster cannot be reached, or serves no queueing API.
        KueuelibError: queues or flavors may not be listed.
    """
    logs.configure("console", "warning")
    return anyio.run(_read, kubeconfig, server_timeout)


async def _read(kubeconfig: Path, server_timeout: float) -> tuple[list[Obj], list[str]]:
    async with reached(kubeconfig, server_timeout, user_agent="kueuelib-simulate") as client:
        version = await queueing_version(client)
        wanted = [spoken(one, version) for one in KINDS.values()]
        lists = await list_kinds(client, wanted)
    lists.insist()
    objects = [
        {"apiVersion": one.api_version, "kind": one.kind, **obj}
        for one in wanted
        for obj in lists.of(one.kind)
    ]
    return objects, lists.absences(wanted)
