"""The log of a manager stays short while something fails again and again, and counts exactly."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rest import JOBS, WORKLOADS, Rest, eventually, is_true, job, queues

from kueuelib.machinery.recurrence import cause_of
from kueuelib.runtime.logs import LEFT_OUT
from kueuelib.testing import processes
from kueuelib.testing.processes import READY_SECONDS, LocalCluster, Processes, free_port

WORKLOAD_COUNT = 100
AWAY = 6.0
"""Seconds without an API server."""
PAUSED = 12.0
"""Seconds without a processor: longer than the renew deadline."""
ONE = ("key", "reconcile", "resource", "timestamp", "again")


ELECTION = 'leaderElect: true, leaseDuration: "15s", renewDeadline: "10s", retryPeriod: "500ms"'
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases/c1f6bfd2.kueue.x-k8s.io"


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Processes that Python starts and ends, so that the last counts are told."""
    with pytest.MonkeyPatch.context() as patch, Processes(tmp_path) as started:
        if getattr(request, "param", False):
            config = processes.CONFIG.replace("leaderElect: false", ELECTION)
            patch.setattr(processes, "CONFIG", config)
        found = LocalCluster(started, metrics_port=free_port(), options=("--log-format", "json"))
        start_server(found)
        started.wait_for_file(found.kubeconfig, "apiserver", READY_SECONDS)
        found.install()
        found.start_manager()
        found.wait_for_manager()
        yield found


def start_server(cluster: LocalCluster) -> None:
    """Starts the API server, again with its state and at its address when it was there before."""
    data = cluster.processes.folder / "data"
    args = ["--port", "0", "--kubeconfig", str(cluster.kubeconfig), "--data-dir", str(data)]
    cluster.processes.start("apiserver", "apiserver", *args, "--simulate")


def failed(metrics: str) -> float:
    return sum(
        float(value)
        for value in re.findall(
            r"^controller_runtime_reconcile_errors_total\{.*\} (\S+)$", metrics, re.MULTILINE
        )
    )


def submit(rest: Rest) -> None:
    """Jobs that all wait, and then all have quota; returns when the first one is admitted."""
    for number in range(WORKLOAD_COUNT):
        rest.create(JOBS, job(f"train-{number}", seconds=1000))
    eventually(lambda: len(rest.items(WORKLOADS)) == WORKLOAD_COUNT)
    queues(rest, WORKLOAD_COUNT)
    eventually(lambda: admitted(rest) > 0, pause=0.0)


def admitted(rest: Rest) -> int:
    return sum(is_true(wl, "Admitted") for wl in rest.items(WORKLOADS))


def problems(cluster: LocalCluster) -> tuple[list[dict], Counter[str]]:
    """The lines about problems, and how many problems they stand for, once the manager has ended.

    There are two lines for each cause: the first one, and the one with the last count.
    """
    assert cluster.processes.stop("manager") == 0
    text = (cluster.processes.folder / "manager.log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    found = [line for line in lines if line["level"] != "info" and "component" in line]
    told = Counter[str]()
    for line in found:
        told[line["event"]] += 1 + line.get(LEFT_OUT, 0)
    print(f"{len(found)} lines for {dict(told)}")
    causes = {cause_of(line, frozenset((*ONE, LEFT_OUT))) for line in found}
    assert len(found) <= 2 * len(causes) < 60
    return found, told


@pytest.mark.slow
def test_an_absent_api_server_is_a_few_lines_that_count_what_metrics_count(
    cluster: LocalCluster,
) -> None:
    with Rest(cluster.kubeconfig) as rest:
        submit(rest)
        cluster.processes.kill("apiserver")
        time.sleep(AWAY)
        start_server(cluster)
        eventually(lambda: admitted(rest) == WORKLOAD_COUNT)
        errors = failed(rest.metrics(cluster.metrics_port))
    _, told = problems(cluster)
    assert told["reconciliation failed"] == errors
    assert errors > WORKLOAD_COUNT


@pytest.mark.slow
def test_a_webhook_that_fails_is_a_few_lines(cluster: LocalCluster) -> None:
    """Somebody's webhook refuses all Workloads for a while, because nobody answers."""
    hook = {
        "name": "theirs.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{free_port()}/x"},
        "rules": [
            {
                "apiGroups": ["kueue.x-k8s.io"],
                "apiVersions": ["*"],
                "resources": ["workloads", "workloads/status"],
                "operations": ["*"],
            }
        ],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    head = {"apiVersion": "admissionregistration.k8s.io/v1"}
    theirs = {**head, "kind": "ValidatingWebhookConfiguration", "webhooks": [hook]}
    with Rest(cluster.kubeconfig) as rest:
        queues(rest, WORKLOAD_COUNT)
        rest.create(path, {**theirs, "metadata": {"name": "theirs"}})
        for number in range(WORKLOAD_COUNT):
            rest.create(JOBS, job(f"train-{number}", seconds=1000))
        eventually(lambda: failed(rest.metrics(cluster.metrics_port)) > WORKLOAD_COUNT)
        rest.delete(f"{path}/theirs")
        eventually(lambda: admitted(rest) == WORKLOAD_COUNT)
        errors = failed(rest.metrics(cluster.metrics_port))
    lines, told = problems(cluster)
    assert told["reconciliation failed"] == errors
    assert errors > WORKLOAD_COUNT
    assert any("theirs.example.com" in line.get("error", "") for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [True], ids=["elected"], indirect=True)
def test_a_leader_that_was_paused_is_a_few_lines_when_it_goes_on(cluster: LocalCluster) -> None:
    """Meanwhile another one has the lease, so that nothing that waits can be written."""
    log = cluster.processes.folder / "manager.log"
    with Rest(cluster.kubeconfig) as rest:
        eventually(lambda: "became leader" in log.read_text())
        submit(rest)
        os.kill(cluster.processes.pid("manager"), signal.SIGSTOP)
        taken = {"holderIdentity": "another", "leaseDurationSeconds": 3600}
        rest.merge(LEASE, {"spec": {**taken, "renewTime": now()}})
        time.sleep(PAUSED)
        os.kill(cluster.processes.pid("manager"), signal.SIGCONT)
        eventually(lambda: "starting over as a candidate" in log.read_text())
        rest.merge(LEASE, {"spec": {"holderIdentity": ""}})
        eventually(lambda: admitted(rest) == WORKLOAD_COUNT)
    _, told = problems(cluster)
    assert told["leadership lost"] == 1


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
