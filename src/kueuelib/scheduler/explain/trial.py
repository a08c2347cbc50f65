"""What the real cycles decide about one workload in a given world.

`outcome` is one world and one fresh engine. `Trials` asks the same about many changes of one
world, each on a copy of one engine, with the same answers. `Probe` asks many similar questions of
one engine whose only pending workload is the one in question, and takes every answer back; it is
fast, and only good enough to know what is worth a trial.
"""

from __future__ import annotations

from enum import Enum

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.cycle import Admit, decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.changes import Change, Whole
from kueuelib.scheduler.explain.fork import fork
from kueuelib.scheduler.explain.world import World, difference
from kueuelib.scheduler.reasons import FitsAfterPreemptions, NotEvaluated, Preempting, Reason
from kueuelib.scheduler.standing import Where

MOST_CYCLES = 100_000
"""No world needs that many; an engine that never comes to rest is a defect."""


class Verdict(Enum):
    """What becomes of a workload when nothing changes from outside."""

    HOLDS_QUOTA = "holds quota"
    """It has got it already."""
    ADMITTED = "admitted"
    """It gets quota in one of the cycles that are due now."""
    PREEMPTS = "preempts"
    """It gets quota as soon as others that are told to leave have left."""
    WAITS = "waits"
    FINISHED = "finished"
    UNKNOWN = "unknown"


@attrs.frozen
class Outcome:
    """How a trial ended.

    Attributes:
        verdict: what became of the workload.
        reason: why it waits; None when it does not.
        evaluated: whether it was tried at all, and not only stood behind others.
        admit: the decision that gave it quota.
        victims: who has to leave for it, sorted.
    """

    verdict: Verdict
    reason: Reason | None = None
    evaluated: bool = False
    admit: Admit | None = None
    victims: tuple[ObjectKey, ...] = ()

    @property
    def admits(self) -> bool:
        """Whether it gets quota without anybody leaving for it."""
        return self.verdict is Verdict.ADMITTED

    @property
    def helps(self) -> bool:
        """Whether it gets quota, perhaps after others have left for it."""
        return self.verdict in (Verdict.ADMITTED, Verdict.PREEMPTS)


def outcome(world: World, key: ObjectKey, now: float) -> Outcome:
    """Runs cycles until the workload has quota or nothing is left to decide.

    Args:
        world: the facts; not changed.
        key: the workload.
        now: seconds since the epoch.
    """
    engine = world.narrowed(key).engine(now)
    return _run(engine, key, now)


class Trials:
    """Many questions about one world: each is `outcome` of a changed world, only faster.

    One engine is told of the world once; every trial tells a copy of it what is different.

    Args:
        world: the facts; not changed.
        key: the workload.
        now: seconds since the epoch.

    Attributes:
        near: the facts that can matter to the workload.
        run: how many trials there were.
    """

    def __init__(self, world: World, key: ObjectKey, now: float) -> None:
        self._world = world
        self._key = key
        self._now = now
        self.near = world.narrowed(key)
        self._engine = self.near.engine(now)
        self._known: dict[Change, Outcome] = {}
        self.run = 0

    def engine(self) -> Engine:
        """An engine that knows the world, and that no cycle ran in; the caller's own."""
        return fork(self._engine)

    def unchanged(self) -> Outcome:
        """What becomes of the workload in the world as it is."""
        return _run(self.engine(), self._key, self._now)

    def with_change(self, change: Change) -> Outcome:
        """What becomes of it in a world in which something is different."""
        if isinstance(change, Whole):
            return self.within(change.apply(self._world))
        found = self._known.get(change)
        if found is None:
            found = self._known[change] = self.within(change.apply(self._world))
        return found

    def within(self, changed: World) -> Outcome:
        """What becomes of it in another world of the same settings and defaults."""
        self.run += 1
        engine = self.engine()
        for event in difference(self.near, changed.narrowed(self._key)):
            engine.observe(event, self._now)
        return _run(engine, self._key, self._now)


def _run(engine: Engine, key: ObjectKey, now: float) -> Outcome:
    held = {
        Where.HOLDS_QUOTA: Verdict.HOLDS_QUOTA,
        Where.FINISHED: Verdict.FINISHED,
        Where.UNKNOWN: Verdict.UNKNOWN,
        Where.LEAVING: Verdict.UNKNOWN,
    }
    standing = engine.standing(key)
    if standing.where in held:
        return Outcome(held[standing.where])
    reason: Reason | None = None
    for _ in range(MOST_CYCLES):
        found = engine.next_cycle(now)
        if found is None:
            break
        plan = decide(found, now)
        settled = engine.settle(plan, now)
        for admit in settled.admissions:
            if admit.key == key:
                return Outcome(Verdict.ADMITTED, None, evaluated=True, admit=admit)
        for wait in settled.waits:
            if wait.key == key:
                reason = wait.reason
        if isinstance(reason, Preempting | FitsAfterPreemptions):
            return Outcome(Verdict.PREEMPTS, reason, evaluated=True, victims=reason.victims)
        if reason is not None and engine.rests(key):
            break
    standing = engine.standing(key)
    if reason is None:
        reason = standing.reason or NotEvaluated()
        return Outcome(Verdict.WAITS, reason, evaluated=not isinstance(reason, NotEvaluated))
    return Outcome(Verdict.WAITS, reason, evaluated=True)


class Probe:
    """One engine in which nobody else waits, for many questions.

    Args:
        world: the facts.
        key: the workload.
        now: seconds since the epoch.
    """

    def __init__(self, world: World, key: ObjectKey, now: float) -> None:
        self._world = world.narrowed(key).alone(key)
        self._key = key
        self._now = now
        self._fresh = self._world.engine(now)
        self._engine = fork(self._fresh)
        self.base = self._ask()

    def _ask(self) -> Outcome:
        found = _run(self._engine, self._key, self._now)
        if found.admits:
            self._engine.observe(events.Forgotten(self._key), self._now)
        elif found.verdict is Verdict.PREEMPTS:
            self._engine = fork(self._fresh)
        return found

    def without(self, other: ObjectKey) -> Outcome:
        """What would become of it if another workload were gone."""
        self._engine.observe(events.WorkloadGone(other), self._now)
        found = self._ask()
        if found.verdict is not Verdict.PREEMPTS:
            self._engine.observe(events.WorkloadSet(self._world.workloads[other]), self._now)
        return found
