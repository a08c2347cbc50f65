"""Managers with leader election: who leads when one stops, dies, or loses the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from rest import Rest, eventually

from kueuelib.testing.processes import LocalCluster, Processes, free_port

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases"


def start_manager(
    cluster: LocalCluster, name: str, webhook_port: int, lease: str = "6s", health: int = 0
) -> None:
    config = cluster.processes.folder / f"{name}.yaml"
    config.write_text(
        f"""
apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
health: {{healthProbeBindAddress: "127.0.0.1:{health or free_port()}"}}
metrics: {{bindAddress: "0"}}
webhook: {{host: 127.0.0.1, port: {webhook_port}}}
leaderElection: {{leaderElect: true, leaseDuration: {lease}, renewDeadline: 4s, retryPeriod: 500ms}}
"""
    )
    args = ["--kubeconfig", str(cluster.kubeconfig), "--config", str(config)]
    cluster.processes.start(name, "manager", *args)


def holder(rest: Rest) -> str:
    leases = rest.items(LEASES)
    return leases[0]["spec"].get("holderIdentity", "") if leases else ""


def ready(cluster: LocalCluster, path: str = "/readyz") -> str:
    return httpx.get(f"http://127.0.0.1:{cluster.health_port}{path}", trust_env=False).text


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


def test_when_a_leader_dies_another_one_takes_its_lease(elected: LocalCluster) -> None:
    with Rest(elected.kubeconfig) as rest:
        start_manager(elected, "first", elected.webhook_port)
        one = eventually(lambda: holder(rest))
        start_manager(elected, "second", free_port())
        log = elected.processes.folder / "second.log"
        eventually(lambda: "leader changed" in log.read_text())  # it observes the first one
        elected.processes.kill("first")
        eventually(lambda: holder(rest) not in ("", one))


def test_a_leader_that_loses_the_server_takes_its_own_lease_again(
    elected: LocalCluster, tmp_path: Path
) -> None:
    """The server is away for longer than the renew deadline, and comes back with its state.

    The lease is too long to be waited for.
    """
    data = tmp_path / "data"
    elected.processes.stop("apiserver")
    elected.kubeconfig.unlink()
    args = ["--kubeconfig", str(elected.kubeconfig), "--data-dir", str(data)]
    args = ["apiserver", "--port", str(free_port()), *args]
    elected.processes.start("apiserver", *args)
    elected.processes.wait_for_file(elected.kubeconfig, "apiserver", 60)
    elected.install()
    start_manager(elected, "first", elected.webhook_port, "3600s", elected.health_port)
    with Rest(elected.kubeconfig) as rest:
        one = eventually(lambda: holder(rest))
        elected.wait_for_manager()
        elected.processes.kill("apiserver")
        log = elected.processes.folder / "first.log"
        eventually(lambda: "starting over as a candidate" in log.read_text())
        eventually(lambda: "the API server has not answered for" in ready(elected))
        assert "ok" in ready(elected, "/healthz")
        elected.processes.start("apiserver", *args)
        eventually(lambda: log.read_text().count("became leader") == 2)
        elected.wait_for_manager()
        assert holder(rest) == one
    assert elected.processes.stop("first") == 0


def test_a_manager_without_its_server_is_alive_but_not_ready(elected: LocalCluster) -> None:
    elected.start_manager()
    elected.wait_for_manager()
    elected.processes.kill("apiserver")
    eventually(lambda: "the API server has not answered for" in ready(elected))
    assert ready(elected, "/healthz") == "ok"
