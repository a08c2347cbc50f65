"""Two managers with leader election: one leads, the other follows at once when the first stops."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rest import Rest, eventually

from kueuelib.testing.processes import LocalCluster, Processes, free_port

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases"


def start_manager(cluster: LocalCluster, name: str, webhook_port: int) -> None:
    config = cluster.processes.folder / f"{name}.yaml"
    config.write_text(
        f"""
apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
health: {{healthProbeBindAddress: "127.0.0.1:{free_port()}"}}
metrics: {{bindAddress: "0"}}
webhook: {{host: 127.0.0.1, port: {webhook_port}}}
leaderElection: {{leaderElect: true, leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 500ms}}
"""
    )
    args = ["--kubeconfig", str(cluster.kubeconfig), "--config", str(config)]
    cluster.processes.start(name, "manager", *args)


def holder(rest: Rest) -> str:
    leases = rest.items(LEASES)
    return leases[0]["spec"].get("holderIdentity", "") if leases else ""


@pytest.fixture
def elected(tmp_path: Path) -> Iterator[LocalCluster]:
    with Processes(tmp_path) as processes:
        found = LocalCluster(processes)
        found.start_server()
        found.install()
        yield found


def test_a_leader_that_stops_lets_go_of_its_lease(elected: LocalCluster) -> None:
    with Rest(elected.kubeconfig) as rest:
        start_manager(elected, "first", elected.webhook_port)
        one = eventually(lambda: holder(rest))
        start_manager(elected, "second", free_port())
        assert elected.processes.stop("first") == 0
        log = elected.processes.folder / "first.log"
        assert "Traceback" not in log.read_text()
        two = eventually(lambda: (found := holder(rest)) != one and found)
        assert two != one


@pytest.mark.timeout(240)
def test_a_leader_that_loses_the_server_becomes_a_candidate_again(
    elected: LocalCluster, tmp_path: Path
) -> None:
    """The server is stopped for longer than the lease, and comes back with its state."""
    data = tmp_path / "data"
    elected.processes.stop("apiserver")
    elected.kubeconfig.unlink()
    port = free_port()
    args = ["--port", str(port), "--kubeconfig", str(elected.kubeconfig), "--data-dir", str(data)]
    elected.processes.start("apiserver", "apiserver", *args)
    elected.processes.wait_for_file(elected.kubeconfig, "apiserver", 30)
    shutil.copy(elected.kubeconfig, tmp_path / "copy")
    elected.install()
    start_manager(elected, "first", elected.webhook_port)
    with Rest(elected.kubeconfig) as rest:
        one = eventually(lambda: holder(rest))
        elected.processes.kill("apiserver")
        log = elected.processes.folder / "first.log"
        eventually(lambda: re.search("starting over as a candidate", log.read_text()), 60)
        elected.processes.start("apiserver", "apiserver", *args)
        again = eventually(lambda: (found := holder(rest)) != one and found, 90)
    assert again != one
    assert elected.processes.stop("first") == 0
