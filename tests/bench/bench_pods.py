"""Plain pods in groups, through the manager: how fast, how many writes, how much memory."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from bench_writes import WRITES, counting, read_counts
from figures import cpu_seconds, pid_of, resident, show
from load import GROUP_SIZE, client_of, create_all, create_queues, group_pods

from kueuelib.api.kinds import PODS, WORKLOADS
from kueuelib.api.meta import is_true
from kueuelib.jobs.pods.reading import is_gated
from kueuelib.runtime.client import Client
from kueuelib.testing.processes import LocalCluster, Processes

GROUPS = 500
COUNT = GROUPS * GROUP_SIZE
SECONDS_OF_A_POD = 60.0
"""All pods are there together when memory is read; they end soon after."""
SETTLE = 3.0
MOST_POD_WRITES = 2
"""Per pod: one takes the gate away, one the finalizer."""
DEADLINE = 400.0


@attrs.define
class Seen:
    """What a watch of pods told, and when, in seconds of the monotonic clock."""

    created: dict[str, float] = attrs.field(factory=dict)
    ungated: dict[str, float] = attrs.field(factory=dict)
    released: set[str] = attrs.field(factory=set)

    def see(self, kind: str, pod: dict) -> None:
        """One event of the watch."""
        if kind not in ("ADDED", "MODIFIED"):
            return
        name, now = pod["metadata"]["name"], time.monotonic()
        self.created.setdefault(name, now)
        if not is_gated(pod):
            self.ungated.setdefault(name, now)
        if not pod["metadata"].get("finalizers"):
            self.released.add(name)

    def rate(self) -> float:
        """Pods ungated per second, from the first creation to the last gate."""
        return len(self.ungated) / (max(self.ungated.values()) - min(self.created.values()))


@pytest.mark.timeout(DEADLINE + 60)
async def test_groups_of_pods(tmp_path: Path) -> None:
    """Quota is enough for all; every pod is created, ungated, run and let go."""
    with counting(tmp_path) as server, Processes(tmp_path) as processes:
        cluster = LocalCluster(processes, frameworks=("pod",))
        processes.wait_for_file(cluster.kubeconfig, "apiserver", 30)
        cluster.install()
        cluster.start_manager()
        cluster.wait_for_manager()
        pid = pid_of(processes, "manager")
        async with client_of(cluster.kubeconfig) as client:
            await create_queues(client, COUNT)
            await asyncio.sleep(SETTLE)
            idle, before = resident(pid), cpu_seconds(pid)
            counts = read_counts(server, tmp_path / "counts")
            at: dict[str, tuple[float, float]] = {}

            async def all_ungated() -> None:
                at["ungated"] = cpu_seconds(pid), resident(pid)

            seen = await _run(client, all_ungated)
            await asyncio.sleep(SETTLE)
            done = cpu_seconds(pid)
            made = read_counts(server, tmp_path / "counts") - counts
            workloads = (await client.list(WORKLOADS)).items
    assert len(workloads) == GROUPS
    assert all(is_true(wl, "Finished") for wl in workloads)
    assert not [wl for wl in workloads if wl["metadata"].get("finalizers")]
    _show(seen, made, (before, at["ungated"][0], done), (idle, at["ungated"][1]))
    assert _on(made, "pods") <= MOST_POD_WRITES * COUNT


def _on(made: Counter[str], plural: str) -> int:
    return sum(
        number
        for what, number in made.items()
        if what.split()[0] in WRITES and what.split()[1].split("/")[0] == plural
    )


def _show(
    seen: Seen,
    made: Counter[str],
    cpu: tuple[float, float, float],
    memory: tuple[float, float],
) -> None:
    writes = {what: number for what, number in made.items() if what.split()[0] in WRITES}
    reads = sum(number for what, number in made.items() if what.split()[0] not in WRITES)
    started, ended = cpu[1] - cpu[0], cpu[2] - cpu[1]
    show(
        f"{COUNT:,} plain pods in groups of {GROUP_SIZE}, quota for all",
        [
            ("pods ungated", f"{seen.rate():.0f} per second"),
            ("processor time of the manager per pod, until ungated", _ms(started)),
            ("processor time of the manager per pod, from there on", _ms(ended)),
            ("writes to the pod, per pod", f"{_on(made, 'pods') / COUNT:.2f}"),
            *((what, f"{number / COUNT:.2f}") for what, number in sorted(writes.items())),
            ("reads, per pod", f"{reads / COUNT:.2f}"),
            ("manager, idle", f"{memory[0]:.0f} MB"),
            ("manager, per managed pod", f"{(memory[1] - memory[0]) * 1024 / COUNT:.1f} kB"),
        ],
    )


def _ms(seconds: float) -> str:
    return f"{seconds / COUNT * 1000:.2f} ms"


def _pods() -> list[dict]:
    """The pods of all groups, one group after the other."""
    return [
        pod
        for number in range(GROUPS)
        for pod in group_pods(f"group-{number:04d}", SECONDS_OF_A_POD)
    ]


async def _run(client: Client, when_ungated: Callable) -> Seen:
    """Creates the pods and watches until the finalizer of the last one is gone."""
    seen, told = Seen(), False
    page = await client.list(PODS)
    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
        version = page.resource_version
        async with await client.watch(PODS, resource_version=version, timeout=600) as stream:
            group.create_task(create_all(client, PODS, _pods()))
            while len(seen.released) < COUNT:
                for event in await stream.batch():
                    seen.see(event["type"], event["object"])
                if not told and len(seen.ungated) == COUNT:
                    told = True
                    await when_ungated()
    return seen
