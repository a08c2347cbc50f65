"""Dask's operator and clusters in a queue; schedulers and workers are processes of a local node."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest
import yaml

pytest.importorskip("dask_kubernetes", reason="nox -s integrations installs it")

import dask_kubernetes
from dask_kubernetes.operator import make_cluster_spec
from dask_kubernetes.operator._objects import DaskCluster
from distributed import Client, Future
from team import Looks, Team

from kueuelib.integrations.dask import QueuedKubeCluster
from kueuelib.testing.processes import LocalCluster

OPERATOR = Path(dask_kubernetes.__file__).parent / "operator"
CRDS = OPERATOR / "deployment/helm/dask-kubernetes-operator/crds"
PRIORITY = "kueue.x-k8s.io/priority-class"
TASKS = 70
SECONDS = 120
TIMEOUT = 6
"""Of the operator's own steps, in seconds."""


@pytest.fixture
def dask_team(cluster: LocalCluster, node: Path, tmp_path: Path) -> Iterator[Team]:
    """Quota for a scheduler and one worker, and the operator."""
    team = Team(cluster.kubeconfig, flavor="processes", cpu="1100m")
    for crd in CRDS.glob("*.yaml"):
        team.create(yaml.safe_load(crd.read_text()), once=True)
    command = ["-m", "kopf", "run", "-A", "-m", "dask_kubernetes.operator.controller"]
    file = tmp_path / "operator.log"
    with (
        file.open("wb") as log,
        subprocess.Popen([sys.executable, *command], stderr=log) as operator,
    ):
        try:
            until(lambda: "Initial authentication has finished" in file.read_text())
            yield team
        finally:
            operator.kill()  # after SIGTERM, it waits for the ports that it forwards


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.5)


class TalkingCluster(QueuedKubeCluster):
    """Keeps what the box of a starting cluster shows."""

    said: ClassVar[list[str]] = []

    def _log(self, log: str) -> None:
        self.said.append(log)
        super()._log(log)


async def never_ready(cluster: DaskCluster) -> bool:
    """What the package sees if the operator writes the phase `Pending` over `Running`."""
    return False


def test_a_cluster_starts_after_a_wait_longer_than_its_timeout(
    dask_team: Team, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "kueuelib.integrations.dask")
    monkeypatch.setattr(DaskCluster, "ready", never_ready)
    spec = make_cluster_spec("late", image="local", n_workers=0)
    (container,) = spec["spec"]["scheduler"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": "1"}}
    spec["spec"]["scheduler"]["metadata"] = {"labels": {PRIORITY: "low"}}

    def start() -> None:
        TalkingCluster(
            local_queue="workers",
            scheduler_queue="team",
            custom_cluster_spec=spec,
            namespace=dask_team.namespace,
            port_forward_cluster_ip=True,
            resource_timeout=TIMEOUT,
        ).close()

    with ThreadPoolExecutor() as threads:
        with dask_team.occupied():
            starting = threads.submit(start)
            latest = lambda: (TalkingCluster.said or [""])[-1]  # noqa: E731
            looks = Looks.at(dask_team, "Dask", latest, 10 * TIMEOUT)
        starting.result(SECONDS)
    assert looks.lapses == 0, looks
    assert "late-scheduler" in caplog.text
    assert "Waiting for quota: " in caplog.text


def test_a_computation_ends_although_its_only_worker_is_preempted(dask_team: Team) -> None:
    command = ["dask-worker", "--nthreads", "1"]
    spec = make_cluster_spec("sums", image="local", n_workers=1, worker_command=command)
    for part, cpu in (("scheduler", "100m"), ("worker", "1")):
        (container,) = spec["spec"][part]["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": cpu}}
    with (
        QueuedKubeCluster(
            local_queue="team",
            priority_class="low",
            scheduler_priority_class="high",
            custom_cluster_spec=spec,
            namespace=dask_team.namespace,
            port_forward_cluster_ip=True,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(1, timeout=SECONDS)
        cluster.adapt(minimum=1, maximum=2)
        results: list[Future] = client.map(
            subprocess.check_output, [["sh", "-c", f"sleep 1; echo {n}"] for n in range(TASKS)]
        )

        def waiting() -> list[str]:
            return [log for log in map(str, cluster.get_logs().values()) if "Waiting for" in log]

        until(waiting)
        (reason,) = waiting()
        assert reason.startswith("Waiting for quota: cpu on processes: ")
        until(lambda: any(result.done() for result in results))

        with dask_team.occupied():
            until(lambda: len(waiting()) == 2)
            assert not all(result.done() for result in results)
        assert [int(text) for text in client.gather(results)] == list(range(TASKS))
