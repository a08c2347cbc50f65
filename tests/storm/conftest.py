"""Runs programs that simulate: these need a process for themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def _simulate(file, names, seed=0, disorder=0.0, hash_seed=0):
    command = [sys.executable, str(Path(__file__).with_name(file))]
    done = subprocess.run(
        [*command, ",".join(names), str(seed), str(disorder)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def simulate():
    """What programs found, by name."""
    return _simulate
