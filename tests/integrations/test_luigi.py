"""Unmodified Luigi in a queue; the pods of its Jobs are processes of a node."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("luigi", reason="luigi is not installed; nox -s integrations installs it")

from team import Team

TASKS = Path(__file__).with_name("luigi_tasks.py")


def test_both_tasks_finish_although_the_first_is_preempted(real_team: Team, tmp_path: Path) -> None:
    own = {"KUBECONFIG": real_team.kubeconfig, "TEAM": real_team.namespace, "OUTPUT": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, str(TASKS)],
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        real_team.wait_for_admission()
        with real_team.occupied():
            pass
        output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert {each.name for each in tmp_path.iterdir()} == {"1", "2"}
    assert all(f"{number} is done" in output for number in (1, 2)), output
