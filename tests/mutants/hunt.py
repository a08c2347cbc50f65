"""Plays storms until a law is broken, and says which, as one line of JSON.

    python tests/mutants/hunt.py PROFILE any|trees|ACT MOST [RUN/SEED ...]
    python tests/mutants/hunt.py RUN/SEED ...

All storms of the default test run are candidates. Those with `PROFILE` come first, those of the
swarm next; with `trees`, such with trees of Cohorts before all others; with a part of the label of
an act, those in which it is planned most often. Storms that are named are left out, and no more
than `MOST` are played. The second form plays only the storms that are named.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from kueuelib.testing.storm.campaign import DEFAULT_RUN, MIXED, campaign, profile_of
from kueuelib.testing.storm.seed_plan import SeedReport, plan_of

BOOT = 60.0
"""Seconds of processor time for the start of the world, which all storms share."""
Storm = tuple[str, int]
"""The campaign that plays it, and its seed."""


def ordered(profile: str, world: str) -> list[Storm]:
    """The storms, those first that are the most likely to show a fault."""

    def rank(storm: Storm) -> tuple[int, bool, bool]:
        drawn = _family(storm)
        return -suits(storm[1], drawn, world), drawn != profile, drawn != "swarm"

    def suits(seed: int, drawn: str, world: str) -> int:
        if world == "any":
            return 0
        scenario = plan_of(seed, drawn).scenario
        if world == "trees":
            return int(bool(scenario.resources))
        return sum(world in act.label for act in scenario.acts)

    return sorted(_every(), key=rank)


def by_turns() -> list[Storm]:
    """The storms, one of each profile after another."""
    earlier: Counter[str] = Counter()
    turns = {}
    for storm in _every():
        turns[storm] = earlier[_family(storm)]
        earlier[_family(storm)] += 1
    return sorted(turns, key=lambda storm: turns[storm])


def _every() -> list[Storm]:
    return [(run, seed) for run, last in DEFAULT_RUN.items() for seed in range(1, last + 1)]


def _family(storm: Storm) -> str:
    run, seed = storm
    return profile_of(seed) if run == MIXED else run


@contextlib.contextmanager
def worlds() -> Iterator[dict[str, ProcessPoolExecutor]]:
    """A process for the storms of each run; those with nodes have a start of their own.

    A process can only start one world.
    """
    forks = get_context("fork")
    with (
        ProcessPoolExecutor(1, mp_context=forks) as plain,
        ProcessPoolExecutor(1, mp_context=forks) as placed,
    ):
        yield {run: placed if run == "topology" else plain for run in DEFAULT_RUN}


def boot(run: str) -> str:
    """Starts the world of this process; what went wrong, if anything did."""
    signal.setitimer(signal.ITIMER_PROF, BOOT)  # which ends this process
    try:
        list(campaign([], run))
    except Exception as error:  # noqa: BLE001 - what every storm begins with does not work
        return repr(error)
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    return ""


def play(run: str, seed: int) -> SeedReport:
    """Plays a storm."""
    (report,) = campaign([seed], run, workers=1)
    return report


def hunt(storms: list[Storm]) -> dict[str, object]:
    """What the first storm shows that breaks a law; only how many were played when none does."""
    started: set[ProcessPoolExecutor] = set()
    with worlds() as processes:
        for played, (run, seed) in enumerate(storms or [(MIXED, 0)]):
            process = processes[run]
            if process not in started:
                started.add(process)
                try:
                    wrong = process.submit(boot, run).result()
                except BrokenProcessPool:
                    wrong = "hangs"
                if wrong:
                    place = {"run": run, "seed": 0, "profile": "boot"}
                    return {"played": played, **place, "law": "the boot", "text": wrong}
            if not storms:
                break
            report = process.submit(play, run, seed).result()
            if report.violations:
                first = report.violations[0]
                found = {"run": run, "seed": seed, "profile": report.profile}
                text = f"{first.object}: {first.text}"
                return {"played": played + 1, **found, "law": first.law, "text": text}
    return {"played": len(storms)}


def main(args: list[str]) -> None:
    """Hunts."""
    if "/" in args[0]:
        storms = [(run, int(seed)) for run, _, seed in (name.partition("/") for name in args)]
    else:
        profile, world, most, *skipped = args
        storms = [one for one in ordered(profile, world) if "{}/{}".format(*one) not in skipped]
        storms = storms[: int(most)]
    report = hunt(storms)
    spent = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = sum(each.ru_utime + each.ru_stime for each in spent)
    sys.stdout.write(json.dumps({**report, "cpu": cpu}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
