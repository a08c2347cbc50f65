"""Every law of the decision engine has a property that is tried on random worlds."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

PROPERTIES = Path(__file__).parents[2] / "properties"
LAWS = yaml.load((PROPERTIES / "LAWS.yaml").read_text(), yaml.CSafeLoader)
ENGINE = ("test_scheduler_", "test_rounds", "test_explain", "test_fair_sharing")


def properties(path: Path) -> dict[str, bool]:
    """What the table may name in a file, and whether random worlds are drawn for it."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = any("given" in ast.unparse(one) for one in node.decorator_list)
        elif isinstance(node, ast.ClassDef):
            machine = any("RuleBasedStateMachine" in ast.unparse(base) for base in node.bases)
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    found[f"{node.name}.{method.name}"] = machine
    return found


@pytest.mark.parametrize("law", LAWS)
def test_a_law_names_properties_that_exist(law: str) -> None:
    assert LAWS[law], law
    for entry in LAWS[law]:
        path, _, name = entry.partition("::")
        found = properties(PROPERTIES / path)
        assert name in found, f"{path} has no {name}"
        assert found[name], f"{entry} is tried on no random worlds"


def test_there_are_at_least_fifteen_laws() -> None:
    assert len(LAWS) >= 15


def test_every_property_of_the_engine_belongs_to_a_law() -> None:
    named = {entry for entries in LAWS.values() for entry in entries}
    missing = [
        f"{path.name}::{name}"
        for path in sorted(PROPERTIES.glob("test_*.py"))
        if path.name.startswith(ENGINE)
        for name, random in properties(path).items()
        if random and name.startswith("test_") and f"{path.name}::{name}" not in named
    ]
    assert missing == []


def test_what_a_state_machine_is_said_to_check_is_called() -> None:
    tree = (PROPERTIES / "test_scheduler_histories.py").read_text()
    named = {entry.rpartition(".")[2] for entries in LAWS.values() for entry in entries}
    checks = {method for method in named if method.startswith("check_")}
    assert checks
    for method in checks:
        assert f"self.{method}(" in tree, f"nobody calls {method}"
