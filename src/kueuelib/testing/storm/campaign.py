"""Plays many seeds in forked worlds, replays one, and shrinks failures."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import pickle
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NoReturn, TypeVar

import attrs

from kueuelib.errors import KueuelibError
from kueuelib.testing.storm.draws import Draws
from kueuelib.testing.storm.laws import Violation
from kueuelib.testing.storm.profiles import PROFILES
from kueuelib.testing.storm.run import storm
from kueuelib.testing.storm.seed_plan import SeedReport, plan_of, tolerance
from kueuelib.testing.storm.substitutes import stream_lists
from kueuelib.testing.storm.topology import TOPOLOGY
from kueuelib.testing.storm.trial import BUNDLED, Trial
from kueuelib.testing.storm.world import World

__all__ = [
    "MIXED",
    "campaign",
    "ddmin",
    "profile_of",
    "replay",
    "shrunk",
]


# ---- shrinks a failing storm to the few faults that it needs -------------------------------------


def ddmin(
    labels: Sequence[str], fails: Callable[[frozenset[str]], bool], *, tries: int = 200
) -> tuple[str, ...]:
    """Return a small subset of labels that still fails (Zeller's delta debugging).

    Args:
        labels: All labels that may be left out; together they fail.
        fails: Runs the storm with only the given labels; `True` if it still fails.
        tries: The maximum number of runs.

    Returns:
        The remaining labels in their order; each is needed, unless the tries ran out.
    """
    kept = tuple(labels)
    if kept and tries > 0:
        tries -= 1
        if fails(frozenset()):
            return ()
    parts = 2
    while len(kept) >= 2 and tries > 0:
        size = -(-len(kept) // parts)
        smaller = None
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            if tries <= 0:
                break
            tries -= 1
            if fails(frozenset(rest)):
                smaller = rest
                break
        if smaller is not None:
            kept = smaller
            parts = max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(parts * 2, len(kept))
    return kept


# Runs many jobs from one world, which is booted once; every run happens in a copy of the process.
# A copy shares the memory of the booted world until it changes it, so a run does not pay for
# importing, compiling schemas and filling caches.

J = TypeVar("J")
S = TypeVar("S")
T = TypeVar("T")
_PIECE = 1 << 16
_GRACE = 10.0
"""Seconds that a copy gets to end its own copies once its time is up."""
_FREEZE = gc.freeze  # a world replaces what it finds in the module


class CopyFailed(KueuelibError):
    """A copy of the process failed: a traceback, or how it ended."""


@attrs.frozen
class RunResult(Generic[J]):
    """The result of one run.

    Attributes:
        job: the job.
        value: the result of the run.
        error: a traceback, or how the process ended; empty after success.
        cpu: seconds of processor time that the run took.
    """

    job: J
    value: Any
    error: str
    cpu: float


@attrs.define
class _Child(Generic[J]):
    job: J
    pid: int
    data: bytearray = attrs.field(factory=bytearray)


def run_all(
    state: S,
    jobs: Iterable[J],
    play: Callable[[S, J], Any],
    *,
    workers: int = 2,
    limit: float = 120.0,
) -> Iterator[RunResult[J]]:
    """Do every job in a copy of this process; yield outcomes in the order they end.

    Args:
        state: the initial state of every run, for example a booted world.
        jobs: the jobs; taken one by one.
        play: does a job; its result is pickled.
        workers: the number of concurrent copies.
        limit: real seconds after which a copy is killed.
    """
    _FREEZE()
    waiting = iter(jobs)
    running: dict[int, _Child[J]] = {}
    try:
        while True:
            while len(running) < workers:
                for job in waiting:
                    pipe, child = _start(state, job, play, limit)
                    running[pipe] = child
                    break
                else:
                    break
            if not running:
                return
            for pipe in select.select(list(running), [], [])[0]:
                piece = os.read(pipe, _PIECE)
                if piece:
                    running[pipe].data += piece
                    continue
                os.close(pipe)
                yield _ended(running.pop(pipe), limit)
    finally:
        for pipe, child in running.items():
            os.close(pipe)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)


def apart(work: Callable[[], T], *, limit: float) -> T:
    """Do some work in a copy of this process, and return its result; this process does not change.

    Args:
        work: What to do; its result is pickled.
        limit: Real seconds after which it is killed, together with its own copies.

    Raises:
        CopyFailed: It raised, took too long, or its process died.
    """

    def timed(_: None, job: Callable[[], T]) -> T:
        signal.signal(signal.SIGALRM, _give_up)
        signal.setitimer(signal.ITIMER_REAL, limit)
        return job()

    pipe, child = _start(None, work, timed, limit + _GRACE)
    try:
        while piece := os.read(pipe, _PIECE):
            child.data += piece
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        raise
    finally:
        os.close(pipe)
    outcome = _ended(child, limit)
    if outcome.error:
        raise CopyFailed(outcome.error)
    value: T = outcome.value
    return value


def _give_up(*_: object) -> NoReturn:
    raise TimeoutError("took too long")


def _start(state: S, job: J, play: Callable[[S, J], Any], limit: float) -> tuple[int, _Child[J]]:
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Threads of a test runner stay behind; a copy needs none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(writing)
    else:
        os.close(reading)
        _play(state, job, play, limit, writing)
    return reading, _Child(job, pid)


def _play(state: S, job: J, play: Callable[[S, J], Any], limit: float, writing: int) -> NoReturn:
    """Do a job and end this process in any case, without the clean-up of a normal end."""
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            answer = pickle.dumps((play(state, job), ""))
        except BaseException:  # noqa: BLE001 - is passed to the parent
            answer = pickle.dumps((None, traceback.format_exc()))
        with open(writing, "wb") as pipe:
            pipe.write(answer)
        sys.stdout.flush()
        sys.stderr.flush()
        code = 0
    finally:
        os._exit(code)


def _ended(child: _Child[J], limit: float) -> RunResult[J]:
    _, status, usage = os.wait4(child.pid, 0)
    cpu = usage.ru_utime + usage.ru_stime
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGALRM:
        return RunResult(child.job, None, f"took longer than {limit:g} s", cpu)
    if code:
        return RunResult(child.job, None, f"the process ended with {code}", cpu)
    value, error = pickle.loads(child.data)  # noqa: S301 - from our own copy
    return RunResult(child.job, value, error, cpu)


# --------------------------------------------------------------------------------------------------

MIXED = "mixed"
"""In place of a profile's name: each seed draws a profile."""
APART = frozenset({"edits", "moments", "topology", "waits"})
"""Profiles that a mixed campaign does not play, so that its seeds keep their meaning."""
DEFAULT_RUN = {"moments": 12, "edits": 20, "waits": 20, "topology": 5, MIXED: 160}
"""How many seeds, from 1 on, the default test run plays with each profile."""
DEADLINE = 600.0
"""Real seconds after which a storm counts as hung."""
SWARM_SHARE = 0.5
"""The share of the seeds that a mixed campaign plays with the swarm."""
OFTEN = "slow"
"""The profile that a mixed campaign plays twice as often as others: it has the largest crowds."""


def profile_of(seed: int) -> str:
    """Return the profile that a mixed campaign plays a seed with."""
    draws = Draws(seed).stream("profile")
    if draws.chance("swarm", SWARM_SHARE):
        return "swarm"
    others = [name for name in PROFILES if name not in {"swarm", "calm", *APART}]
    return draws.choice("name", [*others, OFTEN])


def _trial(profile: str, trial: Trial) -> Trial:
    """The trial of a profile: storms with nodes have users and laws of their own."""
    return TOPOLOGY if profile == "topology" and trial is BUNDLED else trial


def campaign(
    seeds: Iterable[int], profile: str = MIXED, *, workers: int = 2, trial: Trial = BUNDLED
) -> Iterator[SeedReport]:
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
    trial = _trial(profile, trial)
    yield from _reports((_Job(seed, profile) for seed in seeds), trial, workers=workers)


def replay(
    seed: int,
    profile: str = MIXED,
    *,
    only: frozenset[str] | None = None,
    fifo: bool = False,
    trial: Trial = BUNDLED,
) -> SeedReport:
    """Play one seed and keep its trace.

    Args:
        seed: The seed.
        profile: The name of a profile, or `mixed`.
        only: The labels of what may happen; `None` means all.
        fifo: Whether callbacks run in the order they became ready.
        trial: The trial.
    """
    job = _Job(seed, profile, only=only, fifo=fifo, keep_lines=True)
    return next(_reports([job], _trial(profile, trial), workers=1))


def shrunk(
    report: SeedReport, *, note: Callable[[str], None], tries: int = 150, trial: Trial = BUNDLED
) -> SeedReport:
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


def _reports(jobs: Iterable[_Job], trial: Trial, *, workers: int) -> Iterator[SeedReport]:
    """Play jobs in copies of the booted world; yield their reports in the order of the jobs."""

    def play(world: World, numbered: tuple[int, _Job]) -> SeedReport:
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
            if plan.streams:
                stream_lists()
            world.run(world.replace_program(trial.variant(plan.scenario.settings)))
        laws = trial.laws(world.objects, tolerance(plan.weather))
        report: SeedReport = world.run(
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

    early: dict[int, SeedReport] = {}
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


def _broken(job: _Job, why: str) -> SeedReport:
    """Return the report of a storm that failed to complete."""
    violation = Violation(law="the storm comes to its end", at=0.0, object="", text=why)
    return SeedReport(
        seed=job.seed,
        profile=job.family,
        violations=(violation,),
        faults={},
        sometimes={},
        labels=(),
        trace="",
    )
