"""Storms of the default run: every law holds, and each seed has one history.

`STORM_SEEDS=FIRST:LAST` chooses other seeds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from kueuelib.testing.storm.campaign import DEFAULT_RUN, MIXED

FIRST, LAST = map(int, os.environ.get("STORM_SEEDS", f"1:{DEFAULT_RUN[MIXED]}").split(":"))
CHUNK = 25
"""Seeds of one test: the processes of a parallel run share them."""
RANGES = [f"{first}:{min(first + CHUNK - 1, LAST)}" for first in range(FIRST, LAST + 1, CHUNK)]
APART = [(profile, f"1:{last}") for profile, last in DEFAULT_RUN.items() if profile != MIXED]
"""Seeds of profiles that a mixed campaign does not play."""
FAULTS = 75
"""Faults per seed that a chunk has at least; the mean of many seeds is above 100."""
DEADLINE = 3600.0
"""Seconds: only ends a test that hangs."""


def storms(*args: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kueuelib.testing.storm", *args],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE)
@pytest.mark.parametrize(
    ("profile", "seeds"),
    [*((MIXED, seeds) for seeds in RANGES), *APART],
)
def test_no_law_is_broken(profile: str, seeds: str) -> None:
    done = storms("--seeds", seeds, "--workers", "1", "--profile", profile)
    last = done.stdout.splitlines()[-1] if done.stdout else done.stderr
    found = re.fullmatch(r"(\d+) seeds, (\d+) faults, 0 violations", last)
    assert found, done.stdout + done.stderr
    assert done.returncode == 0
    count, faults = map(int, found.groups())
    assert faults >= FAULTS * count or count < CHUNK


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE)
def test_a_seed_has_one_history_at_any_hash_seed_and_on_any_worker() -> None:
    args = ("--seeds", "1:3", "--traces")
    first = storms(*args, hash_seed="1")
    second = storms(*args, "--workers", "1", hash_seed="2")
    assert first.stdout == second.stdout
    assert len(set(re.findall(r"trace ([0-9a-f]{32})", first.stdout))) == 3
