"""The lists of mutants fit the sources; whether tests and storms find them is seen by
`nox -s mutants storm-mutants`."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from drawn import SHELL, drawn, equivalents, probed
from run_mutants import mutants
from shell_mutants import SOURCES, shell_mutants

from kueuelib.testing.storm.profiles import PROFILES

SHELL_MUTANTS = shell_mutants()
MUTANTS = mutants()
TESTS = Path(__file__).parents[1]


@cache
def source_of(path: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """A module, and where each of its statements begins and ends."""
    source = (SOURCES / path).read_text()
    starts = [0]
    for line in source.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    places = []
    for node in ast.parse(source).body:
        decorators = getattr(node, "decorator_list", [])
        first = min(each.lineno for each in (*decorators, node))
        places.append((starts[first - 1], starts[node.end_lineno or first]))
    return source, tuple(places)


@cache
def meaning(source: str) -> str:
    """The same for sources that differ in their form only."""
    return ast.dump(ast.parse(source))


def fits(path: str, old: str, new: str) -> bool:
    """Whether a fault changes one place, and what that means.

    The rest of the module stays: only the statement around the place is read.
    """
    source, places = source_of(path)
    if source.count(old) != 1:
        return False
    begin = source.index(old)
    end = begin + len(old)
    whole = (0, len(source))
    first, last = next((each for each in places if each[0] <= begin and end <= each[1]), whole)
    changed = source[first:begin] + new + source[end:last]
    return meaning(source[first:last]) != ast.dump(ast.parse(changed))


def test_every_mutant_changes_one_place_and_is_python() -> None:
    misfits = [one.id for one in MUTANTS if not fits(one.path, one.old, one.new)]
    assert misfits == []


def test_what_finds_a_mutant_exists() -> None:
    for test in sorted({mutant.test for mutant in MUTANTS} - {""}):
        named = re.fullmatch(r"(.+)::(\w+)(?:\[(.+)\])?", test)
        assert named is not None, test
        path, function, scenario = named.groups()
        tests = TESTS / path
        assert f"def {function}(" in tests.read_text(), test
        if scenario is not None:
            table, _, given = scenario.partition(": ")
            assert f"- given: {given}\n" in (tests.parent / f"{table}.yaml").read_text(), test


def test_mutants_have_names_of_their_own_and_are_many() -> None:
    names = [mutant.id for mutant in MUTANTS]
    assert len(names) == len(set(names))
    assert len(names) >= 20


def test_every_fault_of_the_shell_changes_what_is_there_once_and_is_python() -> None:
    for mutant in SHELL_MUTANTS:
        for edit in mutant.edits:
            assert fits(edit.file, edit.old, edit.new), f"{mutant.id}: {edit}"
        assert mutant.profile in PROFILES, mutant.id
        assert mutant.why, mutant.id


def test_drawn_faults_are_python_and_the_first_of_more() -> None:
    found = drawn(200, 1)
    assert len({one.id for one in found}) == 200
    assert {one.id.split(":")[2] for one in found} == {
        "await-is-dropped",
        "call-is-dropped",
        "nothing-is-remembered",
        "condition-is-negated",
        "arguments-are-swapped",
    }
    for one in found:
        (edit,) = one.edits
        assert fits(edit.file, edit.old, edit.new), one.id
    assert drawn(40, 1) == found[:40]


def test_what_is_argued_about_is_there() -> None:
    every = {one.id for one in drawn(10_000, 1)}
    assert equivalents().keys() <= every


def test_probes_stand_at_the_places_of_faults() -> None:
    """They are called before the code of the place, which does the same as without them."""
    every = drawn(10_000, 1)
    for path in SHELL:
        seen: list[int] = []
        tree = ast.parse(probed(path, every))
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id="_probe"), args=[ast.Constant(value=int(number))]):
                    seen.append(number)
        assert sorted(seen) == [n for n, one in enumerate(every) if one.edits[0].file == path]


def test_faults_of_the_shell_have_names_of_their_own_and_are_many() -> None:
    names = {mutant.id for mutant in SHELL_MUTANTS}
    assert len(names) == len(SHELL_MUTANTS)
    assert len(names) >= 25
