"""The log of a manager stays short while something fails again and again, and counts exactly."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from rest import JOBS, WORKLOADS, Rest, eventually, is_true, job, queues

from kueuelib.machinery.repetition import cause_of
from kueuelib.runtime.quiet import LEFT_OUT
from kueuelib.testing.processes import READY_SECONDS, LocalCluster, Processes, free_port

WORKLOAD_COUNT = 100
AWAY = 6.0
"""Seconds without an API server."""
ONE = ("key", "reconcile", "resource", "timestamp", "again")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Processes that Python starts and ends, so that the last counts are told."""
    with Processes(tmp_path) as processes:
        found = LocalCluster(processes, metrics_port=free_port(), options=("--log-format", "json"))
        start_server(found)
        processes.wait_for_file(found.kubeconfig, "apiserver", READY_SECONDS)
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


@pytest.mark.slow
def test_an_absent_api_server_is_a_few_lines_that_count_what_metrics_count(
    cluster: LocalCluster,
) -> None:
    processes, log = cluster.processes, cluster.processes.folder / "manager.log"
    with Rest(cluster.kubeconfig) as rest:
        for number in range(WORKLOAD_COUNT):
            rest.create(JOBS, job(f"train-{number}", seconds=1000))
        eventually(lambda: len(rest.items(WORKLOADS)) == WORKLOAD_COUNT)
        queues(rest, WORKLOAD_COUNT)
        eventually(lambda: any(is_true(wl, "Admitted") for wl in rest.items(WORKLOADS)), pause=0.0)
        processes.kill("apiserver")
        time.sleep(AWAY)
        start_server(cluster)
        eventually(
            lambda: sum(is_true(wl, "Admitted") for wl in rest.items(WORKLOADS)) == WORKLOAD_COUNT
        )
        errors = failed(rest.metrics(cluster.metrics_port))
    assert processes.stop("manager") == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    problems = [line for line in lines if line["level"] != "info" and "component" in line]
    told = Counter[str]()
    for line in problems:
        told[line["event"]] += 1 + line.get(LEFT_OUT, 0)
    print(f"{len(problems)} lines for {dict(told)}; {errors:g} failed reconciliations")
    assert told["reconciliation failed"] == errors
    assert errors > 10
    causes = len({cause_of(line, frozenset((*ONE, LEFT_OUT))) for line in problems})
    assert len(problems) <= 2 * causes < 60  # of each cause the first one, and the last count
