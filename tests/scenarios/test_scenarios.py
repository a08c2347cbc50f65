"""Small worlds and what one cycle makes of them; the tables lie beside this file.

A table is a list of scenarios in the form of `kueuelib.testing.scenarios`. `expect` says per
workload: `admit` (resource to flavor, or one such map per pod set), `counts` (pods per pod set),
`preempt` (its victims, each with the reason), `pending` or `skipped` (the class of its reason), or
`not-head`; `_order` is the order in which the heads were decided.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from outcomes import outcome

from kueuelib.testing.scenarios import run

HERE = Path(__file__).parent


def tables() -> list[Any]:
    return [
        pytest.param(scenario, id=f"{table.stem}: {scenario['given']}")
        for table in sorted(HERE.glob("*.yaml"))
        for scenario in yaml.load(table.read_text(), yaml.CSafeLoader)
    ]


@pytest.mark.parametrize("scenario", tables())
def test_one_cycle_decides_as_the_table_says(scenario: dict[str, Any]) -> None:
    (cycle,) = run(scenario)["cycles"]
    assert {name: outcome(cycle, name, want) for name, want in wanted(scenario)} == dict(
        wanted(scenario)
    )
    if "_order" in scenario["expect"]:
        assert [entry["name"] for entry in cycle["entries"]] == scenario["expect"]["_order"]


def wanted(scenario: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, want) for name, want in scenario["expect"].items() if name != "_order"]


def test_every_table_has_scenarios() -> None:
    assert {table.stem for table in HERE.glob("*.yaml")} >= {
        "cohorts",
        "fair",
        "flavors",
        "partial",
        "preemption",
        "trees",
    }
    assert len(tables()) > 80
