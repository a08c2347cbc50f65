"""The driver: tells the engine in virtual time what a cluster would tell it, and does as it says.

    arrival  -> Workload created                    cycle -> admissions and evictions written
    end      -> Workload gone                       look  -> the next step of a Workload's life
    stopped  -> quota of an evicted Workload free

Every decision is the manager's: `Engine` and `decide` for admissions and preemptions,
`workload.plan` for everything that follows. Time moves from one event to the next, so the cost
grows with the events, not with the time between them.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

import attrs

from kueuelib.api.codec import encode
from kueuelib.api.kueue import CHECK_PENDING, CHECK_READY
from kueuelib.api.meta import Obj, ObjectKey, format_time
from kueuelib.api.names import PODS_READY, REQUEUED
from kueuelib.errors import ConfigError
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Admit, decide
from kueuelib.scheduler.decide.preemption.victims import Preemption, Victim
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.events import Effects
from kueuelib.scheduler.explain.world import World, difference
from kueuelib.simulator.changes import Change
from kueuelib.simulator.cluster import Cluster
from kueuelib.simulator.listener import Listener
from kueuelib.simulator.live import Live, arriving
from kueuelib.simulator.values import END_OF_TIME
from kueuelib.simulator.work import Job
from kueuelib.workload import states
from kueuelib.workload.around import surroundings
from kueuelib.workload.editing import set_condition, with_status
from kueuelib.workload.life import LifeSettings
from kueuelib.workload.plan import next_step
from kueuelib.workload.states import Phase

DEACTIVATED = "deactivated"
"""How a job ends whose Workload was deactivated: a limit was reached, or a check rejected it."""

NODES_LOST = "NodesLost"
"""Why a job is evicted whose flavor is lost."""

STALL_AFTER = 1000
"""Cycles in vain at one instant, beyond one per job, before time moves on."""
STALL_SECONDS = 1.0
IDLE_LOOKS = 10_000
"""Cycles without any event between them, before what still waits is given up."""


@attrs.frozen
class Timing:
    """What takes time besides the jobs.

    Attributes:
        stop_seconds: from the eviction of a running job until its quota is free.
        ready_seconds: from admission until its pods are ready; matters with `waitForPodsReady`.
        check_seconds: by AdmissionCheck, from the reservation until it is Ready; 0 for others.
        cycle_seconds: cycles begin at whole multiples of this; 0: whenever there is work.
    """

    stop_seconds: float = 0.0
    ready_seconds: float = 0.0
    check_seconds: Mapping[str, float] = attrs.field(factory=dict)
    cycle_seconds: float = 0.0


@attrs.frozen(order=True)
class _Planned:
    """Something that happens at a certain time; equal times in the order in which planned."""

    at: float
    number: int
    act: Callable[[], None] = attrs.field(order=False)


class Driver:
    """Runs jobs through the engine.

    Args:
        cluster: the queues and settings at first.
        listeners: hear what happens, in this order.
        changes: of the cluster, in the order of time.
        life: what the configuration says about time.
        timing: how long things take.

    Attributes:
        now: the virtual time.
        events: how many arrivals, ends and other planned events there were.
        cycles: how many cycles were decided.
        stalls: how often cycles at one instant came to nothing for so long that time moved on.
        orphans: how many jobs were to follow a job that was never seen.
        live: the jobs that have arrived and not ended.
        interrupted: whether `stop` was called.
    """

    def __init__(
        self,
        cluster: Cluster,
        listeners: Iterable[Listener] = (),
        *,
        changes: Iterable[Change] = (),
        life: LifeSettings | None = None,
        timing: Timing | None = None,
    ) -> None:
        self._cluster = cluster
        self._listeners = tuple(listeners)
        self._changes = deque(changes)
        self._life = life or LifeSettings()
        self._timing = timing or Timing()
        self._objects = _Objects(cluster)
        self.engine = Engine(cluster.world.settings)
        self.now = -math.inf
        self.events = self.cycles = self.stalls = self.orphans = 0
        self.live: dict[ObjectKey, Live] = {}
        self._planned: list[_Planned] = []
        self._number = 0
        self._due: dict[ObjectKey, None] = {}
        self._followers: dict[ObjectKey, list[Job]] = {}
        self._awaited: Collection[ObjectKey] = frozenset()
        self._ended: dict[ObjectKey, float] = {}
        self._fruitless = self._idle = 0
        self._not_before = -math.inf
        self.interrupted = False

    def stop(self) -> None:
        """Ends `run` after what is being done; may be called from a signal handler."""
        self.interrupted = True

    def world(self) -> World:
        """The facts at this instant, for `explain`."""
        workloads = {key: live.workload for key, live in self.live.items()}
        return attrs.evolve(self._cluster.world, workloads=workloads)

    def run(self, jobs: Iterable[Job], awaited: Collection[ObjectKey] = frozenset()) -> None:
        """Runs until nothing can happen any more, or the year 9999 begins.

        Args:
            jobs: in the order of their arrivals; taken one by one.
            awaited: the keys of the jobs that others follow.

        Raises:
            ConfigError: two jobs of one name at the same time.
        """
        self._awaited = awaited
        arrivals = iter(jobs)
        coming = next(arrivals, None)
        if coming is not None:
            self._move(coming.arrival)
        for event in self._cluster.world.events():
            self.engine.observe(event, self.now)
        while not self.interrupted:
            planned = self._planned[0].at if self._planned else math.inf
            arrival = math.inf if coming is None else coming.arrival
            # What happens to a cluster without jobs does not matter any more.
            matters = coming is not None or self._planned or self.live
            change = self._changes[0].at if self._changes and matters else math.inf
            soonest = min(planned, arrival, change)
            if soonest >= END_OF_TIME:
                soonest = math.inf
            if soonest > self.now:
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
                heapq.heappop(self._planned).act()
            elif change <= arrival:
                self._change(self._changes.popleft())
            else:
                assert coming is not None
                self._submit(coming)
                coming = next(arrivals, None)
            self._settle_down()
        for listener in self._listeners:
            listener.rested(self.now, math.inf)

    def _move(self, to: float) -> None:
        if to > self.now:
            if self.now > -math.inf:
                for listener in self._listeners:
                    listener.rested(self.now, to)
            self.now = to
            self._fruitless = 0

    def _plan(self, at: float, act: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._planned, _Planned(at, self._number, act))

    # --- cycles

    def _cycle_at(self) -> float:
        """When the next cycle begins, infinite when there is nothing to decide."""
        if self.engine.has_work(self.now):
            at = self.now
        else:
            deadline = self.engine.next_deadline()
            if deadline is None or self._idle > IDLE_LOOKS:
                return math.inf
            at = max(deadline, self.now)
        at = max(at, self._not_before)
        every = self._timing.cycle_seconds
        return math.ceil(at / every) * every if every else at

    def _cycle(self) -> None:
        self._idle += 1
        self._fruitless += 1
        self._not_before = self.now + self._timing.cycle_seconds
        found = self.engine.next_cycle(self.now)
        if found is not None:
            self.cycles += 1
            settled = self.engine.settle(decide(found, self.now), self.now)
            if settled.admissions or settled.preemptions:
                self._fruitless = self._idle = 0
            self._carry_out(settled)
            self._settle_down()
        if self._fruitless > STALL_AFTER + len(self.live):
            self.stalls += 1
            self._not_before = self.now + STALL_SECONDS

    def _carry_out(self, settled: Settled) -> None:
        for admit in settled.admissions:
            self._reserve(admit)
        for preemption in settled.preemptions:
            for victim in preemption.victims:
                self._preempt(victim, preemption)
        self._spread(settled.effects)

    def _spread(self, effects: Effects) -> None:
        self._due.update(dict.fromkeys(key for key in effects.workloads if key in self.live))

    def _reserve(self, admit: Admit) -> None:
        live = self.live[admit.key]
        self._hold(live, admit)
        admission = encode(admit.admission)
        self._store(live, states.reserve(live.raw, admission, admit.required_checks, self.now))

    def _hold(self, live: Live, admit: Admit | None) -> None:
        holder = self.engine.cache.holder(live.key)
        assert holder is not None, "what was admitted is charged"
        live.holds, live.usage, live.cluster_queue = True, holder.usage, holder.cluster_queue
        for listener in self._listeners:
            listener.reserved(live, admit, self.now)

    def _preempt(self, victim: Victim, preemption: Preemption) -> None:
        live = self.live[victim.key]
        live.preemptions += 1
        for listener in self._listeners:
            listener.preempted(live, preemption, self.now)
        message = preemption.message(victim)
        self._store(live, states.preempt(live.raw, victim.path.value, message, self.now))

    def _change(self, change: Change) -> None:
        """The cluster is another one from now on."""
        before, self._cluster = self._cluster.world, change.cluster
        self._objects = _Objects(change.cluster)
        for event in difference(before, change.cluster.world):
            self._observe(event)
        for listener in self._listeners:
            listener.cluster_changed(change.cluster, self.now)
        for live in [*self.live.values()]:
            lost = sorted(change.lost & {pair.flavor for pair in live.usage})
            if lost and live.holds and states.phase_of(live.raw) is not Phase.EVICTING:
                message = f"The nodes of flavor {', '.join(lost)} are gone"
                self._store(live, states.evict(live.raw, NODES_LOST, message, self.now))
        self._due.update(dict.fromkeys(self.live))

    # --- the life of a Workload

    def _store(self, live: Live, raw: Obj) -> None:
        """A Workload has a new state."""
        live.set_raw(raw)
        self._observe(events.WorkloadSet(live.workload))
        self._due[live.key] = None
        self._react(live)

    def _react(self, live: Live) -> None:
        """The job does what the phase of its Workload says."""
        match states.phase_of(live.raw):
            case Phase.ADMITTED if live.started is None:
                self._start(live)
            case Phase.EVICTING if not live.stopping:
                self._stop(live)
            case Phase.PENDING if live.holds:
                self._release(live)
                if not states.is_active(live.raw):
                    self._end(live, DEACTIVATED)

    def _observe(self, event: events.Event) -> None:
        self._spread(self.engine.observe(event, self.now))

    def _settle_down(self) -> None:
        """Takes the next steps of all Workloads that something happened to."""
        while self._due:
            key = next(iter(self._due))
            del self._due[key]
            live = self.live.get(key)
            if live is not None:
                self._look(live)

    def _look(self, live: Live) -> None:
        around = surroundings(live.raw, self._objects, self.engine, self._life)
        step = next_step(live.raw, around, self.now)
        if step.make_room:
            self._carry_out(self.engine.make_room(live.key))
        if step.deactivate:
            self._store(live, {**live.raw, "spec": {**live.raw["spec"], "active": False}})
        elif step.workload is not None:
            self._store(live, step.workload)
        elif step.look_again is not None:
            self._later(max(step.look_again, self.now + 0.001), live, self._due_again)
        if states.phase_of(live.raw) is Phase.RESERVED:
            self._ask_checks(live)

    def _later(self, at: float, live: Live, act: Callable[[Live], None]) -> None:
        """Plans what is void once the job has started, stopped or ended."""
        turn = live.turn

        def planned() -> None:
            if live.turn == turn and self.live.get(live.key) is live:
                act(live)

        self._plan(at, planned)

    def _due_again(self, live: Live) -> None:
        self._due[live.key] = None

    def _ask_checks(self, live: Live) -> None:
        for name in states.checks_in(live.raw, CHECK_PENDING):
            if name not in live.asked:
                live.asked.add(name)
                delay = self._timing.check_seconds.get(name, 0.0)
                self._later(self.now + delay, live, partial(self._pass, name=name))

    def _pass(self, live: Live, *, name: str) -> None:
        """A check says Ready."""
        ready = {"state": CHECK_READY, "lastTransitionTime": format_time(self.now)}
        entries = [
            {**entry, **ready} if entry["name"] == name else entry
            for entry in states.check_states(live.raw)
        ]
        self._store(live, with_status(live.raw, admissionChecks=entries))

    def _start(self, live: Live) -> None:
        seconds = live.start(self.now)
        for listener in self._listeners:
            listener.started(live, self.now)
        self._later(self.now + seconds, live, self._done)
        if self._life.pods_ready is not None:
            self._later(self.now + self._timing.ready_seconds, live, self._ready)

    def _ready(self, live: Live) -> None:
        raw = set_condition(live.raw, PODS_READY, "True", PODS_READY, "", self.now)
        self._store(live, raw)

    def _stop(self, live: Live) -> None:
        ran = live.started is not None
        live.stopping = True
        live.stop(self.now)
        self._later(self.now + (self._timing.stop_seconds if ran else 0.0), live, self._stopped_)

    def _stopped_(self, live: Live) -> None:
        raw = live.raw
        if states.condition(raw, PODS_READY):
            raw = set_condition(raw, PODS_READY, "False", PODS_READY, "", self.now)
        raw = states.release(raw, self.now)
        if states.condition(raw, REQUEUED)["reason"] == NODES_LOST:
            raw = states.requeue(raw, self.now)
        self._store(live, raw)

    def _release(self, live: Live) -> None:
        """Quota is free: after an eviction, or because the reservation was taken back."""
        if not live.stopping:
            live.stop(self.now)
        live.stopping = False
        live.asked.clear()
        for listener in self._listeners:
            listener.released(live, self.now)
        live.holds = False

    # --- the life of a job

    def _submit(self, job: Job) -> None:
        key = ObjectKey(job.namespace, job.name)
        before = ObjectKey(job.namespace, job.after)
        if not job.after:
            self._arrive(job)
        elif before in self._ended:
            self._follow(job, self._ended[before])
        elif before in self.live or before in self._followers:
            self._followers.setdefault(before, []).append(job)
            self._followers.setdefault(key, [])
        else:
            self.orphans += 1
            self._arrive(job)

    def _follow(self, job: Job, ended: float) -> None:
        at = ended + job.think_seconds
        if at <= self.now:
            self._arrive(job)
        else:
            self._followers.setdefault(ObjectKey(job.namespace, job.name), [])
            self._plan(at, lambda: self._arrive(job))

    def _arrive(self, job: Job) -> None:
        key = ObjectKey(job.namespace, job.name)
        if key in self.live:
            raise ConfigError(f"job {key}", "two jobs have this name", "give each its own name")
        self._number += 1
        live = self.live[key] = arriving(job, self._number, self.now)
        for listener in self._listeners:
            listener.arrived(live, self.now)
        self._observe(events.WorkloadSet(live.workload))
        self._due[key] = None
        if states.has_quota(live.raw):
            live.given = True
            self._hold(live, None)
            self._react(live)

    def _done(self, live: Live) -> None:
        live.turn += 1
        self._observe(events.WorkloadGone(live.key))
        for listener in self._listeners:
            listener.released(live, self.now)
        self._end(live, live.job.end)

    def _end(self, live: Live, end: str) -> None:
        del self.live[live.key]
        if end == DEACTIVATED:
            self._observe(events.WorkloadGone(live.key))
        for listener in self._listeners:
            listener.ended(live, end, self.now)
        if live.key in self._awaited:
            self._ended[live.key] = self.now
        for job in self._followers.pop(live.key, ()):
            self._follow(job, self.now)


class _Objects:
    """The objects of a cluster, as `surroundings` asks for them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def local_queue(self, key: ObjectKey) -> Obj | None:
        return self._cluster.local_queues.get(key)

    def cluster_queue(self, name: str) -> Obj | None:
        return self._cluster.cluster_queues.get(name)

    def check(self, name: str) -> Obj | None:
        return self._cluster.checks.get(name)
