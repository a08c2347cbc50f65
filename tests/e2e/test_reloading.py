"""A running manager whose configuration file changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rest import JOBS, WORKLOADS, Rest, eventually, is_true, job, queues
from warm import Processes, kueuelib

from kueuelib.testing.processes import LocalCluster, free_port


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with Processes(tmp_path) as processes:
        found = LocalCluster(processes, metrics_port=free_port())
        found.start()
        yield found


@pytest.mark.slow
def test_retention_and_metrics_change_and_what_needs_a_restart_is_told(
    cluster: LocalCluster, rest: Rest
) -> None:
    def metrics(name: str) -> list[str]:
        text = rest.metrics(cluster.metrics_port)
        return [line for line in text.splitlines() if line.startswith(name)]

    queues(rest, cpu=1)
    rest.create(JOBS, job("short", seconds=0.1))
    eventually(lambda: [is_true(one, "Finished") for one in rest.items(WORKLOADS)] == [True])
    counted = 'kueue_local_queue_admitted_workloads_total{name="team",namespace="default"'
    assert metrics(counted)

    path = cluster.processes.folder / "config.yaml"
    before = path.read_text()
    path.write_text(before + "objectRetentionPolicies: {workloads: {afterFinished: 1s}}\nx: 1\n")
    log = cluster.processes.folder / "manager.log"
    eventually(lambda: "unknown key x" in log.read_text())
    assert len(rest.items(WORKLOADS)) == 1

    changed = before.replace("metrics: {", "metrics: {localQueueMetrics: {enable: false}, ")
    path.write_text(
        changed
        + "objectRetentionPolicies: {workloads: {afterFinished: 1s}}\n"
        + "manageJobsWithoutQueueName: true\n"
    )
    eventually(lambda: not rest.items(WORKLOADS))
    eventually(lambda: not metrics("kueue_local_queue_admitted_workloads_total{"))
    (line,) = metrics("kueuelib_configuration_restart_needed{")
    assert 'key="manageJobsWithoutQueueName"' in line
    assert "a restart is needed" in log.read_text()


def test_doctor_names_the_keys_that_need_a_restart_until_there_was_one(
    tmp_path: Path, *, elects: bool
) -> None:
    with Processes(tmp_path) as started:
        cluster = LocalCluster(started)
        cluster.start()
        path = tmp_path / "config.yaml"

        def problems() -> list[str]:
            args = ("-o", "json", "--kubeconfig", cluster.kubeconfig, "--config", path)
            found = json.loads(kueuelib("doctor", *args).stdout)["findings"]
            return [one["problem"] for one in found if one["check"] == "restart-needed"]

        log = tmp_path / "manager.log"
        eventually(lambda: not elects or "became leader" in log.read_text())
        assert problems() == []
        path.write_text(path.read_text() + "manageJobsWithoutQueueName: true\n")
        eventually(problems)
        (problem,) = problems()
        who = "leads" if elects else "the manager runs"
        assert f"{who} with old values of manageJobsWithoutQueueName: " in problem
        started.stop("manager")
        cluster.settings = "manageJobsWithoutQueueName: true"
        cluster.start_manager()
        cluster.wait_for_manager()
        eventually(lambda: not problems())
