"""Plays many seeds in forked worlds, replays one, and shrinks failures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

import attrs

from .draws import Draws
from .fork import run_all
from .laws import Violation
from .profiles import PROFILES
from .run import storm
from .seed_plan import Report, plan_of, tolerance
from .shrink import ddmin
from .trial import BUNDLED, Trial
from .world import World

__all__ = ["MIXED", "profile_of", "replay", "shrunk", "tour"]

MIXED = "mixed"
"""In place of a profile's name: each seed draws a profile."""
APART = frozenset({"edits"})
"""Profiles that a mixed tour does not play, so that its seeds keep their meaning."""
DEADLINE = 600.0
"""Real seconds after which a storm counts as hung."""
SWARM_SHARE = 0.5
"""The share of the seeds that a mixed tour plays with the swarm."""
OFTEN = "slow"
"""The profile that a mixed tour plays twice as often as others: it has the largest crowds."""


def profile_of(seed: int) -> str:
    """Return the profile that a mixed tour plays a seed with."""
    draws = Draws(seed).stream("profile")
    if draws.chance("swarm", SWARM_SHARE):
        return "swarm"
    others = [name for name in PROFILES if name not in {"swarm", "calm", *APART}]
    return draws.choice("name", [*others, OFTEN])


def tour(
    seeds: Iterable[int], profile: str = MIXED, *, workers: int = 2, trial: Trial = BUNDLED
) -> Iterator[Report]:
    """Play seeds, each in its own world, and yield their reports in order.

    Args:
        seeds: The seeds.
        profile: The name of a profile, or `mixed`.
        workers: How many seeds are played at the same time.
        trial: The trial. A process can only run one.

    Raises:
        KeyError: There is no profile of that name.
    """
    if profile != MIXED and profile not in PROFILES:
        raise KeyError(profile)
    yield from _reports((_Job(seed, profile) for seed in seeds), trial, workers=workers)


def replay(
    seed: int,
    profile: str = MIXED,
    *,
    only: frozenset[str] | None = None,
    fifo: bool = False,
    trial: Trial = BUNDLED,
) -> Report:
    """Play one seed and keep its trace.

    Args:
        seed: The seed.
        profile: The name of a profile, or `mixed`.
        only: The labels of what may happen; `None` means all.
        fifo: Whether callbacks run in the order they became ready.
        trial: The trial.
    """
    job = _Job(seed, profile, only=only, fifo=fifo, keep_lines=True)
    return next(_reports([job], trial, workers=1))


def shrunk(
    report: Report, *, note: Callable[[str], None], tries: int = 150, trial: Trial = BUNDLED
) -> Report:
    """Return the report of a smaller storm that breaks the same law.

    Args:
        report: The report of a seed that broke a law.
        note: Receives a line for each success.
        tries: How many storms are played at most.
        trial: The trial.
    """
    law = report.violations[0].law
    seed, profile = report.seed, report.profile
    best = report

    def fails(only: frozenset[str] | None, *, fifo: bool = False) -> bool:
        nonlocal best
        tried = replay(seed, profile, only=only, fifo=fifo, trial=trial)
        if all(violation.law != law for violation in tried.violations):
            return False
        note(f"still fails with {len(tried.labels)} faults, disasters and acts")
        best = tried
        return True

    labels = ddmin(report.labels, fails, tries=tries)
    fails(frozenset(labels), fifo=True)
    return best


@attrs.frozen
class _Job:
    """A seed to be played; `profile` may be `mixed`."""

    seed: int
    profile: str
    only: frozenset[str] | None = None
    fifo: bool = False
    keep_lines: bool = False

    @property
    def family(self) -> str:
        return profile_of(self.seed) if self.profile == MIXED else self.profile


def _reports(jobs: Iterable[_Job], trial: Trial, *, workers: int) -> Iterator[Report]:
    """Play jobs in copies of the booted world; yield their reports in the order of the jobs."""

    def play(world: World, numbered: tuple[int, _Job]) -> Report:
        job = numbered[1]
        watched = world.wire.calls.watched("manager")
        plan = plan_of(
            job.seed,
            job.family,
            only=job.only,
            fifo=job.fifo,
            users=trial.scenario,
            resources=watched if trial.resources is None else trial.resources,
            replicas=trial.replicas,
        )
        world.reseed(plan.seed, plan.disorder)
        if plan.scenario.settings and trial.variant is not None:
            world.run(world.replace_program(trial.variant(plan.scenario.settings)))
        laws = trial.laws(world.objects, tolerance(plan.weather))
        report: Report = world.run(
            storm(
                world,
                plan,
                laws,
                keep_lines=job.keep_lines,
                limit=trial.limit,
                conduct=trial.conduct,
            )
        )
        return report

    early: dict[int, Report] = {}
    following = 0
    outcomes = run_all(_booted(trial), enumerate(jobs), play, workers=workers, limit=DEADLINE)
    for outcome in outcomes:
        number, job = outcome.job
        early[number] = _broken(job, outcome.error) if outcome.error else outcome.value
        while following in early:
            yield early.pop(following)
            following += 1


@functools.cache
def _booted(trial: Trial) -> World:
    """Return the world of this process, in which a manager is ready."""
    world = World(program=trial.program, companions=trial.companions)
    world.run(world.boot())
    if trial.prepare is not None:
        world.run(trial.prepare(world))
    return world


def _broken(job: _Job, why: str) -> Report:
    """Return the report of a storm that failed to complete."""
    violation = Violation(law="the storm comes to its end", at=0.0, object="", text=why)
    return Report(
        seed=job.seed,
        profile=job.family,
        violations=(violation,),
        faults={},
        sometimes={},
        labels=(),
        trace="",
    )
