"""The page about storms lists what there is."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

from kueuelib.testing.hostile import trial
from kueuelib.testing.storm.faults import CATALOGUE
from kueuelib.testing.storm.inside import INSIDE_LAWS
from kueuelib.testing.storm.laws import LAWS
from kueuelib.testing.storm.over_http import OFFERED, SILENCE
from kueuelib.testing.storm.profiles import PROFILES
from kueuelib.testing.storm.run import MOST_COMMITS

PAGE = (Path(__file__).parents[3] / "docs/storm.md").read_text()


def _rows(heading: str) -> list[list[str]]:
    section = PAGE.partition(f"{heading}\n")[2].partition("\n## ")[0]
    found = [
        re.split(r" *\| *", line.strip("| ")) for line in section.splitlines() if line[:1] == "|"
    ]
    return [row for row in found if row[0].startswith("`")]


def _first(heading: str) -> list[str]:
    return [row[0].strip("`") for row in _rows(heading)]


def test_the_laws_are_those_of_the_code() -> None:
    rows = _rows("## Laws of the bundled manager")
    assert [tuple(row) for row in rows] == [
        (f"`{law.name}`", law.when, law.sentence) for law in (*LAWS, *INSIDE_LAWS)
    ]


def test_the_faults_are_those_of_the_code() -> None:
    rows = _rows("## Faults")
    assert [tuple(row[:3]) for row in rows] == [
        (f"`{kind.name}`", kind.place, kind.legal) for kind in CATALOGUE.values()
    ]
    counts = [int(row[3].replace(",", "")) for row in rows if row[3:] and row[0] != "`jobs-late`"]
    said = re.search(
        r"--seeds 1:(\d+) --counts`: ([\d,]+) faults, (\d+) in each seed", " ".join(PAGE.split())
    )
    assert said
    seeds, total, each = (int(number.replace(",", "")) for number in said.groups())
    assert total == sum(counts)
    assert each == round(total / seeds)


def test_the_profiles_are_those_of_the_code() -> None:
    assert _first("## Profiles") == ["mixed", *PROFILES]


def test_the_arguments_of_a_trial_are_those_of_the_code() -> None:
    assert _first("## In ten lines") == list(signature(trial).parameters)
    assert f"bounded ({MOST_COMMITS:,} in one storm)" in PAGE


def test_the_profiles_over_http_are_those_of_the_code() -> None:
    heading = "## Test any operator, in any language"
    assert tuple(_first(heading)) == OFFERED
    assert f"reset after {SILENCE:.0f} seconds" in PAGE
