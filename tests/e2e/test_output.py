"""What a command does when its output has no place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason=f"needs {FULL}")
@pytest.mark.parametrize("command", [["crds"], ["install", "--print"], ["--help"]])
def test_a_full_disk_is_one_line(command: list[str]) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kueuelib", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 1
    said = "kueuelib: the output cannot be written: No space left on device"
    assert done.stderr.splitlines() == [said]
