"""One run: a server, a manager, the Workloads, and what came of it."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

import attrs

from kueuelib.api.kinds import CLUSTER_QUEUES
from kueuelib.api.meta import is_true

from .calls import CountedClient
from .cleaning import remove_all, remove_webhooks
from .managers import ManagerSpec, Options, managing
from .playing import Execution, create_all
from .recorder import Recorder
from .result import Result
from .servers import Server, install_definitions, serving
from .shape import Shape
from .usage import Usage

ACTIVE_SECONDS = 120.0
"""Seconds within which every ClusterQueue has to be active."""
SETTLE_SECONDS = 2.0
"""Seconds after the last end that still count for the calls and the CPU of the manager."""
SAMPLE_SECONDS = 0.25


@attrs.frozen
class Patience:
    """When a run is given up, in seconds.

    Attributes:
        quiet: without a new admission or end.
        limit: altogether.
    """

    quiet: float = 45.0
    limit: float = 3600.0


def measure(
    spec: ManagerSpec,
    server_kind: str,
    shape: Shape,
    options: Options,
    folder: Path,
    patience: Patience,
) -> Result:
    """Play the shape once.

    Args:
        spec: the manager.
        server_kind: see `serving`.
        shape: what is created.
        options: of the manager.
        folder: for logs and other files; made.
        patience: when to give up.
    """
    folder.mkdir(parents=True)
    with serving(server_kind, folder) as server:
        return asyncio.run(_measure(spec, server, server_kind, shape, options, patience))


async def _measure(
    spec: ManagerSpec,
    server: Server,
    server_kind: str,
    shape: Shape,
    options: Options,
    patience: Patience,
) -> Result:
    async with server.client() as client:
        if not spec.own:
            await install_definitions(client, options.crds)
        with managing(spec, server, options) as process:
            usage = Usage(process.pid)
            if spec.own and not options.webhooks:
                await remove_webhooks(client)
            try:
                for resource, obj in shape.queue_objects():
                    await client.create(resource, obj)
                await _until_active(client, shape)
                read = server.reader(client)
                calls, own = await read(), time.process_time()
                whole = Usage(os.getpid())
                usage.sample()
                whole.sample()
                start, rest = usage.cpu, whole.cpu - usage.cpu
                recorder = Recorder(shape)
                await _play(client, shape, recorder, usage, patience)
                own, load = time.process_time() - own, os.getloadavg()[0]
                await asyncio.sleep(SETTLE_SECONDS)
                usage.sample()
                whole.sample()
                rest = whole.cpu - usage.cpu - rest - own
                calls = await read() - calls
            finally:
                if not server.fresh:
                    await remove_all(client, shape)
    return Result(
        spec.label,
        server_kind,
        len(recorder.seen),
        recorder.finished,
        recorder.ended - recorder.started,
        recorder.use(),
        recorder.waits(),
        usage.cpu,
        start,
        usage.peak,
        own,
        rest,
        Counter(calls),
        load,
    )


async def _until_active(client: CountedClient, shape: Shape) -> None:
    names = {place.name for place in shape.places()}
    async with asyncio.timeout(ACTIVE_SECONDS):
        while True:
            queues = (await client.client.list(CLUSTER_QUEUES)).items
            if names <= {each["metadata"]["name"] for each in queues if is_true(each, "Active")}:
                return
            await asyncio.sleep(0.2)


async def _play(
    client: CountedClient, shape: Shape, recorder: Recorder, usage: Usage, patience: Patience
) -> None:
    """Until all have finished, or nothing more happens."""
    execution = Execution(client, shape, recorder)
    deadline = time.monotonic() + patience.limit
    async with asyncio.TaskGroup() as group:
        player = group.create_task(execution.run())
        creator = group.create_task(create_all(client, shape))
        while recorder.finished < shape.total and time.monotonic() < deadline:
            quiet = time.monotonic() - execution.progress
            if creator.done() and quiet > patience.quiet:
                break
            await asyncio.sleep(SAMPLE_SECONDS)
            usage.sample()
        creator.cancel()
        player.cancel()
