"""Upstream's benchmark at a fiftieth of its size: `python -m tests.bench.baseline` plays more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from baseline import table
from baseline.flows import FLOWS
from baseline.managers import OWN, Options, parse
from baseline.parts import Patience
from baseline.playing import Upstream
from baseline.run import measure
from baseline.servers import default_server
from baseline.shape import BASELINE

WORKLOADS = 300
DEADLINE = 600.0


@pytest.mark.timeout(DEADLINE)
def test_the_baseline(tmp_path: Path) -> None:
    shape = BASELINE.scaled(WORKLOADS)
    patience = Patience(limit=DEADLINE / 2)
    work = tmp_path / "baseline"
    result = measure(parse(OWN), default_server(), Upstream(shape), Options(), work, patience)
    sys.stdout.write(f"\nbaseline: {table.line(result)}\n")
    sys.stdout.write(f"{table.comparison([result])}\n\n{table.calls([result])}\n")
    assert result.objects == shape.total
    assert not result.left


@pytest.mark.timeout(DEADLINE)
@pytest.mark.parametrize("name", FLOWS)
def test_a_flow(name: str, tmp_path: Path) -> None:
    patience = Patience(limit=DEADLINE / 2)
    flow = FLOWS[name].scaled(WORKLOADS)
    options = Options(qps=500)
    result = measure(parse(OWN), default_server(), flow, options, tmp_path / name, patience)
    sys.stdout.write(f"\n{name}: {table.line(result)}\n{table.calls([result])}\n")
    assert result.objects == WORKLOADS
    assert not result.left
