"""Jobs that start at once, with one and with several workers, on a real API server.

The variants take turns on one server, forwards and backwards, so that their ratios hold on a busy
machine, too.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from pathlib import Path

import pytest
from baseline.servers import REAL, default_server, serving
from figures import show
from load import client_of, create_all, create_queues, job

from kueuelib.api.kinds import JOBS
from kueuelib.runtime.client import Client
from kueuelib.testing.processes import LocalCluster, Processes

COUNT = 300
ROUNDS = 2
DEADLINE = 120.0
VARIANTS = {
    "one worker each": "Job.batch: 1, Workload.kueue.x-k8s.io: 1",
    "5 for Jobs": "Job.batch: 5, Workload.kueue.x-k8s.io: 1",
    "5 for Jobs and Workloads": "Job.batch: 5, Workload.kueue.x-k8s.io: 5",
}


@pytest.mark.timeout(900)
async def test_workers(tmp_path: Path) -> None:
    """Quota is enough for all: every Job is suspended, gets a Workload, and is started."""
    if default_server() != REAL:
        pytest.skip("KUBEBUILDER_ASSETS names no control plane")
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    with serving(REAL, tmp_path), Processes(tmp_path) as processes:
        cluster = LocalCluster(processes)
        cluster.install()
        async with client_of(cluster.kubeconfig) as client:
            turns = [*VARIANTS, *reversed(VARIANTS)] * ROUNDS
            for number, name in enumerate(turns):
                cluster.workers = VARIANTS[name]
                cluster.start_manager()
                cluster.wait_for_manager()
                if not number:
                    await create_queues(client, COUNT * len(turns))
                seconds[name].append(await _played(client, number))
                processes.stop("manager")
    base = statistics.median(next(iter(seconds.values())))
    show(
        f"{COUNT} Jobs, from the first creation to the last start, median of {2 * ROUNDS}",
        [
            (name, f"{statistics.median(found):.2f} s, {statistics.median(found) / base:.2f}")
            for name, found in seconds.items()
        ],
    )


async def _played(client: Client, turn: int) -> float:
    """Seconds from the first creation of the turn's Jobs until all are started."""
    started: set[str] = set()
    version = (await client.list(JOBS)).resource_version
    began = time.monotonic()
    async with (
        asyncio.timeout(DEADLINE),
        asyncio.TaskGroup() as group,
        await client.watch(JOBS, resource_version=version, timeout=600) as stream,
    ):
        jobs = [job(f"turn-{turn}-{number:04d}") for number in range(COUNT)]
        group.create_task(create_all(client, JOBS, jobs))
        while len(started) < COUNT:
            for event in await stream.batch():
                obj = event["object"]
                if obj["spec"].get("suspend") is False:
                    started.add(obj["metadata"]["name"])
    return time.monotonic() - began
