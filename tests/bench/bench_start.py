"""How long a manager takes to take over a full cluster, and what that costs.

`START_OBJECTS=20000` plays the large case, `START_MANAGER=kueuelib@TREE` measures the sources of
another checkout, and `START_PROFILE=1` also prints where the processor time goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from baseline import profile
from baseline.managers import OWN, Options, managing, parse
from baseline.servers import Server
from baseline.usage import Usage
from figures import show
from samples import job, pod, workload

from kueuelib.api.crd import all_crds
from kueuelib.controllers.webhooks import by_url, with_conversion

COUNT = int(os.environ.get("START_OBJECTS", "500"))
"""Pods, Jobs and admitted Workloads: so many of each."""
MANAGER = os.environ.get("START_MANAGER", OWN)
PROFILE = "START_PROFILE" in os.environ
REST = 0.05
"""Of a core, that a manager uses at most when it has looked at everything."""
LONGEST = 1200.0


def cluster() -> list[dict[str, Any]]:
    """Running Jobs of one pod set, their pods and Workloads, and the queue that they are in."""
    rows = [{"name": name, "nominalQuota": "1000000Gi"} for name in ("cpu", "memory")]
    flavor = {"name": "on-demand", "resources": rows}
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [flavor]}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    api = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    team = {"name": "team", "namespace": "default"}
    objects: list[dict[str, Any]] = [
        *(with_conversion(crd, by_url("https://127.0.0.1:1")) for crd in all_crds()),
        {**api, "kind": "ResourceFlavor", "metadata": {"name": "on-demand"}, "spec": {}},
        {**api, "kind": "ClusterQueue", "metadata": {"name": "team"}, "spec": spec},
        {**api, "kind": "LocalQueue", "metadata": team, "spec": {"clusterQueue": "team"}},
    ]
    for number in range(COUNT):
        for make in (job, workload, pod):
            obj = make(number)
            obj["metadata"]["namespace"] = "default"
            obj["metadata"]["labels"].pop("kueue.x-k8s.io/managed", None)
            objects.append(obj)
    return objects


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Run an API server that holds the cluster."""
    state, kubeconfig = folder / "state.json", folder / "kubeconfig"
    state.write_bytes(orjson.dumps(cluster()))
    args = ["apiserver", "--kubeconfig", str(kubeconfig), "--load", str(state)]
    with (folder / "apiserver.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "kueuelib", *args], stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + LONGEST
        while not kubeconfig.exists():
            assert process.poll() is None, (folder / "apiserver.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield Server(kubeconfig, folder)
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.timeout(LONGEST)
async def test_the_start_in_a_full_cluster(tmp_path: Path) -> None:
    """The Workloads are those that the Jobs ask for, so there is nothing to write."""
    with serving(tmp_path) as server:
        options = Options(profile=PROFILE)
        with managing(parse(MANAGER), server, options) as process:
            usage = Usage(process.pid)
            usage.sample()
            ready, wall = usage.cpu, _age(process.pid)
            before = -1.0
            while usage.cpu - before > REST:
                before = usage.cpu
                await asyncio.sleep(1.0)
                usage.sample()
            log = (tmp_path / "manager.log").read_text()
    show(
        f"start: {COUNT:,} Pods, {COUNT:,} Jobs, {COUNT:,} Workloads stored",
        [
            ("until ready", f"{wall:.1f} s by the clock, {ready:.1f} s of the processor"),
            ("until at rest", f"{usage.cpu:.1f} s of the processor"),
            ("memory at most", f"{usage.peak:.0f} MB"),
        ],
    )
    if PROFILE:
        sys.stdout.write(profile.report(tmp_path / "profile.json", 40))
    assert "Stopped" not in log


def _age(pid: int) -> float:
    """Seconds since a process began."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK")
