"""What an admission costs does not change unnoticed: calls, decisions, functions, never seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from expected_counts import moved, read

COUNTING = Path(__file__).with_name("counting.py")


@pytest.mark.slow
def test_an_admission_costs_what_it_is_expected_to_cost():
    """Also when a number fell: from a stale expectation it could grow again unnoticed."""
    command = [sys.executable, str(COUNTING)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    said = moved(read(), json.loads(done.stdout))
    if said:
        pytest.fail(said, pytrace=False)


def test_small_moves_are_allowed():
    assert moved({"calls": 2.0, "rare": 0.0}, {"calls": 2.09, "rare": 0.02}) == ""


def test_growth_is_named_with_both_numbers():
    said = moved({"calls": 2.0, "other": 1.0}, {"calls": 2.2, "other": 1.0})
    assert said.startswith("calls: grew from 2 to 2.2 per admission (+10%)\n")
    assert "--accept" in said
    assert "other" not in said


def test_a_fall_and_a_new_call_are_named():
    said = moved({"calls": 2.0}, {"calls": 1.0, "get jobs": 0.5})
    assert "calls: fell from 2 to 1 per admission (-50%)" in said
    assert "get jobs: grew from 0 to 0.5 per admission\n" in said
