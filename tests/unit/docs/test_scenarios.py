"""Every acceptance scenario of jobs has a test that plays it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

TESTS = Path(__file__).parents[2]
TABLE = yaml.load((TESTS / "e2e/scenarios.yaml").read_text(), yaml.CSafeLoader)
NUMBERS = [*range(1, 91), 104, 105, 106, 108]
"""Those of jobs, pods, groups and the life of their Workloads (some of 7.6)."""


@pytest.mark.parametrize("number", NUMBERS)
def test_a_scenario_is_played(number: int) -> None:
    assert TABLE.get(number), f"nobody plays scenario {number}"


@pytest.mark.parametrize("number", TABLE)
def test_the_table_names_tests_that_exist(number: int) -> None:
    for entry in TABLE[number]:
        path, _, name = entry.partition("::")
        assert name.startswith("test_"), entry
        tree = ast.parse((TESTS / path).read_text())
        found = {node.name for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)}
        assert name in found, f"{path} has no {name}"


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
