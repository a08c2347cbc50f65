"""A quarter of a day of a busy cluster leaves nothing behind, and every counter counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("soak.py")
DEADLINE = 1800.0
"""Seconds: only ends a test that hangs."""


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE)
def test_three_hours_leave_nothing_behind() -> None:
    """A queue comes and goes, a node fails, the server loses its history, a leader is replaced."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--days", "1", "--hours", "3"],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    day, counters = map(json.loads, done.stdout.splitlines())
    assert day["wrong"] == []
    assert day["finished"] > 20
    assert day["objects"]["workloads.kueue.x-k8s.io"] < 20
    assert counters["kueue_evicted_workloads_total"] > 0
