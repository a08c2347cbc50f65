"""Upstream's benchmark at a fiftieth of its size: `python -m tests.bench.baseline` plays more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from baseline import table
from baseline.managers import OWN, Options, parse
from baseline.run import Patience, measure
from baseline.servers import default_server
from baseline.shape import BASELINE

WORKLOADS = 300
DEADLINE = 600.0


@pytest.mark.timeout(DEADLINE)
def test_the_baseline(tmp_path: Path) -> None:
    shape = BASELINE.scaled(WORKLOADS)
    patience = Patience(limit=DEADLINE / 2)
    work = tmp_path / "baseline"
    result = measure(parse(OWN), default_server(), shape, Options(), work, patience)
    sys.stdout.write(f"\nbaseline: {table.line(result)}\n")
    sys.stdout.write(f"{table.comparison([result])}\n\n{table.calls([result])}\n")
    assert result.workloads == shape.total
    assert not result.left
