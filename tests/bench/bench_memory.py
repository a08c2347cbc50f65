"""What manager and API server hold in memory: with nothing in them, and per 1,000 Workloads."""

from __future__ import annotations

import asyncio
from pathlib import Path

from figures import anonymous, pid_of, resident, show
from load import Times, client_of, create_all, create_queues, observed, workload

from kueuelib.api.kinds import WORKLOADS
from kueuelib.runtime.client import Client
from kueuelib.testing.processes import LocalCluster, Processes

GOAL = 150
COUNT = 3000
SETTLE = 5.0
"""Seconds in which the pair comes to rest."""
NAMES = ("apiserver", "manager")


async def test_idle_memory_and_memory_per_workload(tmp_path: Path) -> None:
    """A third of the Workloads is admitted, the others wait."""
    with Processes(tmp_path) as processes:
        cluster = LocalCluster(processes)
        cluster.start()
        await asyncio.sleep(SETTLE)
        pids = [pid_of(processes, name) for name in NAMES]
        idle = [resident(pid) for pid in pids]
        private = [anonymous(pid) for pid in pids]
        async with client_of(cluster.kubeconfig) as client:
            await create_queues(client, COUNT // 3)
            await _fill(client)
            await asyncio.sleep(SETTLE)
            full = [resident(pid) for pid in pids]
    grown = [(after - before) * 1000 / COUNT for before, after in zip(idle, full, strict=True)]
    show(
        f"memory: resident, simulated cluster; goal together under {GOAL} MB",
        [
            *(
                (name, f"{idle[at]:.0f} MB idle ({private[at]:.0f} MB of it not shared files)")
                for at, name in enumerate(NAMES)
            ),
            ("together", f"{sum(idle):.0f} MB idle"),
            *(
                (f"{name}, per 1,000 Workloads", f"{grown[at]:.1f} MB")
                for at, name in enumerate(NAMES)
            ),
        ],
    )


async def _fill(client: Client) -> None:
    """Creates the Workloads and waits until the quota is used up."""

    async def act() -> None:
        await create_all(client, WORKLOADS, [workload(f"wl-{n:05d}") for n in range(COUNT)])

    def done(times: Times) -> bool:
        return len(times.created) == COUNT and len(times.admitted) == COUNT // 3

    await observed(client, act, done, 100)
