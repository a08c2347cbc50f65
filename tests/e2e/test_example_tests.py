"""The tests of the examples, each run in a folder of its own as a user runs them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted({path.parent for path in EXAMPLES.glob("*/test_*.py")})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_tests_of_an_example_pass(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / folder.name)
    (copy / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    command = [sys.executable, "-m", "pytest", "-q"]
    run = subprocess.run(command, check=False, cwd=copy, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_operator_of_teams_is_short() -> None:
    files = (EXAMPLES / "team_space").glob("*.py")
    assert sum(len(path.read_text().splitlines()) for path in files) < 110
