"""Dagster's daemon and run workers, which are processes of a node and share a folder with it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("dagster_k8s", reason="nox -s integrations installs it")

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus
from team import Team

from kueuelib.testing.processes import LocalCluster, stop_process

JOBS = Path(__file__).with_name("dagster_jobs.py")
SECONDS = 240
FINISHED = {DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED}


@pytest.fixture
def home(real_team: Team, shared: Path) -> Path:
    """The folder of an instance; the daemon and the run workers keep runs and events there."""
    real_team.claim()
    folder = shared / real_team.namespace
    folder.mkdir()
    claim = {"name": "home", "persistent_volume_claim": {"claim_name": "shared"}}
    config: dict[str, Any] = {
        "local_queue": "team",
        "labels": {"kueue.x-k8s.io/priority-class": "low"},
        "service_account_name": "default",
        "instance_config_map": "unused",
        "dagster_home": str(folder),
        "job_image": "local",
        "job_namespace": real_team.namespace,
        "load_incluster_config": False,
        "kubeconfig_file": real_team.kubeconfig,
        "resources": {"requests": {"cpu": "1"}},
        "volumes": [claim],
        "volume_mounts": [{"name": "home", "mount_path": str(shared)}],
    }
    launcher = {"module": "kueuelib.integrations.dagster", "class": "QueuedK8sRunLauncher"}
    settings = {
        "run_launcher": {**launcher, "config": config},
        "run_retries": {"enabled": True, "max_retries": 2},
        "run_monitoring": {"enabled": True, "start_timeout_seconds": 180},
        "telemetry": {"enabled": False},
    }
    (folder / "dagster.yaml").write_text(yaml.safe_dump(settings))
    return folder


@contextmanager
def daemon(home: Path) -> Iterator[None]:
    """What launches queued runs, watches them and tries failed ones again."""
    command = [sys.executable, "-m", "dagster._daemon", "run", "-f", str(JOBS)]
    env = {**os.environ, "DAGSTER_HOME": str(home)}
    with (home / "daemon.log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        yield
    finally:
        stop_process(process)


def test_both_runs_succeed_although_the_first_is_preempted_and_the_manager_killed(
    cluster: LocalCluster, real_team: Team, home: Path
) -> None:
    with DagsterInstance.from_config(str(home)) as instance, daemon(home):
        launch = [sys.executable, "-m", "dagster", "job", "launch", "-f", str(JOBS), "-j", "work"]
        for _ in range(2):
            subprocess.run(launch, env={**os.environ, "DAGSTER_HOME": str(home)}, check=True)

        def until(status: DagsterRunStatus, count: int = 1) -> list[DagsterRun]:
            deadline = time.monotonic() + SECONDS
            while True:
                runs = list(instance.get_runs())
                found = [each for each in runs if each.status is status]
                if len(found) >= count:
                    return found
                assert len(runs) <= 3, (runs, (home / "daemon.log").read_text())
                assert time.monotonic() < deadline, (runs, (home / "daemon.log").read_text())
                time.sleep(0.5)

        def until_said(run: DagsterRun, reason: str) -> None:
            deadline = time.monotonic() + SECONDS
            while True:
                texts = [one.user_message or one.message for one in instance.all_logs(run.run_id)]
                if any(reason in text for text in texts):
                    return
                assert time.monotonic() < deadline, texts
                time.sleep(0.5)

        (first,) = until(DagsterRunStatus.STARTED)
        (second,) = (each for each in instance.get_runs() if each.run_id != first.run_id)
        with real_team.occupied():
            cluster.processes.kill("manager")
            cluster.start_manager()
            cluster.wait_for_manager()
            (failed,) = until(DagsterRunStatus.FAILURE)
            assert failed.run_id == first.run_id
            for waiting in until(DagsterRunStatus.STARTING, 2):
                until_said(waiting, "Waiting for quota: cpu on processes")
        succeeded = until(DagsterRunStatus.SUCCESS, 2)
        assert {each.parent_run_id for each in succeeded} == {None, first.run_id}
        assert second.run_id in {each.run_id for each in succeeded}
