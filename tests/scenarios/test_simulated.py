"""Recorded scenarios in the simulator: the same decisions in the same cycles.

A scenario is told in cycles, the simulator lives in time: a cycle begins every 1,000 seconds, and
what happens after a cycle happens 100 or 200 seconds later.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import orjson
import pytest
from test_recorded import SAMPLE, SIZES, records

from kueuelib.api.codec import encode
from kueuelib.api.kueue import Workload
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Admit
from kueuelib.scheduler.decide.preemption.victims import PendingPreemption
from kueuelib.simulator.cluster import ClusterSetup, cluster_of
from kueuelib.simulator.driver import Driver, Timing
from kueuelib.simulator.live import Listener, Live
from kueuelib.simulator.trace import PodShape, TraceJob
from kueuelib.testing.scenarios import facts, pending, run, settings_of

START = 1_000_000
BEGIN = START + 500
CYCLE = 1_000
FOR_EVER = 1e9
OBJECTS = {
    events.NamespaceSet: None,
    events.FlavorSet: "flavor",
    events.ClusterQueueSet: "cluster_queue",
    events.CohortChanged: "cohort",
    events.LocalQueueSet: "local_queue",
}


def form_allows(scenario: dict[str, Any], result: dict[str, Any]) -> bool:
    """Whether the simulator can be told the same.

    It cannot be told of flavors that were tried before, of evictions that never end, of victims
    that take longer than others, and of jobs that end after they were preempted. Reservations that
    are not admitted are judged anew by the manager's rules, which the scenarios leave out.
    """
    ending = {name for names in scenario.get("finish", {}).values() for name in names}
    preempted = {name for cycle in result["cycles"] for name in cycle["preempted"]}
    return not (
        isinstance(scenario.get("release_delay"), dict)
        or any("last" in one for one in scenario["pending"])
        or any(one.get("evicted") or one.get("reserved_only") for one in scenario["admitted"])
        or ending & preempted
    )


def cluster(scenario: dict[str, Any]) -> ClusterSetup:
    objects = []
    for fact in facts(scenario):
        if isinstance(fact, events.NamespaceSet):
            meta = {"name": fact.name, "labels": dict(fact.labels)}
            objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        elif not isinstance(fact, events.WorkloadSet):
            objects.append(encode(getattr(fact, OBJECTS[type(fact)])))
    return cluster_of(objects, settings_of(scenario))


def job(workload: Workload, arrival: float, run_seconds: float) -> TraceJob:
    raw = encode(workload)
    # Without a count it runs for the given time, however many of its pods run.
    shapes = [PodShape(0, name=one["name"]) for one in raw["spec"]["podSets"]]
    return TraceJob(
        name=workload.name,
        arrival=arrival,
        run_seconds=run_seconds,
        pod_sets=tuple(shapes),
        queue=workload.spec.queue_name,
        namespace=workload.namespace,
        workload=orjson.dumps(raw),
    )


def jobs(scenario: dict[str, Any], result: dict[str, Any]) -> list[TraceJob]:
    """The jobs of a scenario; one that ends runs for as long as it takes to end then."""
    started = {
        name: START + CYCLE * number
        for number, cycle in reversed(list(enumerate(result["cycles"], 1)))
        for name in cycle["admitted"]
    }
    ends = {
        name: START + CYCLE * int(number) + 200
        for number, names in scenario.get("finish", {}).items()
        for name in names
    }
    given = [fact.workload for fact in facts(scenario) if isinstance(fact, events.WorkloadSet)]
    late = [one for one in scenario["pending"] if "arrive" in one]
    arrivals = [(BEGIN, workload) for workload in given]
    arrivals += [(START + CYCLE * one["arrive"] + 200, pending(one)) for one in late]
    found = []
    for arrival, workload in sorted(arrivals, key=lambda one: one[0]):
        start = started.get(workload.name, BEGIN)
        end = ends.get(workload.name, math.inf)
        found.append(job(workload, arrival, end - start if start < end < math.inf else FOR_EVER))
    return found


class Decisions(Listener):
    """What is decided, by cycle."""

    def __init__(self) -> None:
        self.admitted: dict[int, dict[str, Any]] = defaultdict(dict)
        self.victims: dict[int, dict[str, Any]] = defaultdict(dict)
        self.stop_at = math.inf
        self.stop = lambda: None

    def reserved(self, live: Live, admit: Admit | None, now: float) -> None:
        if admit is not None:
            self.admitted[round((now - START) / CYCLE)][live.key.name] = {
                one.name: {"flavors": dict(one.flavors), "count": one.count}
                for one in admit.admission.pod_set_assignments
            }

    def preempted(self, live: Live, preemption: PendingPreemption, now: float) -> None:
        (path,) = [one.path.value for one in preemption.victims if one.key == live.key]
        found = {"by": preemption.key.name, "reason": path}
        self.victims[round((now - START) / CYCLE)][live.key.name] = found

    def rested(self, now: float, until: float) -> None:
        if until >= self.stop_at:
            self.stop()


def simulated(scenario: dict[str, Any], result: dict[str, Any]) -> Decisions:
    found = Decisions()
    timing = Timing(CYCLE * scenario.get("release_delay", 0) + 100, cycle_seconds=CYCLE)
    driver = Driver(cluster(scenario), [found], timing=timing)
    found.stop, found.stop_at = driver.stop, START + CYCLE * (len(result["cycles"]) + 1)
    driver.run(jobs(scenario, result))
    return found


@pytest.mark.parametrize("name", SIZES)
def test_a_recorded_scenario_is_decided_the_same_in_virtual_time(name: str) -> None:
    played = 0
    for record in records(name)[::SAMPLE]:
        scenario = record["in"]
        result = run(scenario)
        if not form_allows(scenario, result):
            continue
        played += 1
        found = simulated(scenario, result)
        for number, cycle in enumerate(result["cycles"], 1):
            where = f"{scenario['id']}, cycle {number}"
            assert found.admitted[number] == cycle["admitted"], where
            # A victim that was reported before and has not left yet is reported only once.
            told = set().union(*(found.victims[earlier] for earlier in range(1, number)))
            again = {name: by for name, by in cycle["preempted"].items() if name in told}
            assert {**again, **found.victims[number]} == cycle["preempted"], where
    assert played > 0.3 * len(records(name)) / SAMPLE
