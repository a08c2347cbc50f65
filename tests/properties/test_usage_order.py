"""The order of LocalQueues by past usage: what it comes to in the long run, and that it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from fractions import Fraction
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kueuelib.api.meta import ObjectKey
from kueuelib.api.preemption_policies import WITHIN_CLUSTER_QUEUE
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.quota.past_usage import UsageRule
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)

BY_USAGE = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
RULE = UsageRule(half_life=1200.0, interval=60.0)
START = 6000.0
MOST_CYCLES = 400


class Cluster:
    """An engine with one ClusterQueue, whose admissions are stored at once."""

    def __init__(self, cpu, weights, rule=RULE, **spec):
        self.now = START
        self.engine = Engine(Settings(past_usage=rule))
        self.running = {}
        self.admitted = []
        self.workloads = {}
        self.tell(
            events.NamespaceSet("ns", {}),
            events.FlavorSet(make_flavor("f")),
            events.ClusterQueueSet(
                make_cluster_queue("q", {"f": {"cpu": cpu}}, **BY_USAGE, **spec)
            ),
            *(
                events.LocalQueueSet(
                    make_local_queue(name, "q", fairSharing={"weight": str(weight)})
                )
                for name, weight in weights.items()
            ),
        )

    def tell(self, *found):
        self.engine.observe_all(found, self.now)

    def submit(self, name, queue, cpu, priority=0, created=0.0):
        found = make_workload(name, queue, {"cpu": cpu}, priority=priority, created=created)
        self.workloads[name] = (queue, cpu, priority, created)
        self.tell(events.WorkloadSet(found))

    def cycle(self):
        """One cycle; its victims leave at once and wait again. False when there was none."""
        given = self.engine.next_cycle(self.now)
        if given is None:
            return False
        settled = self.engine.settle(decide(given, self.now), self.now)
        for admit in settled.admissions:
            self.admitted.append(admit.key.name)
            self.store(admit.key.name)
        for preemption in settled.preemptions:
            for victim in preemption.victims:
                name = victim.key.name
                del self.running[name]
                self.submit(name, *self.workloads[name])
        return True

    def store(self, name):
        queue, cpu, priority, created = self.workloads[name]
        self.running[name] = self.now
        assignment = make_assignment({"cpu": cpu}, "f")
        found = make_workload(
            name,
            queue,
            {"cpu": cpu},
            priority=priority,
            created=created,
            conditions=[
                make_condition("QuotaReserved", at=self.now),
                make_condition("Admitted", at=self.now),
            ],
            status={"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}},
        )
        self.tell(events.WorkloadSet(found))

    def rest(self):
        for _ in range(MOST_CYCLES):
            if not self.cycle():
                return
        raise AssertionError("cycles do not end")

    def end(self, name):
        del self.running[name]
        self.tell(events.WorkloadGone(ObjectKey("ns", name)))


def shares(weights, *, steps=150, length=100, cpu=4):
    """What part of the time each LocalQueue had, if it always had something to run."""
    cluster = Cluster(cpu, weights)
    number, used = 0, dict.fromkeys(weights, 0)
    backlog = deque()
    for step in range(steps):
        for queue in weights:
            for _ in range(cpu):
                if step == 0:
                    cluster.submit(f"{queue}{number}", queue, 1, created=number)
                    number += 1
        while backlog:
            cluster.submit(f"{(queue := backlog.popleft())}{number}", queue, 1, created=number)
            number += 1
        before = len(cluster.admitted)
        cluster.rest()
        backlog += (cluster.workloads[name][0] for name in cluster.admitted[before:])
        for name in cluster.running:
            used[cluster.workloads[name][0]] += length if step > steps // 4 else 0
        cluster.now += length / cpu
        cluster.end(min(cluster.running, key=lambda name: (cluster.running[name], name)))
    total = sum(used.values())
    return {queue: amount / total for queue, amount in used.items()}


@settings(max_examples=4)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=3))
def test_with_constant_demand_usage_comes_to_the_weights(weights):
    names = {f"lq{number}": weight for number, weight in enumerate(weights)}
    found = shares(names)
    for name, weight in names.items():
        assert found[name] == pytest.approx(weight / sum(weights), abs=0.1)


def test_who_has_weight_0_gets_what_others_leave():
    found = shares({"some": 1, "none": 0})
    assert found == {"some": 1.0, "none": 0.0}


@attrs.frozen
class World:
    """A ClusterQueue full of workloads of several LocalQueues, and what may be preempted."""

    cpu: int
    strict: bool
    policy: str
    weights: dict[str, int]
    workloads: list[tuple[str, int, int]]


WORLDS = st.builds(
    World,
    cpu=st.integers(1, 6),
    strict=st.booleans(),
    policy=st.sampled_from(WITHIN_CLUSTER_QUEUE),
    weights=st.fixed_dictionaries({name: st.integers(0, 3) for name in "abc"}),
    workloads=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.integers(0, 2)),
        min_size=1,
        max_size=14,
    ),
)


def build(world):
    return Cluster(
        world.cpu,
        world.weights,
        queueingStrategy="StrictFIFO" if world.strict else "BestEffortFIFO",
        preemption={"withinClusterQueue": world.policy},
    )


@settings(max_examples=30)
@given(WORLDS, st.data())
def test_preemptions_by_usage_come_to_an_end_and_then_nobody_sleeps(world, data):
    cluster = build(world)
    for number, (queue, cpu, priority) in enumerate(world.workloads):
        cluster.submit(f"w{number}", queue, cpu, priority, created=float(number))
        if data.draw(st.booleans()):
            cluster.rest()
            cluster.now += data.draw(st.sampled_from([1, 59, 60, 1200]))
        if cluster.running and data.draw(st.integers(0, 4)) == 0:
            cluster.end(data.draw(st.sampled_from(sorted(cluster.running))))
    cluster.rest()
    free = world.cpu - sum(cluster.workloads[name][1] for name in cluster.running)
    waiting = [info.key.name for info in cluster.engine.pending("q")]
    looked_at = waiting[:1] if world.strict else waiting
    assert all(cluster.workloads[name][1] > free for name in looked_at)


@settings(max_examples=30)
@given(WORLDS, st.integers(0, 3000))
def test_the_queue_is_in_the_order_of_usage_then_priority_then_age(world, later):
    cluster = build(world)
    for number, (queue, cpu, priority) in enumerate(world.workloads):
        cluster.submit(f"w{number}", queue, cpu, priority, created=float(number))
    cluster.rest()
    cluster.now += later
    cluster.rest()
    past = cluster.engine.past_usage
    expected = []
    for name in (info.key.name for info in cluster.engine.pending("q")):
        queue, _, priority, created = cluster.workloads[name]
        expected.append((past.value(ObjectKey("ns", queue)), -priority, created))
    assert expected == sorted(expected)


def trace():
    """A long history in words, for every hash seed the same."""
    weights = {"x": 1, "y": 2, "z": 0.3}
    cluster = Cluster(5, weights, UsageRule(777.0, 61.0, {"cpu": Fraction(1, 3)}))
    for step in range(60):
        queue = "xyz"[step * step % 3]
        cluster.submit(f"{queue}{step}", queue, 1 + step % 3, step % 2, float(step))
        cluster.rest()
        cluster.now += 13.7
        if len(cluster.running) > 2:
            cluster.end(min(cluster.running))
    past = cluster.engine.past_usage
    return f"{cluster.admitted} {[past.value(ObjectKey('ns', name)) for name in weights]}"


def test_the_hash_seed_does_not_matter():
    code = "from test_usage_order import trace; print(trace())"
    here = Path(__file__).parent
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            cwd=here,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(found) == 1
    assert "x0" in found.pop()
