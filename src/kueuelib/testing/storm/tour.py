"""Plays many seeds in forked worlds, replays one, and shrinks what failed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

import attrs

from .draws import Draws
from .fork import run_all
from .laws import Laws, Violation
from .plan import Plan, Report, plan_of, tolerance
from .profiles import PROFILES
from .run import storm
from .shrink import ddmin
from .warm import warm_up
from .world import World

__all__ = ["profile_of", "replay", "shrunk", "tour"]

DEADLINE = 600.0
"""Real seconds after which a storm counts as hung."""
SWARM_SHARE = 0.5
"""The share of the seeds that a mixed tour plays with the swarm."""


def profile_of(seed: int) -> str:
    """Return the profile that a mixed tour plays a seed with."""
    draws = Draws(seed).stream("profile")
    if draws.chance("swarm", SWARM_SHARE):
        return "swarm"
    return draws.choice("name", [name for name in PROFILES if name not in {"swarm", "calm"}])


def tour(seeds: Iterable[int], profile: str = "mixed", *, workers: int = 2) -> Iterator[Report]:
    """Play seeds, each in a world of its own, and yield their reports in order.

    Args:
        seeds: The seeds.
        profile: The name of a profile, or `mixed`.
        workers: How many seeds are played at the same time.

    Raises:
        KeyError: There is no profile of that name.
    """
    yield from _reports((_plan(seed, profile) for seed in seeds), workers=workers)


def replay(
    seed: int, profile: str = "mixed", *, only: frozenset[str] | None = None, fifo: bool = False
) -> Report:
    """Play one seed and keep its trace.

    Args:
        seed: The seed.
        profile: The name of a profile, or `mixed`.
        only: The labels of what may happen; `None` means all.
        fifo: Whether callbacks run in the order in which they became ready.
    """
    plan = attrs.evolve(_plan(seed, profile), only=only, fifo=fifo)
    return next(_reports([plan], workers=1, keep_lines=True))


def shrunk(report: Report, *, note: Callable[[str], None], tries: int = 150) -> Report:
    """Return the report of a smaller storm that breaks the same law.

    Args:
        report: The report of a seed that broke a law.
        note: Receives a line for each success.
        tries: How many storms are played at most.
    """
    law = report.violations[0].law
    seed, profile = report.seed, report.profile
    best = report

    def fails(only: frozenset[str] | None, *, fifo: bool = False) -> bool:
        nonlocal best
        tried = replay(seed, profile, only=only, fifo=fifo)
        if all(violation.law != law for violation in tried.violations):
            return False
        note(f"still fails with {len(tried.labels)} faults, disasters and acts")
        best = tried
        return True

    labels = ddmin(report.labels, fails, tries=tries)
    fails(frozenset(labels), fifo=True)
    return best


def _plan(seed: int, profile: str) -> Plan:
    return plan_of(seed, profile_of(seed) if profile == "mixed" else profile)


def _reports(plans: Iterable[Plan], *, workers: int, keep_lines: bool = False) -> Iterator[Report]:
    """Play plans in copies of the booted world; yield their reports in the order of the plans."""

    def play(world: World, job: tuple[int, Plan]) -> Report:
        plan = job[1]
        world.reseed(plan.seed, plan.disorder)
        report: Report = world.run(
            storm(world, plan, Laws(tolerance(plan.weather)), keep_lines=keep_lines)
        )
        return report

    early: dict[int, Report] = {}
    following = 0
    outcomes = run_all(_booted(), enumerate(plans), play, workers=workers, limit=DEADLINE)
    for outcome in outcomes:
        number, plan = outcome.job
        early[number] = _broken(plan, outcome.error) if outcome.error else outcome.value
        while following in early:
            yield early.pop(following)
            following += 1


@functools.cache
def _booted() -> World:
    """Return the world of this process, in which a manager is ready and has run a Job before."""
    world = World()
    world.run(world.boot())
    world.run(warm_up(world))
    return world


def _broken(plan: Plan, why: str) -> Report:
    """Return the report of a storm that did not come to its end."""
    violation = Violation(law="the storm comes to its end", at=0.0, object="", text=why)
    return Report(
        seed=plan.seed,
        profile=plan.profile.name,
        violations=(violation,),
        faults={},
        sometimes={},
        labels=(),
        trace="",
    )
