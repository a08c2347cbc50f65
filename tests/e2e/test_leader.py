"""Managers with leader election: who leads when one stops, dies, or loses the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from rest import Rest, eventually
from warm import Processes

from kueuelib.testing.processes import READY_SECONDS, LocalCluster, free_port

AWAY = "the API server has not answered for"
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


def probe(port: int, path: str) -> str:
    return httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=60).text


def start_server(cluster: LocalCluster) -> None:
    """Starts the API server, again with its state and at its address when it was there before."""
    data = cluster.processes.folder / "data"
    args = ["--port", "0", "--kubeconfig", str(cluster.kubeconfig), "--data-dir", str(data)]
    cluster.processes.start("apiserver", "apiserver", *args)


@pytest.fixture
def elected(tmp_path: Path) -> Iterator[LocalCluster]:
    with Processes(tmp_path) as processes:
        found = LocalCluster(processes)
        start_server(found)
        processes.wait_for_file(found.kubeconfig, "apiserver", READY_SECONDS)
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


def test_without_the_server_all_are_alive_but_not_ready_and_its_leader_comes_back_as_itself(
    elected: LocalCluster,
) -> None:
    """The server is away for longer than the renew deadline, and comes back with its state.

    The lease is too long to be waited for: who lost it has to know it as its own.
    """
    health = free_port()
    start_manager(elected, "first", free_port(), "3600s", health)
    elected.start_manager()  # without election
    with Rest(elected.kubeconfig) as rest:
        one = eventually(lambda: holder(rest))
        elected.processes.wait_for_url(f"http://127.0.0.1:{health}/readyz", "first")
        elected.wait_for_manager()
        elected.processes.kill("apiserver")
        log = elected.processes.folder / "first.log"
        eventually(lambda: "starting over as a candidate" in log.read_text())
        for port in (health, elected.health_port):
            eventually(lambda: AWAY in probe(port, "/readyz"))  # noqa: B023 - called at once
            assert probe(port, "/healthz") == "ok"
        start_server(elected)
        eventually(lambda: log.read_text().count("became leader") > 1)
        elected.processes.wait_for_url(f"http://127.0.0.1:{health}/readyz", "first")
        elected.wait_for_manager()
        assert holder(rest) == one
    assert elected.processes.stop("first") == 0
