"""The list of mutants fits the sources; whether tests kill them is seen by `nox -s mutants`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parent
ENGINE = HERE.parents[1] / "src" / "kueuelib" / "scheduler"
MUTANTS = yaml.safe_load((HERE / "mutants.yaml").read_text())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant["id"])
def test_every_mutant_changes_one_place_and_is_python(mutant: dict[str, str]) -> None:
    source = (ENGINE / mutant["file"]).read_text()
    assert source.count(mutant["old"]) == 1
    changed = source.replace(mutant["old"], mutant["new"])
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))


def test_mutants_have_names_of_their_own_and_are_many() -> None:
    names = [mutant["id"] for mutant in MUTANTS]
    assert len(names) == len(set(names))
    assert len(names) >= 20
