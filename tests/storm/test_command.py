"""`python -m kueuelib.testing.storm` as a user types it, without the storms."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from kueuelib.testing.storm import __main__ as command
from kueuelib.testing.storm.laws.law import Violation
from kueuelib.testing.storm.seed_plan import SeedReport

AGAIN = "python -m kueuelib.testing.storm --replay 2"


@pytest.mark.parametrize(
    ("options", "again"), [([], AGAIN), (["--profile", "slow"], f"{AGAIN} --profile slow")]
)
def test_a_broken_law_comes_with_the_command_that_plays_it_again(
    options: list[str], again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Violation("no-repairs", 1.0, "manager-1", "it repaired one")

    def two(seeds: range, profile: str, *, workers: int) -> Iterator[SeedReport]:
        assert (list(seeds), profile, workers) == ([1, 2], (["mixed", *options])[-1], 2)
        yield SeedReport(1, "swarm", (), {"lost": 3}, {}, (), "")
        yield SeedReport(2, "slow", (broken,), {"lost": 4}, {}, (), "")

    monkeypatch.setattr(command, "campaign", two)
    done = CliRunner().invoke(command.main, ["--seeds", "1:2", *options])
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        "seed 2 (slow): no-repairs: manager-1: it repaired one",
        f"  its timeline, made short: {again}",
        "2 seeds, 7 faults, 1 violations",
    ]


@pytest.mark.parametrize("options", [[], *(["--seeds", text] for text in ("a:b", "1:", "5:1"))])
def test_what_is_not_a_range_of_seeds_is_refused(options: list[str]) -> None:
    done = CliRunner().invoke(command.main, options)
    assert done.exit_code == 2
    assert "FIRST:LAST" in done.output
