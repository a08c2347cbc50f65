"""One run: a server, a manager, what is created, and what came of it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections import Counter
from collections.abc import Set as AbstractSet
from pathlib import Path

import attrs
from rest import Rest

from kueuelib.api.kinds import CLUSTER_QUEUES, NODES
from kueuelib.api.meta import is_true
from kueuelib.testing.processes import free_port

from .calls import CountedClient
from .cleaning import remove_webhooks
from .managers import ManagerSpec, Options, managing
from .parts import Load, Patience
from .result import Lag, Result, lag_of
from .servers import Server, install_definitions, serving
from .usage import Usage

ACTIVE_SECONDS = 120.0
"""Seconds within which every ClusterQueue has to be active, and the manager at rest again."""
REST_SECONDS = 2.0
REST_SHARE = 0.03
"""A manager rests that needs less of a processor than this over so many seconds."""


def measure(
    spec: ManagerSpec,
    server_kind: str,
    load: Load,
    options: Options,
    folder: Path,
    patience: Patience,
) -> Result:
    """Play the load once.

    Args:
        spec: the manager.
        server_kind: see `serving`.
        load: what is created.
        options: of the manager.
        folder: for logs and other files; made.
        patience: when to give up.
    """
    folder.mkdir(parents=True)
    with serving(server_kind, folder) as server:
        return asyncio.run(_measure(spec, server, server_kind, load, options, patience))


async def _measure(
    spec: ManagerSpec,
    server: Server,
    server_kind: str,
    load: Load,
    options: Options,
    patience: Patience,
) -> Result:
    async with server.client() as client:
        if not spec.full:
            await install_definitions(client, options.crds)
        options = attrs.evolve(options, metrics=free_port())
        with managing(spec, server, options) as process:
            usage = Usage(process.pid)
            if spec.own and not options.webhooks:
                await remove_webhooks(client)
            try:
                queues = set()
                for resource, obj in load.queue_objects():
                    await client.create(resource, obj)
                    if resource == NODES:
                        await client.make_ready(obj)
                    if resource == CLUSTER_QUEUES:
                        queues.add(obj["metadata"]["name"])
                await _until_active(client, queues, process)
                read = server.reader(client)
                calls, own = await read(), time.process_time()
                whole = Usage(os.getpid())
                usage.sample()
                whole.sample()
                start, rest = usage.cpu, whole.cpu - usage.cpu
                outcome = await load.play(client, patience, usage.sample)
                own, average = time.process_time() - own, os.getloadavg()[0]
                usage.sample()
                whole.sample()
                others = whole.cpu - usage.cpu - rest
                await _until_rest(usage)
                whole.sample()
                rest = whole.cpu - usage.cpu - rest - own
                calls = await read() - calls
                lag = _lag(server, options.metrics) if spec.own else Lag()
            finally:
                if not server.fresh:
                    await load.remove(client)
    return Result(
        spec.label,
        server_kind,
        outcome.objects,
        outcome.finished,
        outcome.wall,
        usage.cpu,
        start,
        usage.peak,
        own,
        rest,
        Counter(calls),
        average,
        outcome.use,
        outcome.waits,
        outcome.creation,
        outcome.said_use,
        others,
        lag,
    )


def _lag(server: Server, port: int) -> Lag:
    """How late the event loop of a manager was."""
    with Rest(server.kubeconfig) as rest:
        return lag_of(rest.metrics(port))


async def _until_active(
    client: CountedClient, names: AbstractSet[str], process: subprocess.Popen[bytes]
) -> None:
    async with asyncio.timeout(ACTIVE_SECONDS):
        while True:
            if (code := process.poll()) is not None:
                raise SystemExit(f"the manager has ended with {code}; manager.log may say why")
            queues = (await client.client.list(CLUSTER_QUEUES)).items
            if names <= {each["metadata"]["name"] for each in queues if is_true(each, "Active")}:
                return
            await asyncio.sleep(0.2)


async def _until_rest(usage: Usage) -> None:
    """What the manager has put off counts, too: Events, for example."""
    spent = -1.0
    async with asyncio.timeout(ACTIVE_SECONDS):
        while usage.cpu - spent > REST_SHARE * REST_SECONDS:
            spent = usage.cpu
            await asyncio.sleep(REST_SECONDS)
            usage.sample()
