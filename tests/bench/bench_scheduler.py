"""The decision engine alone: decisions per second, time per cycle, time per search for victims.

All times are processor time of the one thread that decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

import attrs
import pytest
from baseline.shape import BASELINE, PREEMPTION, Shape
from baseline.shape import workload as raw_workload
from figures import percentile, show

from kueuelib.api import kinds
from kueuelib.api.codec import decode
from kueuelib.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor, Topology, Workload
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.api.names import ADMITTED, QUOTA_RESERVED
from kueuelib.api.workload import Admission
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Plan, decide
from kueuelib.scheduler.decide.preemption.search import find_victims
from kueuelib.scheduler.decide.preemption.victims import Preemptor
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.quota.snapshot import Snapshot
from kueuelib.scheduler.settings import DEFAULTS, FairSharingRules, Settings
from kueuelib.scheduler.topology.nodes import node_facts
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_cohort,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)


def engine_with(
    queues: int,
    cohorts: int,
    nominal: int,
    borrowing: int,
    strategy: str = "BestEffortFIFO",
    settings: Settings = DEFAULTS,
) -> Engine:
    """ClusterQueues with one flavor and one resource each, and a LocalQueue of the same name."""
    engine = Engine(settings)
    engine.observe(events.NamespaceSet("ns", {}), 0.0)
    engine.observe(events.FlavorSet(make_flavor("std")), 0.0)
    for number in range(queues):
        name = f"q{number:04}"
        queue = make_cluster_queue(
            name,
            {"std": {"cpu": {"nominal": nominal, "borrowing": borrowing}}},
            cohort=f"c{number % cohorts}",
            queueingStrategy=strategy,
            preemption=PREEMPTION,
        )
        engine.observe(events.ClusterQueueSet(queue), 0.0)
        engine.observe(events.LocalQueueSet(make_local_queue(name, name)), 0.0)
    return engine


def running(name: str, queue: str, cpu: int, priority: int = 0, at: float = 1.0) -> Workload:
    return make_workload(
        name,
        queue,
        {"cpu": cpu},
        priority=priority,
        created=at,
        conditions=(make_condition(QUOTA_RESERVED, at=at), make_condition(ADMITTED, at=at)),
        status={
            "admission": {
                "clusterQueue": queue,
                "podSetAssignments": [make_assignment({"cpu": cpu}, "std")],
            }
        },
    )


def cycle(engine: Engine, now: float) -> tuple[Plan, Settled] | None:
    cycle_input = engine.next_cycle(now)
    if cycle_input is None:
        return None
    plan = decide(cycle_input, now)
    return plan, engine.settle(plan, now)


def engine_of(shape: Shape) -> Engine:
    """The queues of a shape, and its nodes if it has any."""
    engine = Engine(DEFAULTS)
    for resource, obj in shape.queue_objects():
        engine.observe(_EVENTS[resource](obj), 0.0)
    return engine


_EVENTS: dict[Resource, Callable[[Obj], events.Event]] = {
    kinds.TOPOLOGIES: lambda obj: events.TopologySet(decode(Topology, obj)),
    kinds.NODES: lambda obj: events.NodeSet(node_facts(obj)),
    kinds.RESOURCE_FLAVORS: lambda obj: events.FlavorSet(decode(ResourceFlavor, obj)),
    kinds.CLUSTER_QUEUES: lambda obj: events.ClusterQueueSet(decode(ClusterQueue, obj)),
    kinds.NAMESPACES: lambda obj: events.NamespaceSet(obj["metadata"]["name"], {}),
    kinds.LOCAL_QUEUES: lambda obj: events.LocalQueueSet(decode(LocalQueue, obj)),
}


@attrs.define
class Replay:
    """Upstream's benchmark in virtual time: every workload comes, runs and ends."""

    shape: Shape
    engine: Engine = attrs.field(init=False)
    decisions: int = 0
    cycles: int = 0
    admissions: int = 0
    preemptions: int = 0
    seconds: list[float] = attrs.field(factory=list)
    _workloads: dict[ObjectKey, Workload] = attrs.field(factory=dict)
    _lasts: dict[ObjectKey, float] = attrs.field(factory=dict)
    _runs: dict[ObjectKey, int] = attrs.field(factory=dict)
    _agenda: list[tuple[float, int, str, ObjectKey, int]] = attrs.field(factory=list)

    @engine.default
    def _engine(self) -> Engine:
        return engine_of(self.shape)

    def run(self) -> float:
        for moment, workload, lasts in sorted(self._arrivals(), key=lambda each: each[0]):
            key = workload.key
            self._workloads[key], self._lasts[key] = workload, lasts
            heappush(self._agenda, (moment, len(self._agenda), "comes", key, 0))
        number = len(self._agenda)
        while self._agenda:
            now, _, what, key, run = heappop(self._agenda)
            workload = self._workloads[key]
            if what == "comes":
                self.engine.observe(events.WorkloadSet(workload), now)
            elif run == self._runs[key]:
                self.engine.observe(events.WorkloadGone(key), now)
            if self._agenda and self._agenda[0][0] == now:
                continue
            while True:
                start = time.thread_time()
                done = cycle(self.engine, now)
                if done is None:
                    break
                self.seconds.append(time.thread_time() - start)
                plan, settled = done
                self.cycles += 1
                self.decisions += len(plan.admissions) + len(plan.waits)
                self.admissions += len(settled.admissions)
                for admit in settled.admissions:
                    number += 1
                    run = self._runs[admit.key] = self._runs.get(admit.key, 0) + 1
                    end = now + self._lasts[admit.key]
                    heappush(self._agenda, (end, number, "ends", admit.key, run))
                    self._show(admit.key, admit.admission, now)
                for preemption in settled.preemptions:
                    for victim in preemption.victims:
                        self.preemptions += 1
                        self._runs[victim.key] += 1
                        workload = self._workloads[victim.key]
                        self.engine.observe(events.WorkloadSet(workload), now)
        return now

    def _show(self, key: ObjectKey, admission: Admission, now: float) -> None:
        workload = self._workloads[key]
        conditions = make_workload(
            "w", "q", conditions=[make_condition(QUOTA_RESERVED, at=now)]
        ).status.conditions
        status = attrs.evolve(workload.status, admission=admission, conditions=conditions)
        self.engine.observe(events.WorkloadSet(attrs.evolve(workload, status=status)), now)

    def _arrivals(self) -> Iterator[tuple[float, Workload, float]]:
        """Workloads of one class share their pod sets, as those of an informer do."""
        for kind in self.shape.classes:
            pod_sets = None
            for place in self.shape.places():
                for number in range(kind.count):
                    created = kind.interval * (number + 1)
                    found = decode(Workload, raw_workload(place, kind, number))
                    pod_sets = pod_sets or found.spec.pod_sets
                    meta = found.metadata.evolve(uid=str(found.key), creation_timestamp=created)
                    spec = found.spec.evolve(pod_sets=pod_sets)
                    yield created, found.evolve(metadata=meta, spec=spec), kind.seconds


def test_decisions_per_second_on_the_shape_of_upstreams_benchmark() -> None:
    replay = Replay(BASELINE)
    span = replay.run()
    spent = sum(replay.seconds)
    assert replay.engine.pending("bench-0-0") == ()
    show(
        "scheduler: 30 ClusterQueues in 5 cohorts, 15,000 workloads that come, run and end",
        [
            ("decisions per second", f"{replay.decisions / spent:,.0f}"),
            ("decisions, admissions", f"{replay.decisions:,}, {replay.admissions:,}"),
            ("preemptions", f"{replay.preemptions:,}"),
            ("cycles", f"{replay.cycles:,} in {spent:.1f} s"),
            ("virtual time", f"{span:.0f} s (66 s when fully packed)"),
        ],
    )


def test_cycles_with_a_thousand_queues_and_a_hundred_thousand_pending() -> None:
    start = time.thread_time()
    engine = engine_with(1000, 100, 10, 10)
    for queue in range(1000):
        for number in range(10):
            workload = running(f"r-{queue}-{number}", f"q{queue:04}", 1)
            engine.observe(events.WorkloadSet(workload), 0.0)
        for number in range(100):
            name, cpu = f"p-{queue}-{number}", 1 + number % 3
            waits = make_workload(name, f"q{queue:04}", {"cpu": cpu}, created=float(number))
            engine.observe(events.WorkloadSet(waits), 0.0)
    ready = time.thread_time() - start
    first = _drain(engine)
    again = []
    for number in range(300):
        queue = number % 1000
        gone = running(f"r-{queue}-0", f"q{queue:04}", 1)
        start = time.thread_time()
        engine.observe(events.WorkloadGone(gone.key), 1.0)
        cycle(engine, 1.0)
        again.append(time.thread_time() - start)
    show(
        "scheduler: 1,000 ClusterQueues in 100 cohorts, 10,000 admitted, 100,000 pending",
        [
            ("to take all of it over", f"{ready:.1f} s"),
            ("the first cycles, in which all shapes are tried", _spread(first)),
            ("a workload ends, the next one of its queue is admitted", _spread(again)),
        ],
    )


def _drain(engine: Engine) -> list[float]:
    spent = []
    while True:
        start = time.thread_time()
        if cycle(engine, 0.5) is None:
            return spent
        spent.append(time.thread_time() - start)


def _changes(engine: Engine, count: int) -> list[float]:
    """Lets a running Workload leave and come back; seconds of each such change and its cycle."""
    changed = running("r-0-0", "q0000", 1)
    spent = []
    for _ in range(count):
        start = time.thread_time()
        engine.observe(events.WorkloadGone(changed.key), 1.0)
        engine.observe(events.WorkloadSet(changed), 1.0)
        outcome = cycle(engine, 1.0)
        spent.append(time.thread_time() - start)
        assert outcome is not None
        assert not outcome[0].admissions
        assert not outcome[0].preemptions
    return spent


def plant(engine: Engine, queues: int) -> None:
    """Puts the cohorts of ten ClusterQueues each into a tree: ten of them below each of ten."""
    for number in range(queues // 10):
        parent = f"middle{number // 10}"
        engine.observe(events.CohortChanged(make_cohort(parent, parent="root")), 0.0)
        engine.observe(events.CohortChanged(make_cohort(f"c{number}", parent=parent)), 0.0)


@pytest.mark.parametrize("where", ["cohorts of ten", "one cohort", "a tree of ten by ten by ten"])
def test_time_per_cycle_after_one_change(where: str) -> None:
    rows = []
    for queues in (10, 100, 1000):
        cohorts = 1 if where == "one cohort" else queues // 10
        engine = engine_with(queues, cohorts, 10, 0, "StrictFIFO")
        if where.startswith("a tree"):
            plant(engine, queues)
        for queue in range(queues):
            for number in range(10):
                workload = running(f"r-{queue}-{number}", f"q{queue:04}", 1)
                engine.observe(events.WorkloadSet(workload), 0.0)
        engine.observe(events.WorkloadSet(make_workload("head", "q0000", {"cpu": 5})), 0.0)
        _drain(engine)
        spent = _changes(engine, 200)
        rows.append((f"{queues:,} ClusterQueues", _spread(spent)))
    show(f"scheduler: one change and the cycle after it, a blocked head, {where}", rows)


@pytest.mark.parametrize("sharing", ["with fair sharing", "without fair sharing"])
@pytest.mark.parametrize("where", ["one cohort", "a tree of ten by ten by ten"])
def test_time_per_cycle_with_heads_that_preempt(where: str, sharing: str) -> None:
    """Every other ClusterQueue borrows, so the blocked head looks at all of these for victims."""
    settings = Settings(fair_sharing=FairSharingRules() if sharing.startswith("with ") else None)
    rows = []
    for queues in (10, 100, 1000):
        cohorts = 1 if where == "one cohort" else queues // 10
        engine = engine_with(queues, cohorts, 10, 5, "StrictFIFO", settings)
        if where.startswith("a tree"):
            plant(engine, queues)
        for queue in range(queues):
            for number in range(12 if queue % 2 else 8):
                workload = running(f"r-{queue}-{number}", f"q{queue:04}", 1)
                engine.observe(events.WorkloadSet(workload), 0.0)
        engine.observe(events.WorkloadSet(make_workload("head", "q0001", {"cpu": 3})), 0.0)
        _drain(engine)
        blocked = _changes(engine, 50)
        rows.append((f"{queues:,} ClusterQueues, a blocked head", _spread(blocked)))
        for queue in range(0, queues, 2):
            name = f"q{queue:04}"
            wants = make_workload(f"p-{queue}", name, {"cpu": 1})
            engine.observe(events.WorkloadSet(wants), 2.0)
        start = time.thread_time()
        found_cycle = cycle(engine, 2.0)
        spent = time.thread_time() - start
        assert found_cycle is not None
        heads = len(found_cycle[0].order)
        rows.append((f"{queues:,} ClusterQueues, {heads} heads", f"{spent * 1000:.2f} ms"))
    show(f"scheduler: cycles {sharing}, {where}", rows)


def test_time_per_search_for_victims_among_ten_thousand() -> None:
    engine = engine_with(2, 1, 10_000, 10_000)
    for number in range(10_000):
        queue = "q0000" if number % 2 else "q0001"
        workload = running(f"r-{number}", queue, 2, priority=number % 50, at=float(number))
        engine.observe(events.WorkloadSet(workload), 0.0)
    start = time.thread_time()
    frozen = engine.cache.freeze(["q0000"])
    rows = [("to freeze the ClusterQueues", f"{(time.thread_time() - start) * 1000:.2f} ms")]
    snapshot = Snapshot(frozen)
    queue = frozen.queues["q0000"]
    (pair,) = queue.usage
    for cpu in (1, 100, 9_990, 20_000):
        spent = []
        for _ in range(5):
            start = time.thread_time()
            search = find_victims(
                snapshot, Preemptor(queue, 49, 0.0), frozenset((pair,)), {pair: cpu * 1000}
            )
            spent.append(time.thread_time() - start)
        rows.append((f"{len(search.victims):,} of 10,000 victims", _spread(spent)))
    assert not search.victims
    show("scheduler: one search for victims", rows)


def _spread(spent: list[float]) -> str:
    parts = [f"p{each} {percentile(spent, each) * 1000:.2f} ms" for each in (50, 90)]
    return ", ".join([*parts, f"max {max(spent) * 1000:.2f} ms"])
