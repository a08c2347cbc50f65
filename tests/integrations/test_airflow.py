"""Airflow's operators in a queue; the tasks run in `dag.test()`.

Pods are simulated, but for the last tests, where they are processes of a node.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from shutil import copy

import pytest

pytest.importorskip("airflow", reason="not installed; nox -s integrations installs it")

from team import Looks, Team

DAG = Path(__file__).parent / "airflow_dag.py"
LONGER = 50
"""Seconds in the queue, with start timeouts of 5."""


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an Airflow with an empty database."""
    folder = tmp_path_factory.mktemp("airflow")
    (folder / "dags").mkdir()
    copy(DAG, folder / "dags")
    env = {
        **os.environ,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
    }
    subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"], env=env, check=True, timeout=300
    )
    return env


def run(team: Team, home: dict[str, str], dag: str) -> subprocess.Popen[str]:
    """Plays a DAG once."""
    return subprocess.Popen(
        [sys.executable, "-m", "airflow", "dags", "test", dag],
        env={**home, "KUBECONFIG": team.kubeconfig, "TEAM": team.namespace},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_log_of_an_unmodified_operator_has_the_reason(team: Team, home: dict[str, str]) -> None:
    with run(team, home, "unmodified") as process:
        assert process.stdout is not None
        lines = []
        with team.occupied():
            for line in process.stdout:
                lines.append(line)
                if "The Pod has an Event: Waiting for quota: cpu on local: 1 more needed" in line:
                    break
        lines += process.stdout
    assert "state=success" in "".join(lines), lines


@pytest.mark.parametrize("kind", ["pod", "deferred", "job"])
def test_a_task_waits_is_preempted_and_succeeds(
    team: Team, home: dict[str, str], kind: str
) -> None:
    lines = list[str]()
    with run(team, home, kind) as process:
        assert process.stdout is not None
        reading = threading.Thread(target=lines.extend, args=(process.stdout,))
        reading.start()
        with team.occupied():
            looks = Looks.at(team, f"Airflow, {kind}", lambda: (lines or [""])[-1], LONGER)
        team.wait_for_admission()
        with team.occupied():
            pass
        reading.join()
    output = "".join(lines)
    assert looks.lapses == 0, looks
    assert "state=success" in output, output
    if kind != "job":
        assert "Submitting it again" in output, output
        assert "NotFoundException" not in output


def test_the_log_of_a_task_has_the_lines_of_its_pod_before_and_after_a_preemption(
    real_team: Team, home: dict[str, str]
) -> None:
    lines = []
    with run(real_team, home, "real") as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "[base] line 2" in line:
                break
        with real_team.occupied():
            for line in process.stdout:
                lines.append(line)
                if "Waiting for quota: " in line:
                    break
        lines += process.stdout
    output = "".join(lines)
    assert "state=success" in output, output
    assert sum("[base] line 0" in line for line in lines) == 2, output
    assert sum("[base] line 9" in line for line in lines) == 1, output


def test_an_exit_code_of_a_pod_skips_its_task(real_team: Team, home: dict[str, str]) -> None:
    with run(real_team, home, "skip") as process:
        output, _ = process.communicate(timeout=120)
    assert "exit code 3" in output, output
    assert "new_state=skipped" in output, output
