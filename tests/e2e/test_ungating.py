"""All pods of one Job lose their gates soon, each with one call of the manager (KEP-2724).

`UNGATED_PODS=5000 pytest -s tests/e2e/test_ungating.py` measures it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from place import gates
from real_plane import lacking
from rest import JOBS, PATIENCE, PODS, Rest, eventually, job
from test_topology import FRAMEWORKS, RACK, asking, queues, racks_of_a_real_plane, topology
from warm import Processes

from kueuelib.testing.processes import READY_SECONDS, LocalCluster

COUNT = int(os.environ.get("UNGATED_PODS", "200"))
SHAPE = f"2x{COUNT // 200 + 1}"
"""Nodes with room for 110 pods each."""
COUNTING = Path(__file__).parents[1] / "bench/counting_server.py"
PROGRAM = "kueuelib"
PAUSE = 0.5
"""Seconds between looks, which cost some time."""

Counted = tuple[LocalCluster, Callable[[], int]]
"""A cluster, and what tells how often its manager wrote pods."""


@contextmanager
def on_the_embedded_server(folder: Path) -> Iterator[Counted]:
    with Processes(folder) as processes:
        cluster = LocalCluster(processes, frameworks=FRAMEWORKS)
        counts = folder / "counts"
        args = [str(cluster.kubeconfig), str(counts), "--simulate", "--racks", SHAPE]
        server = processes.start_program("apiserver", str(COUNTING), *args)
        processes.wait_for_file(cluster.kubeconfig, "apiserver", READY_SECONDS)

        def writes() -> int:
            counts.unlink(missing_ok=True)
            server.send_signal(signal.SIGUSR1)
            eventually(counts.exists)
            return int(json.loads(counts.read_text())[PROGRAM].get("patch pods", 0))

        yield cluster, writes


@contextmanager
def on_a_real_plane(folder: Path) -> Iterator[Counted]:
    with racks_of_a_real_plane(folder, SHAPE, FRAMEWORKS) as cluster:

        def writes() -> int:
            lines = (folder / "plane/audit.log").read_text().splitlines()
            return sum(is_write(json.loads(line)) for line in lines if '"patch"' in line)

        yield cluster, writes


def is_write(event: dict) -> bool:
    """Whether an event of the audit log is about what the manager writes to a pod."""
    what = event["objectRef"]["resource"], event["objectRef"].get("subresource", "")
    return event["userAgent"].startswith(PROGRAM) and what == ("pods", "")


@pytest.fixture(
    params=[
        pytest.param(on_the_embedded_server, id="embedded"),
        pytest.param(
            on_a_real_plane,
            marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())],
            id="real",
        ),
    ]
)
def counted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Counted]:
    with request.param(tmp_path) as (cluster, writes):
        cluster.install()
        cluster.start_manager()
        cluster.wait_for_manager()
        yield cluster, writes


def test_each_pod_is_written_once(counted: Counted) -> None:
    cluster, writes = counted
    with Rest(cluster.kubeconfig) as rest:
        topology(rest)
        queues(rest, cpu="10000")
        made = asking(job("train", seconds=3600, pods=COUNT, cpu="10m"), preferred_topology=RACK)
        made["spec"]["completionMode"] = "Indexed"
        rest.create(JOBS, made)
        eventually(lambda: not rest.get(f"{JOBS}/train")["spec"]["suspend"])
        began = time.monotonic()

        def created() -> bool:
            return rest.get(f"{JOBS}/train")["status"].get("active", 0) == COUNT

        eventually(created, 5 * PATIENCE, PAUSE)
        then = time.monotonic()
        eventually(lambda: writes() >= COUNT, 5 * PATIENCE, PAUSE)
        print(
            f"\n{COUNT} pods were created in {then - began:.1f} s, and the last one started"
            f" {time.monotonic() - then:.1f} s later"
        )

        def gated() -> list[str]:
            pods = rest.items(f"{PODS}?labelSelector=job-name=train")
            assert len(pods) == COUNT
            return [gate for pod in pods for gate in gates(pod)]

        eventually(lambda: not gated(), 5 * PATIENCE, PAUSE)
        assert writes() == COUNT, "none is written twice"
