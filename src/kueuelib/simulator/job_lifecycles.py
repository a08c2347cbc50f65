"""The jobs that have arrived and not ended, each handled by the manager's own rules.

admission -> reserved        look    -> the next step of a Workload's life
eviction  -> stops           stopped -> its quota is free
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from functools import partial

import attrs

from kueuelib.api.codec import encode
from kueuelib.api.kueue import CHECK_PENDING, CHECK_READY
from kueuelib.api.meta import Obj, ObjectKey, format_time
from kueuelib.api.names import PODS_READY, REQUEUED
from kueuelib.errors import ConfigError
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Admit
from kueuelib.scheduler.decide.preemption.victims import PendingPreemption, Victim
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.events import Effects
from kueuelib.scheduler.explain.world import World, difference
from kueuelib.simulator.changes import ClusterChange
from kueuelib.simulator.cluster import ClusterSetup
from kueuelib.simulator.live import Listener, Live, arriving
from kueuelib.simulator.trace import TraceJob
from kueuelib.workload import states
from kueuelib.workload.life import LifeSettings
from kueuelib.workload.next_step import next_step, workload_context
from kueuelib.workload.phases import set_condition, with_status
from kueuelib.workload.states import Phase

# ---- the virtual time, and the planned events ----------------------------------------------------


class Agenda:
    """Planned events by time.

    Attributes:
        now: the virtual time.
    """

    def __init__(self) -> None:
        self.now = -math.inf
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def plan(self, at: float, act: Callable[[], None]) -> None:
        """Plans an event; events at equal times happen in the order they were planned."""
        self._number += 1
        heapq.heappush(self._planned, (at, self._number, act))

    @property
    def next_at(self) -> float:
        """The time of the next event; infinite if there is none."""
        return self._planned[0][0] if self._planned else math.inf

    def act(self) -> None:
        """Executes the next event."""
        _, _, act = heapq.heappop(self._planned)
        act()


# ---- the durations in a simulation besides run times ---------------------------------------------


@attrs.frozen
class Timing:
    """The durations in a simulation besides run times.

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


# --------------------------------------------------------------------------------------------------

DEACTIVATED = "deactivated"
"""The end of a job whose Workload was deactivated: a limit was reached, or a check rejected it."""
NODES_LOST = "NodesLost"
"""The reason for evicting a job whose flavor is lost."""


class JobLifecycles:
    """Keeps the engine and the jobs in the same state.

    Args:
        cluster: the initial queues and settings.
        audience: receives what happens.
        agenda: the time, and planned events.
        life: the settings for times.
        timing: the durations besides run times.
        over: called with every job that has ended.

    Attributes:
        engine: has the facts of a cluster.
        live: the jobs.
    """

    def __init__(
        self,
        cluster: ClusterSetup,
        audience: Listener,
        agenda: Agenda,
        life: LifeSettings,
        timing: Timing,
        over: Callable[[ObjectKey], None],
    ) -> None:
        self._cluster = cluster
        self._audience = audience
        self._agenda = agenda
        self._life = life
        self._timing = timing
        self._over = over
        self._objects = _Objects(cluster)
        self._due: dict[ObjectKey, None] = {}
        self._number = 0
        self.engine = Engine(cluster.world.settings)
        self.live: dict[ObjectKey, Live] = {}

    @property
    def _now(self) -> float:
        return self._agenda.now

    def world(self) -> World:
        """The facts at this instant, for `explain`."""
        workloads = {key: live.workload for key, live in self.live.items()}
        return attrs.evolve(self._cluster.world, workloads=workloads)

    def begin(self) -> None:
        """Passes the objects of the cluster to the engine."""
        self.engine.observe_all(self._cluster.world.events(), self._now)

    def carry_out(self, settled: Settled) -> None:
        """Writes admissions and evictions."""
        for admit in settled.admissions:
            self._reserve(admit)
        for preemption in settled.preemptions:
            for victim in preemption.victims:
                self._preempt(victim, preemption)
        self._spread(settled.effects)

    def _spread(self, effects: Effects) -> None:
        for key in effects.workloads:
            if key in self.live:
                self._due[key] = None

    def _reserve(self, admit: Admit) -> None:
        live = self.live[admit.key]
        self._hold(live, admit)
        admission = encode(admit.admission)
        self._store(live, states.reserve(live.raw, admission, admit.required_checks, self._now))

    def _hold(self, live: Live, admit: Admit | None) -> None:
        holder = self.engine.cache.holder(live.key)
        assert holder is not None, "what was admitted is charged"
        live.holds, live.usage, live.cluster_queue = True, holder.usage, holder.cluster_queue
        self._audience.reserved(live, admit, self._now)

    def _preempt(self, victim: Victim, preemption: PendingPreemption) -> None:
        live = self.live[victim.key]
        live.preemptions += 1
        self._audience.preempted(live, preemption, self._now)
        message = preemption.message(victim)
        self._store(live, states.preempt(live.raw, victim.path.value, message, self._now))

    def change(self, change: ClusterChange) -> None:
        """Replaces the cluster."""
        before, self._cluster = self._cluster.world, change.cluster
        self._objects = _Objects(change.cluster)
        for event in difference(before, change.cluster.world):
            self._observe(event)
        self._audience.cluster_changed(change.cluster, self._now)
        for live in [*self.live.values()]:
            lost = sorted(change.lost & {pair.flavor for pair in live.usage})
            if lost and live.holds and states.phase_of(live.raw) is not Phase.EVICTING:
                message = f"The nodes of flavor {', '.join(lost)} are gone"
                self._store(live, states.evict(live.raw, NODES_LOST, message, self._now))
        self._due.update(dict.fromkeys(self.live))

    # --- the life of a Workload

    def _store(self, live: Live, raw: Obj) -> None:
        """Stores a new state of a Workload."""
        live.set_raw(raw)
        self._observe(events.WorkloadSet(live.workload))
        self._due[live.key] = None
        self._react(live)

    def _react(self, live: Live) -> None:
        """The job follows the phase of its Workload."""
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
        self._spread(self.engine.observe(event, self._now))

    def settle_down(self) -> None:
        """Takes the next steps of all changed Workloads."""
        while self._due:
            key = next(iter(self._due))
            del self._due[key]
            live = self.live.get(key)
            if live is not None:
                self._look(live)

    def _look(self, live: Live) -> None:
        self.engine.advance(self._now)
        around = workload_context(live.raw, self._objects, self.engine, self._life)
        step = next_step(live.raw, around, self._now)
        if step.make_room:
            self.carry_out(self.engine.make_room(live.key))
        if step.deactivate:
            self._store(live, {**live.raw, "spec": {**live.raw["spec"], "active": False}})
        elif step.workload is not None:
            self._store(live, step.workload)
        elif step.look_again is not None:
            self._later(max(step.look_again, self._now + 0.001), live, self._due_again)
        if states.check_states(live.raw) and states.phase_of(live.raw) is Phase.RESERVED:
            self._ask_checks(live)

    def _later(self, at: float, live: Live, act: Callable[[Live], None]) -> None:
        """Plans an event that is void once the job has started, stopped or ended."""
        turn = live.turn

        def planned() -> None:
            if live.turn == turn and self.live.get(live.key) is live:
                act(live)

        self._agenda.plan(at, planned)

    def _due_again(self, live: Live) -> None:
        self._due[live.key] = None

    def _ask_checks(self, live: Live) -> None:
        for name in states.checks_in(live.raw, CHECK_PENDING):
            if name not in live.asked:
                live.asked.add(name)
                delay = self._timing.check_seconds.get(name, 0.0)
                self._later(self._now + delay, live, partial(self._pass, name=name))

    def _pass(self, live: Live, *, name: str) -> None:
        """Sets a check to Ready."""
        ready = {"state": CHECK_READY, "lastTransitionTime": format_time(self._now)}
        entries = [
            {**entry, **ready} if entry["name"] == name else entry
            for entry in states.check_states(live.raw)
        ]
        self._store(live, with_status(live.raw, admissionChecks=entries))

    def _start(self, live: Live) -> None:
        seconds = live.start(self._now)
        self._audience.started(live, self._now)
        self._later(self._now + seconds, live, self._done)
        if self._life.pods_ready is not None:
            self._later(self._now + self._timing.ready_seconds, live, self._ready)

    def _ready(self, live: Live) -> None:
        raw = set_condition(live.raw, PODS_READY, "True", PODS_READY, "", self._now)
        self._store(live, raw)

    def _stop(self, live: Live) -> None:
        ran = live.started is not None
        live.stopping = True
        live.stop(self._now)
        self._later(self._now + (self._timing.stop_seconds if ran else 0.0), live, self._stopped_)

    def _stopped_(self, live: Live) -> None:
        raw = live.raw
        if states.condition(raw, PODS_READY):
            raw = set_condition(raw, PODS_READY, "False", PODS_READY, "", self._now)
        raw = states.release(raw, self._now)
        if states.condition(raw, REQUEUED)["reason"] == NODES_LOST:
            raw = states.requeue(raw, self._now)
        self._store(live, raw)

    def _release(self, live: Live) -> None:
        """Frees quota after an eviction or a cancelled reservation."""
        if not live.stopping:
            live.stop(self._now)
        live.stopping = False
        live.asked.clear()
        self._audience.released(live, self._now)
        live.holds = False

    # --- the life of a job

    def arrive(self, job: TraceJob) -> None:
        """Submits a job.

        Raises:
            ConfigError: a job of this name exists.
        """
        key = ObjectKey(job.namespace, job.name)
        if key in self.live:
            raise ConfigError(f"job {key}", "two jobs have this name", "give each its own name")
        self._number += 1
        live = self.live[key] = arriving(job, self._number, self._now)
        self._audience.arrived(live, self._now)
        self._observe(events.WorkloadSet(live.workload))
        self._due[key] = None
        if states.has_quota(live.raw):
            live.given = True
            self._hold(live, None)
            self._react(live)

    def _done(self, live: Live) -> None:
        live.turn += 1
        self._observe(events.WorkloadGone(live.key))
        self._audience.released(live, self._now)
        self._end(live, live.job.end)

    def _end(self, live: Live, end: str) -> None:
        del self.live[live.key]
        if end == DEACTIVATED:
            self._observe(events.WorkloadGone(live.key))
        self._audience.ended(live, end, self._now)
        self._over(live.key)


class _Objects:
    """The objects of a cluster, for `workload_context`."""

    def __init__(self, cluster: ClusterSetup) -> None:
        self._cluster = cluster

    def local_queue(self, key: ObjectKey) -> Obj | None:
        return self._cluster.local_queues.get(key)

    def cluster_queue(self, name: str) -> Obj | None:
        return self._cluster.cluster_queues.get(name)

    def check(self, name: str) -> Obj | None:
        return self._cluster.checks.get(name)
