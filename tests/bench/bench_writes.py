"""How often the manager writes for one Job, from its creation until it is done."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from figures import show
from load import client_of, create_all, create_queues, job, observed

from kueuelib.api.kinds import JOBS, WORKLOADS
from kueuelib.runtime.client import Client
from kueuelib.testing.processes import LocalCluster, Processes

COUNT = 200
SETTLE = 3.0
"""Seconds in which the status of queues, events and garbage come to rest."""
WRITES = ("create", "update", "patch", "apply", "delete")
MANAGER = "kueuelib"
"""The program whose calls are counted."""


@contextmanager
def counting(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A `counting_server.py` whose kubeconfig is in the folder."""
    script = Path(__file__).parent / "counting_server.py"
    args = [sys.executable, str(script), str(folder / "kubeconfig"), str(folder / "counts")]
    args.append("--simulate")
    with subprocess.Popen(args) as process:
        try:
            yield process
        finally:
            process.kill()


def read_counts(process: subprocess.Popen[bytes], path: Path) -> Counter[str]:
    path.unlink(missing_ok=True)
    process.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + 10
    while not path.exists():
        assert time.monotonic() < deadline, "the server does not tell its counts"
        time.sleep(0.05)
    return Counter(json.loads(path.read_text()).get(MANAGER, {}))


@pytest.mark.parametrize("quota", [COUNT, COUNT // 20])
async def test_writes_per_job(tmp_path: Path, quota: int) -> None:
    """Once with quota for all, once with a queue in front of a twentieth of it."""
    with counting(tmp_path) as server, Processes(tmp_path) as processes:
        cluster = LocalCluster(processes)
        processes.wait_for_file(cluster.kubeconfig, "apiserver", 30)
        cluster.install()
        cluster.start_manager()
        cluster.wait_for_manager()
        async with client_of(cluster.kubeconfig) as client:
            await create_queues(client, quota)
            await asyncio.sleep(SETTLE)
            before = read_counts(server, tmp_path / "counts")
            await _run(client)
            await asyncio.sleep(SETTLE)
            made = read_counts(server, tmp_path / "counts") - before
            left = [wl for wl in (await client.list(WORKLOADS)).items if _held(wl)]
    assert not left, "a finished Workload keeps its finalizer"
    writes = {what: number for what, number in made.items() if what.split()[0] in WRITES}
    jobs = {what: number for what, number in writes.items() if "events" not in what}
    assert writes["create workloads"] >= COUNT
    show(
        f"writes of the manager per Job, {COUNT} Jobs, quota for {quota} at once",
        [
            *((what, f"{number / COUNT:.2f}") for what, number in sorted(jobs.items())),
            ("all but events", f"{sum(jobs.values()) / COUNT:.2f}"),
            ("events", f"{(sum(writes.values()) - sum(jobs.values())) / COUNT:.2f}"),
            ("reads", f"{_reads(made) / COUNT:.2f}"),
        ],
    )


def _held(wl: dict) -> bool:
    return bool(wl["metadata"].get("finalizers"))


def _reads(made: Counter[str]) -> int:
    return sum(number for what, number in made.items() if what.split()[0] not in WRITES)


async def _run(client: Client) -> None:
    """Creates the Jobs and waits until all are finished."""

    async def act() -> None:
        await create_all(client, JOBS, [job(f"job-{n:04d}", 0.1) for n in range(COUNT)])

    await observed(client, act, lambda times: len(times.finished) >= COUNT, 100)
