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

from kueuelib.testing.scenarios import run

HERE = Path(__file__).parent


def tables() -> list[Any]:
    return [
        pytest.param(scenario, id=f"{table.stem}: {scenario['given']}")
        for table in sorted(HERE.glob("*.yaml"))
        for scenario in yaml.safe_load(table.read_text())
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


def outcome(cycle: dict[str, Any], name: str, want: Any) -> Any:
    """What happened to a workload, in the words in which the table asks for it."""
    if "preempt" in want:
        victims = cycle["preempted"].items()
        return {"preempt": {key: one["reason"] for key, one in victims if one["by"] == name}}
    if name in cycle["pending"]:
        key = "skipped" if "skipped" in want else "pending"
        return {key: cycle["pending"][name]["class"]}
    if name not in cycle["admitted"]:
        return "not-head"
    pod_sets = list(cycle["admitted"][name].values())
    found: dict[str, Any] = {}
    if "admit" in want:
        flavors = [pod_set["flavors"] for pod_set in pod_sets]
        found["admit"] = flavors[0] if isinstance(want["admit"], dict) else flavors
    if "counts" in want:
        found["counts"] = [pod_set["count"] for pod_set in pod_sets]
    return found


def test_every_table_has_scenarios() -> None:
    assert {table.stem for table in HERE.glob("*.yaml")} >= {
        "cohorts",
        "flavors",
        "partial",
        "preemption",
    }
    assert len(tables()) > 80
