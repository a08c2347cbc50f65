"""Plays storms until a law is broken, and says which, as one line of JSON.

    python tests/mutants/hunt.py FIRST:LAST PROFILE any|trees|ACT MOST [SEED ...]

Seeds that a mixed campaign plays with `PROFILE` come first, those of the swarm next; with `trees`,
such with trees of Cohorts before all others; with a part of the label of an act, those in which it
is planned most often. A profile that mixed campaigns do not play is played with every seed. Seeds
that are named are left out, and no more than `MOST` are played.
"""

from __future__ import annotations

import json
import sys

from kueuelib.testing.storm.campaign import APART, MIXED, campaign, profile_of
from kueuelib.testing.storm.seed_plan import plan_of


def ordered(first: int, last: int, profile: str, world: str) -> list[int]:
    """The seeds, those first that are the most likely to show a fault."""

    def rank(seed: int) -> tuple[int, bool, bool, int]:
        drawn = profile if profile in APART else profile_of(seed)
        return -suits(seed, drawn, world), drawn != profile, drawn != "swarm", seed

    def suits(seed: int, drawn: str, world: str) -> int:
        if world == "any":
            return 0
        scenario = plan_of(seed, drawn).scenario
        if world == "trees":
            return int(bool(scenario.resources))
        return sum(world in act.label for act in scenario.acts)

    return sorted(range(first, last + 1), key=rank)


def hunt(seeds: list[int], profile: str) -> dict[str, object]:
    """What the first seed shows that breaks a law; only how many were played when none does."""
    played = 0
    reports = campaign(seeds, profile if profile in APART else MIXED, workers=1)
    while True:
        try:
            report = next(reports, None)
        except TimeoutError as error:  # of the boot: what every storm begins with does not work
            return {
                "played": 0,
                "seed": 0,
                "profile": "boot",
                "law": "the world",
                "text": str(error),
            }
        if report is None:
            return {"played": played}
        played += 1
        if report.violations:
            first = report.violations[0]
            return {
                "played": played,
                "seed": report.seed,
                "profile": report.profile,
                "law": first.law,
                "text": f"{first.object}: {first.text}",
            }


def main(args: list[str]) -> None:
    """Hunts."""
    span, profile, world, most, *skipped = args
    first, _, last = span.partition(":")
    tried = ordered(int(first), int(last), profile, world)
    seeds = [seed for seed in tried if str(seed) not in skipped]
    sys.stdout.write(json.dumps(hunt(seeds[: int(most)], profile)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
