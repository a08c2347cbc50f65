"""The driver: gives the engine, in virtual time, the facts of a cluster, and executes its plans.

    arrival  -> Workload created                    cycle -> admissions and evictions written
    end      -> Workload gone                       look  -> the next step of a Workload's life
    stopped  -> quota of an evicted Workload free

Every decision is the manager's: `Engine` and `decide` for admissions and preemptions,
`workload.next_step` for everything that follows. Time moves from one event to the next, so the cost
depends on the number of events, not on the time between them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from functools import partial

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.world import World
from kueuelib.simulator.changes import ClusterChange
from kueuelib.simulator.cluster import ClusterSetup
from kueuelib.simulator.job_lifecycles import Agenda, JobLifecycles, Timing
from kueuelib.simulator.live import Audience, Listener, Live
from kueuelib.simulator.parsing import END_OF_TIME
from kueuelib.simulator.trace import TraceJob
from kueuelib.workload.life import LifeSettings

__all__ = [
    "Driver",
    "Timing",
]


# ---- submits jobs after the end of another one ---------------------------------------------------


class Successors:
    """Holds jobs back until the job that they follow has ended.

    Args:
        agenda: for later submissions.
        live: the jobs that have arrived and not ended.
        arrive: submits a job.

    Attributes:
        awaited: the jobs that others follow.
        orphans: how many jobs should follow a job that never came.
    """

    def __init__(
        self, agenda: Agenda, live: Container[ObjectKey], arrive: Callable[[TraceJob], None]
    ) -> None:
        self._agenda = agenda
        self._live = live
        self._arrive = arrive
        self._followers: dict[ObjectKey, list[TraceJob]] = {}
        self._ended: dict[ObjectKey, float] = {}
        self.awaited: Collection[ObjectKey] = frozenset()
        self.orphans = 0

    def submit(self, job: TraceJob) -> None:
        """Takes a job of the trace."""
        key = ObjectKey(job.namespace, job.name)
        before = ObjectKey(job.namespace, job.after)
        if not job.after:
            self._arrive(job)
        elif before in self._ended:
            self._follow(job, self._ended[before])
        elif before in self._live or before in self._followers:
            self._followers.setdefault(before, []).append(job)
            self._followers.setdefault(key, [])
        else:
            self.orphans += 1
            self._arrive(job)

    def _follow(self, job: TraceJob, ended: float) -> None:
        at = ended + job.think_seconds
        if at <= self._agenda.now:
            self._arrive(job)
        else:
            self._followers.setdefault(ObjectKey(job.namespace, job.name), [])
            self._agenda.plan(at, partial(self._arrive, job))

    def over(self, key: ObjectKey) -> None:
        """A job has ended: submit those that follow it."""
        now = self._agenda.now
        if key in self.awaited:
            self._ended[key] = now
        for job in self._followers.pop(key, ()):
            self._follow(job, now)


# --------------------------------------------------------------------------------------------------

STALL_AFTER = 1000
"""Cycles without a result at one instant, beyond one per job, before time moves on."""
STALL_SECONDS = 1.0
IDLE_LOOKS = 10_000
"""Cycles without an event between them, after which waiting jobs are given up."""


class Driver:
    """Runs jobs through the engine.

    Args:
        cluster: the initial queues and settings.
        listeners: receive what happens, in this order.
        changes: of the cluster, in the order of time.
        life: the settings for times.
        timing: the durations besides run times.

    Attributes:
        events: how many arrivals, ends and other planned events there were.
        cycles: how many cycles were decided.
        stalls: how often time moved on after too many cycles without a result at one instant.
        engine: the decision engine.
        live: the jobs that have arrived and not ended.
        interrupted: whether `stop` was called.
    """

    def __init__(
        self,
        cluster: ClusterSetup,
        listeners: Iterable[Listener] = (),
        *,
        changes: Iterable[ClusterChange] = (),
        life: LifeSettings | None = None,
        timing: Timing | None = None,
    ) -> None:
        self._audience = Audience(listeners)
        self._changes = deque(changes)
        self._timing = timing or Timing()
        self._agenda = Agenda()
        self._lives = JobLifecycles(
            cluster,
            self._audience,
            self._agenda,
            life or LifeSettings(),
            self._timing,
            self._over,
        )
        self.engine: Engine = self._lives.engine
        self.live: Mapping[ObjectKey, Live] = self._lives.live
        self._following = Successors(self._agenda, self.live, self._lives.arrive)
        self.events = self.cycles = self.stalls = 0
        self._fruitless = self._idle = 0
        self._not_before = -math.inf
        self.interrupted = False

    @property
    def now(self) -> float:
        """The virtual time."""
        return self._agenda.now

    @property
    def orphans(self) -> int:
        """How many jobs should follow a job that never came."""
        return self._following.orphans

    def stop(self) -> None:
        """Ends `run` after the present step; may be called from a signal handler."""
        self.interrupted = True

    def world(self) -> World:
        """The facts at this instant, for `explain`."""
        return self._lives.world()

    def _over(self, key: ObjectKey) -> None:
        self._following.over(key)

    def run(self, jobs: Iterable[TraceJob], awaited: Collection[ObjectKey] = frozenset()) -> None:
        """Runs until nothing more can happen, or the year 9999 begins.

        Args:
            jobs: in the order of their arrivals; taken one by one.
            awaited: the keys of the jobs that others follow.

        Raises:
            ConfigError: two jobs of one name at the same time.
        """
        self._following.awaited = awaited
        arrivals = iter(jobs)
        coming = next(arrivals, None)
        if coming is not None:
            self._move(coming.arrival)
        self._lives.begin()
        while not self.interrupted:
            planned = self._agenda.next_at
            arrival = math.inf if coming is None else coming.arrival
            # What happens to a cluster without jobs does not matter.
            matters = coming is not None or planned < math.inf or self.live
            change = self._changes[0].at if self._changes and matters else math.inf
            soonest = min(planned, arrival, change)
            if soonest >= END_OF_TIME:
                soonest = math.inf
            if soonest > self._agenda.now:
                cycle = self._cycle_at()
                if cycle < min(soonest, END_OF_TIME):
                    self._move(cycle)
                    self._cycle()
                    continue
                if soonest == math.inf:
                    break
                self._move(soonest)
            self.events += 1
            self._idle = 0
            if planned <= min(change, arrival):
                self._agenda.act()
            elif change <= arrival:
                self._lives.change(self._changes.popleft())
            else:
                assert coming is not None
                self._following.submit(coming)
                coming = next(arrivals, None)
            self._lives.settle_down()
        self._audience.rested(self.now, math.inf)

    def _move(self, to: float) -> None:
        now = self._agenda.now
        if to > now:
            if now > -math.inf:
                self._audience.rested(now, to)
            self._agenda.now = to
            self._fruitless = 0

    # --- cycles

    def _cycle_at(self) -> float:
        """When the next cycle begins; infinite if there is nothing to decide."""
        now = self._agenda.now
        if self.engine.has_work(now):
            at = now
        else:
            deadline = self.engine.next_deadline()
            if deadline is None or self._idle > IDLE_LOOKS:
                return math.inf
            at = max(deadline, now)
        at = max(at, self._not_before)
        every = self._timing.cycle_seconds
        return math.ceil(at / every) * every if every else at

    def _cycle(self) -> None:
        self._idle += 1
        self._fruitless += 1
        now = self._agenda.now
        self._not_before = now + self._timing.cycle_seconds
        cycle = self.engine.next_cycle(now)
        if cycle is not None:
            self.cycles += 1
            settled = self.engine.settle(decide(cycle, now), now)
            if settled.admissions or settled.preemptions:
                self._fruitless = self._idle = 0
            self._lives.carry_out(settled)
            self._lives.settle_down()
        if self._fruitless > STALL_AFTER + len(self.live):
            self.stalls += 1
            self._not_before = now + STALL_SECONDS
