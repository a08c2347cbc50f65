"""Runs real cycles to decide about one workload in a given world, within a budget.

`outcome` is one world and one fresh engine. `Trials` does the same for many changes of one world,
each on a copy of one engine, with the same results. `Probe` tests many similar questions on one
engine in which nothing else waits, and undoes each; it is fast, but only shows what is worth a
trial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from enum import Enum
from typing import TYPE_CHECKING

import attrs

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.api.struct import frozen
from kueuelib.api.workload_state import passed
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Admit, decide
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.explain.fork import fork
from kueuelib.scheduler.explain.leaving import engine_of
from kueuelib.scheduler.explain.world import World, difference
from kueuelib.scheduler.facts.workloads import Where
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.queue_spec import queue_spec
from kueuelib.scheduler.reasons import FitsAfterPreemptions, NotEvaluated, Preempting, Reason

if TYPE_CHECKING:
    from kueuelib.scheduler.explain.changes import CandidateChange

# ---- the budget of a search, counted in heads that are tried -------------------------------------
# Every cycle of every trial counts, so that an answer takes bounded time in any world. A head takes
# about a tenth of a millisecond. A budget may also be bounded in time, by a clock of the caller.

MOST_STEPS = 14_000
"""The maximum number of heads in all trials of a search together."""
MOST_BASE_STEPS = 100_000
"""The maximum number of heads that are tried to find the outcome without a change."""
STEPS_PER_WORKLOAD = 50
FEWEST_STEPS = 1_000
PAIR_STEPS = 1_000_000
"""The maximum number of heads that a search for two changes tries, unless its time ends before."""
COPIED_PER_STEP = 50
"""How many workloads and nodes of an engine are copied in the time of one head."""


class OutOfStepsError(Exception):
    """A trial would exceed the budget, so its outcome is unknown."""


class SearchBudget:
    """The remaining budget.

    Args:
        steps: the total number of heads that may be tried.
        seconds: how long it lasts on the clock.
        clock: the time; by default it never passes.

    Attributes:
        left: how many are left.
        spent: how many were tried.
    """

    def __init__(
        self,
        steps: int = MOST_STEPS,
        *,
        seconds: float = math.inf,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.left = steps
        self.spent = 0
        self._kept = 0
        self._clock = clock
        self._until = self._end = clock() + seconds

    def share(self, part: float) -> None:
        """Limits spending to a part of the rest; the remainder is kept for later.

        Args:
            part: between 0 and 1.
        """
        self._kept = self.left - int(self.left * part)
        self._until = self._end
        if math.isfinite(self._end) and part < 1:
            now = self._clock()
            self._until = now + (self._end - now) * part

    def spend(self, steps: int) -> None:
        """Spends some steps.

        Raises:
            OutOfStepsError: there are not that many, or its time is over.
        """
        if self.left - steps < self._kept or self._clock() > self._until:
            raise OutOfStepsError
        self.left -= steps
        self.spent += steps


def most_steps(workloads: int) -> int:
    """The maximum number of heads that a run to rest may try in a world of a given size.

    That is far more than any world needs that ever comes to rest.
    """
    return min(MOST_BASE_STEPS, FEWEST_STEPS + STEPS_PER_WORKLOAD * workloads)


Spend = Callable[[int], None]
"""Takes steps, or raises `OutOfStepsError`."""


# --------------------------------------------------------------------------------------------------

Usage = Mapping[str, Mapping[FlavorResource, int]]
"""The usage of every ClusterQueue."""


class TrialResult(Enum):
    """The fate of a workload if nothing changes from outside."""

    HOLDS_QUOTA = "holds quota"
    """It holds quota already."""
    ADMITTED = "admitted"
    """It gets quota in one of the cycles that are due now."""
    PREEMPTS = "preempts"
    """It gets quota as soon as its victims have left."""
    WAITS = "waits"
    FINISHED = "finished"
    UNKNOWN = "unknown"


@frozen
class TrialOutcome:
    """How a trial ended.

    Attributes:
        verdict: the fate of the workload.
        reason: why it waits; None when it does not.
        evaluated: whether it was tried at all, and did not only wait behind others.
        admit: the decision that gave it quota.
        victims: the workloads that must leave for it, sorted.
        unsettled: whether the cycles were stopped before they came to rest.
        promised: other workloads of its tree that wait for their victims, sorted. Their room counts
            as used.
        usage: the usage when it got quota, including its own; None if it did not.
    """

    verdict: TrialResult
    reason: Reason | None = None
    evaluated: bool = False
    admit: Admit | None = None
    victims: tuple[ObjectKey, ...] = ()
    unsettled: bool = False
    promised: tuple[ObjectKey, ...] = attrs.field(default=(), eq=False)
    usage: Usage | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def admits(self) -> bool:
        """Whether it gets quota without a preemption."""
        return self.verdict is TrialResult.ADMITTED

    @property
    def helps(self) -> bool:
        """Whether it gets quota, perhaps after others have left for it."""
        return self.verdict in (TrialResult.ADMITTED, TrialResult.PREEMPTS)


_HELD = {
    Where.HOLDS_QUOTA: TrialResult.HOLDS_QUOTA,
    Where.FINISHED: TrialResult.FINISHED,
    Where.UNKNOWN: TrialResult.UNKNOWN,
    Where.LEAVING: TrialResult.UNKNOWN,
}


def outcome(world: World, key: ObjectKey, now: float) -> TrialOutcome:
    """Runs cycles until the workload has quota or nothing is left to decide.

    Args:
        world: the facts; not changed.
        key: the workload.
        now: seconds since the epoch.
    """
    near = world.narrowed(key)
    return _run_to_rest(engine_of(near, now), key, now, len(near.workloads))


class Trials:
    """Many changes of one world: each trial equals `outcome` of the changed world, but is faster.

    One engine is loaded with the world once; every trial applies its differences to a copy.

    Args:
        world: the facts; not changed.
        key: the workload.
        now: seconds since the epoch.
        budget: of all trials except `unchanged`; a separate one by default.

    Attributes:
        world: the facts.
        near: those that may matter to the workload.
        budget: the remaining budget.
    """

    def __init__(
        self, world: World, key: ObjectKey, now: float, budget: SearchBudget | None = None
    ) -> None:
        self.world = world
        self._key = key
        self._now = now
        self.budget = SearchBudget() if budget is None else budget
        self.near = world.narrowed(key)
        self._engine = engine_of(self.near, now)
        self._known: dict[CandidateChange, TrialOutcome] = {}

    def engine(self) -> Engine:
        """A new engine that knows the world but has run no cycle."""
        return fork(self._engine)

    def engine_within(self, changed: World) -> Engine:
        """A new engine that knows another world with the same settings and defaults."""
        engine = self.engine()
        for event in difference(self.near, self._narrowed(changed)):
            engine.observe(event, self._now)
        return engine

    def within_budget(self, budget: SearchBudget) -> Trials:
        """The same trials at the expense of another budget."""
        other = copy(self)
        other.budget = budget
        return other

    def unchanged(self) -> TrialOutcome:
        """The outcome in the unchanged world."""
        return _run_to_rest(self.engine(), self._key, self._now, len(self.near.workloads))

    def with_change(self, change: CandidateChange) -> TrialOutcome:
        """The outcome in a changed world.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        from kueuelib.scheduler.explain.changes import UnsizedChange

        if isinstance(change, UnsizedChange):
            return self.within(change.apply(self.world))
        answer = self._known.get(change)
        if answer is None:
            answer = self._known[change] = self.within(change.apply(self.world))
        return answer

    def within(self, changed: World) -> TrialOutcome:
        """The outcome in another world with the same settings and defaults.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        copied = len(self.near.workloads) + len(self.near.nodes)
        self.budget.spend(1 + copied // COPIED_PER_STEP)
        engine = self.engine_within(changed)
        return _run(engine, self._key, self._now, self.budget.spend)

    def _narrowed(self, changed: World) -> World:
        before, near = self.world, self.near
        if (
            changed.workloads is not before.workloads
            or changed.local_queues is not before.local_queues
            or near is before
            or not changed.has_trees_of(near)
        ):
            return changed.narrowed(self._key)
        queues = {name: changed.cluster_queues[name] for name in near.cluster_queues}
        return attrs.evolve(
            changed,
            workloads=near.workloads,
            local_queues=near.local_queues,
            cluster_queues=queues,
        )


def _run_to_rest(engine: Engine, key: ObjectKey, now: float, workloads: int) -> TrialOutcome:
    """Runs a limited number of cycles; the state after them is the outcome."""
    limit = SearchBudget(most_steps(workloads))
    last: list[Reason] = []
    try:
        return _run(engine, key, now, limit.spend, last)
    except OutOfStepsError:
        reason = last[-1] if last else engine.standing(key).reason or NotEvaluated()
        return TrialOutcome(TrialResult.WAITS, reason, evaluated=bool(last), unsettled=True)


def _run(
    engine: Engine, key: ObjectKey, now: float, spend: Spend, reasons: list[Reason] | None = None
) -> TrialOutcome:
    standing = engine.standing(key)
    if standing.where in _HELD:
        return TrialOutcome(_HELD[standing.where])
    reason: Reason | None = None
    for settled in _cycles(engine, now, spend):
        for number, admit in enumerate(settled.admissions):
            if admit.key == key:
                usage = usage_of(engine, settled.admissions[number + 1 :])
                return TrialOutcome(
                    TrialResult.ADMITTED, None, evaluated=True, admit=admit, usage=usage
                )
        for wait in settled.waits:
            if wait.key == key:
                reason = wait.reason
                if reasons is not None:
                    reasons.append(reason)
        if isinstance(reason, Preempting | FitsAfterPreemptions):
            return _preempts(reason)
        if reason is not None and engine.rests(key):
            break
    return _waits(engine, key, reason)


def _cycles(engine: Engine, now: float, spend: Spend) -> Iterator[Settled]:
    """Runs cycles until nothing is left to decide."""
    while (cycle := engine.next_cycle(now)) is not None:
        spend(1 + len(cycle.heads))
        yield engine.settle(decide(cycle, now), now)


def _preempts(reason: Preempting | FitsAfterPreemptions) -> TrialOutcome:
    return TrialOutcome(TrialResult.PREEMPTS, reason, evaluated=True, victims=reason.victims)


def _waits(engine: Engine, key: ObjectKey, reason: Reason | None) -> TrialOutcome:
    """The outcome of a workload that the cycles did not admit; without a reason it was never
    tried.
    """
    evaluated, promised = reason is not None, engine.promised_near(key)
    if reason is None:
        reason = engine.standing(key).reason or NotEvaluated()
        if isinstance(reason, Preempting | FitsAfterPreemptions) and engine.is_promised(key):
            return _preempts(reason)
        evaluated = not isinstance(reason, NotEvaluated)
    return TrialOutcome(TrialResult.WAITS, reason, evaluated=evaluated, promised=promised)


def outcomes(
    world: World, now: float, engine: Engine | None = None
) -> dict[ObjectKey, TrialOutcome]:
    """The outcomes of all Workloads without a change, found in one run of the cycles.

    The verdicts equal those of `outcome`, at the cost of one engine.

    Args:
        world: the facts; not changed.
        now: seconds since the epoch.
        engine: one that knows the world; it must not be used afterwards. None: a new one is made.
    """
    engine = engine or engine_of(world.with_usage(now), now)
    by_key = {
        key: TrialOutcome(_HELD[where])
        for key in world.workloads
        if (where := engine.standing(key).where) in _HELD
    }
    reasons: dict[ObjectKey, Reason] = {}
    limit, unsettled = SearchBudget(most_steps(len(world.workloads))), False
    try:
        for settled in _cycles(engine, now, limit.spend):
            for admit in settled.admissions:
                admitted = TrialOutcome(TrialResult.ADMITTED, None, evaluated=True, admit=admit)
                by_key.setdefault(admit.key, admitted)
            for wait in settled.waits:
                if wait.key in by_key:
                    continue
                reasons[wait.key] = wait.reason
                if isinstance(wait.reason, Preempting | FitsAfterPreemptions):
                    by_key[wait.key] = _preempts(wait.reason)
                elif engine.rests(wait.key):
                    by_key[wait.key] = _waits(engine, wait.key, wait.reason)
    except OutOfStepsError:
        unsettled = True
    for key in world.workloads.keys() - by_key.keys():
        waiting = _waits(engine, key, reasons.get(key))
        by_key[key] = attrs.evolve(waiting, unsettled=unsettled)
    return by_key


def usage_of(engine: Engine, later: Sequence[Admit]) -> Usage:
    """The present usage of every ClusterQueue, without later admissions in the same cycle."""
    usage: dict[str, dict[FlavorResource, int]] = {}
    for name in engine.cache.names:
        state = engine.cache.state(name)
        if state is not None:
            usage[name] = dict(state.tally.reserved)
    for admit in later:
        holder = engine.cache.holder(admit.key)
        if holder is not None and holder.cluster_queue in usage:
            used = usage[holder.cluster_queue]
            for pair, amount in holder.usage.items():
                used[pair] = used.get(pair, 0) - amount
    return usage


class Probe:
    """One engine in which nothing else waits, for many questions.

    Args:
        world: the facts.
        key: the workload.
        now: seconds since the epoch.
        budget: the remaining budget.
    """

    def __init__(self, world: World, key: ObjectKey, now: float, budget: SearchBudget) -> None:
        self._budget = budget
        self._world = world.narrowed(key).alone(key)
        self._key = key
        self._now = now
        self._fresh = engine_of(self._world, now)
        self._engine = fork(self._fresh)
        self.base = self._ask()

    def _ask(self) -> TrialOutcome:
        answer = _run(self._engine, self._key, self._now, self._budget.spend)
        if answer.admits:
            self._engine.observe(events.Forgotten(self._key), self._now)
        elif answer.verdict is TrialResult.PREEMPTS:
            self._engine = fork(self._fresh)
        return answer

    def without(self, other: ObjectKey) -> TrialOutcome:
        """The outcome if another workload were gone.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        self._engine.observe(events.WorkloadGone(other), self._now)
        answer = self._ask()
        if answer.verdict is not TrialResult.PREEMPTS:
            self._engine.observe(events.WorkloadSet(self._world.workloads[other]), self._now)
        return answer


# ---- finds the admission checks that still decide once a workload has quota (KEP-993) ------------


def deciders_of(world: World, key: ObjectKey, outcome: TrialOutcome) -> tuple[str, ...]:
    """The checks that decide after quota is reserved, in the order of the ClusterQueue.

    Before victims have left, the flavors of the workload are unknown; then all checks of its
    ClusterQueue count.

    Args:
        world: the facts of the outcome.
        key: the workload.
        outcome: its outcome.
    """
    workload = world.workloads[key]
    if outcome.admit is not None:
        return _not_ready(workload, () if outcome.admit.admitted else outcome.admit.required_checks)
    queue = world.cluster_queue_of(workload)
    if outcome.verdict is not TrialResult.PREEMPTS or queue is None:
        return ()
    spec = queue_spec(queue)
    return _not_ready(workload, spec.checks_for(frozenset(spec.flavors)))


def _not_ready(workload: Workload, required: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in required if not passed(workload, [name]))


@frozen
class TriedChange:
    """A change that was tried.

    Attributes:
        change: what to do.
        outcome: its outcome.
        checks: the admission checks that decide afterwards.
        sized: whether a size was searched for; if not, only a smaller one is worth reporting.
    """

    change: CandidateChange
    outcome: TrialOutcome
    checks: tuple[str, ...] = ()
    sized: bool = True

    @property
    def victims(self) -> tuple[ObjectKey, ...]:
        """The workloads that would be preempted for it."""
        return self.outcome.victims


@frozen
class TriedPair:
    """Two changes that were tried together, neither of which is enough alone.

    Attributes:
        changes: what to do.
        outcome: their outcome.
        checks: the admission checks that decide afterwards.
    """

    changes: tuple[CandidateChange, CandidateChange]
    outcome: TrialOutcome
    checks: tuple[str, ...] = ()

    @property
    def victims(self) -> tuple[ObjectKey, ...]:
        """The workloads that would be preempted for them."""
        return self.outcome.victims
