"""Plays storms until a law is broken, and says which, as one line of JSON.

    python tests/mutants/hunt.py FIRST:LAST PROFILE any|trees MOST [SEED ...]

Seeds that a mixed tour plays with `PROFILE` come first, those of the swarm next; with `trees`, such
with trees of Cohorts before all others. A profile that mixed tours do not play is played with every
seed. Seeds that are named are left out, and no more than `MOST` are played.
"""

from __future__ import annotations

import json
import sys

from kueuelib.testing.storm.seed_plan import plan_of
from kueuelib.testing.storm.tour import APART, MIXED, profile_of, tour


def ordered(first: int, last: int, profile: str, *, trees: bool) -> list[int]:
    """The seeds, those first that are the most likely to show a fault."""

    def rank(seed: int) -> tuple[bool, bool, bool, int]:
        drawn = profile_of(seed)
        flat = trees and not plan_of(seed, drawn).scenario.resources
        return flat, drawn != profile, drawn != "swarm", seed

    return sorted(range(first, last + 1), key=rank)


def hunt(seeds: list[int], profile: str) -> dict[str, object]:
    """What the first seed shows that breaks a law; only how many were played when none does."""
    played = 0
    reports = tour(seeds, profile if profile in APART else MIXED, workers=1)
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
    tried = ordered(int(first), int(last), profile, trees=world == "trees")
    seeds = [seed for seed in tried if str(seed) not in skipped]
    sys.stdout.write(json.dumps(hunt(seeds[: int(most)], profile)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
