"""The lists of mutants fit the sources; whether tests and storms find them is seen by
`nox -s mutants storm-mutants`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from run_mutants import Mutant, mutants
from shell_mutants import SOURCES, ShellMutant, shell_mutants

from kueuelib.testing.storm.profiles import PROFILES

SHELL_MUTANTS = shell_mutants()
MUTANTS = mutants()
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_every_mutant_changes_one_place_and_is_python(mutant: Mutant) -> None:
    source = (SOURCES / mutant.path).read_text()
    assert source.count(mutant.old) == 1
    changed = source.replace(mutant.old, mutant.new)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))


@pytest.mark.parametrize("test", sorted({mutant.test for mutant in MUTANTS} - {""}))
def test_what_finds_a_mutant_exists(test: str) -> None:
    named = re.fullmatch(r"(.+)::(\w+)(?:\[(.+)\])?", test)
    assert named is not None
    path, function, scenario = named.groups()
    tests = TESTS / path
    assert f"def {function}(" in tests.read_text()
    if scenario is not None:
        table, _, given = scenario.partition(": ")
        assert f"- given: {given}\n" in (tests.parent / f"{table}.yaml").read_text()


def test_mutants_have_names_of_their_own_and_are_many() -> None:
    names = [mutant.id for mutant in MUTANTS]
    assert len(names) == len(set(names))
    assert len(names) >= 20


@pytest.mark.parametrize("mutant", SHELL_MUTANTS, ids=lambda mutant: mutant.id)
def test_every_fault_of_the_shell_changes_what_is_there_once_and_is_python(
    mutant: ShellMutant,
) -> None:
    for edit in mutant.edits:
        source = (SOURCES / edit.file).read_text()
        assert source.count(edit.old) == 1, edit
        changed = source.replace(edit.old, edit.new)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
    assert mutant.profile in PROFILES
    assert mutant.why


def test_faults_of_the_shell_have_names_of_their_own_and_are_many() -> None:
    names = {mutant.id for mutant in SHELL_MUTANTS}
    assert len(names) == len(SHELL_MUTANTS)
    assert len(names) >= 25
