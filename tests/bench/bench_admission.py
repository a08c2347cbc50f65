"""From a Workload's creation to its admission, seen from outside, with real processes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from figures import cpu_seconds, milliseconds, pid_of, show
from load import Times, client_of, create_all, create_queues, job, observed

from kueuelib.api.kinds import JOBS
from kueuelib.runtime.client import Client
from kueuelib.testing.processes import LocalCluster, Processes

JOBS_AT_ONCE = 1000
PACED = 200
PER_SECOND = 20


async def test_admissions_of_a_burst_and_of_a_trickle(tmp_path: Path) -> None:
    """Quota is enough for all, so what is measured is the way, not the waiting."""
    with Processes(tmp_path) as processes:
        cluster = LocalCluster(processes)
        cluster.start_server(simulate=False)
        cluster.install()
        cluster.start_manager()
        cluster.wait_for_manager()
        pids = [pid_of(processes, name) for name in ("apiserver", "manager")]
        async with client_of(cluster.kubeconfig) as client:
            await create_queues(client, JOBS_AT_ONCE + PACED)
            paced = await _paced(client)
            before = [cpu_seconds(pid) for pid in pids]
            burst = await _burst(client)
            used = [cpu_seconds(pid) for pid in pids]
    spent = [(b - a) / JOBS_AT_ONCE for a, b in zip(before, used, strict=True)]
    show(
        f"admission: {PACED} Jobs, {PER_SECOND} a second",
        [("creation to Admitted", milliseconds(paced.latencies()))],
    )
    show(
        f"admission: {JOBS_AT_ONCE:,} Jobs at once, as fast as they can be created",
        [
            ("creation to Admitted", milliseconds(burst.latencies())),
            ("admissions", f"{burst.rate():.0f} per second"),
            ("first creation to last admission", f"{_span(burst):.1f} s"),
            ("processor time per Job, API server", f"{spent[0] * 1000:.1f} ms"),
            ("processor time per Job, manager", f"{spent[1] * 1000:.1f} ms"),
        ],
    )


def _span(times: Times) -> float:
    return max(times.admitted.values()) - min(times.created.values())


async def _paced(client: Client) -> Times:
    async def act() -> None:
        start = time.monotonic()
        for number in range(PACED):
            await asyncio.sleep(max(start + number / PER_SECOND - time.monotonic(), 0))
            await client.create(JOBS, job(f"paced-{number:04d}"))

    return await observed(client, act, lambda times: len(times.admitted) >= PACED, 60)


async def _burst(client: Client) -> Times:
    async def act() -> None:
        await create_all(client, JOBS, [job(f"burst-{n:04d}") for n in range(JOBS_AT_ONCE)])

    return await observed(client, act, lambda times: len(times.admitted) >= JOBS_AT_ONCE, 110)
