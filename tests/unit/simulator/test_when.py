"""When a Workload will start: cases in which the answer can be counted by hand."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest
from places_world import node
from places_world import world as places_world

from kueuelib.api.conversion import topology_assignment
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.api.workload import HOST
from kueuelib.app.explaining.when import When, when
from kueuelib.cli.explain.when import lines, when_data
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.topology.nodes import node_facts
from kueuelib.simulator.forecast import Forecast, RunTimes, likeness
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)

NOW = 1_900_000_000.0
TARGET = ObjectKey("ns", "target")


def running(name: str, since: float, **spec: Any) -> Workload:
    conditions = [
        make_condition("QuotaReserved", at=NOW - since),
        make_condition("Admitted", at=NOW - since),
    ]
    admission = {"clusterQueue": "cq", "podSetAssignments": [make_assignment({"cpu": 1}, "f")]}
    status = {"admission": admission}
    return make_workload(
        name, "q", {"cpu": 1}, created=NOW - since, conditions=conditions, status=status, **spec
    )


def finished(name: str, seconds: float, ago: float = 5000.0, cpu: int = 1) -> Workload:
    conditions = [
        make_condition("QuotaReserved", at=NOW - ago - seconds),
        make_condition("Admitted", at=NOW - ago - seconds),
        make_condition("Finished", at=NOW - ago),
    ]
    created = NOW - 2 * 86400  # too long ago to be taken as one that comes again
    return make_workload(name, "q", {"cpu": cpu}, created=created, conditions=conditions)


def waiting(name: str = "target", ago: float = 10.0, **spec: Any) -> Workload:
    return make_workload(name, "q", {"cpu": 1}, created=NOW - ago, **spec)


def asked(*workloads: Workload, quota: int = 1, **limits: float) -> When:
    queue = make_cluster_queue("cq", {"f": {"cpu": quota}})
    world = World(
        cluster_queues={"cq": queue},
        local_queues={ObjectKey("ns", "q"): make_local_queue("q", "cq")},
        flavors={"f": make_flavor("f")},
        namespaces={"ns": {}},
        workloads={found.key: found for found in workloads},
    )
    return when(world, TARGET, "Job target", NOW, limits=limits, runs=9)


def forecast_of(found: When) -> Forecast:
    assert found.forecast is not None
    return found.forecast


def test_it_starts_when_what_runs_has_run_as_long_as_those_before() -> None:
    past = [finished(f"f{n}", 100) for n in range(6)]
    answer = forecast_of(asked(waiting(ago=3 * 86400), running("r", 40), *past))
    assert answer.quantile(0.5) == answer.quantile(0.9) == 60
    assert answer.sources == {"alike": 2}


def test_it_starts_when_a_node_has_room_although_quota_is_left() -> None:
    past = [finished(f"f{n}", 100) for n in range(6)]
    asking = {**make_pod_set({"cpu": 1}), "topologyRequest": {"required": HOST}}
    target = make_workload("target", "q", pod_sets=[asking], created=NOW - 10)
    held = [on_node(running("r", 40), "h1"), on_node(running("s", 10), "h2")]
    nodes = places_world([node(name, "r1", 1) for name in ("h1", "h2")])
    found = attrs.evolve(
        nodes.with_cluster_queue(make_cluster_queue("cq", {"f": {"cpu": 100}})),
        local_queues={ObjectKey("ns", "q"): make_local_queue("q", "cq")},
        workloads={each.key: each for each in (target, *held, *past)},
    )
    answer = forecast_of(when(found, TARGET, "Job target", NOW, limits={}, runs=9))
    assert answer.quantile(0.5) == answer.quantile(0.9) == 60
    more = found.with_node(node_facts(node("h3", "r1", 1)))
    assert forecast_of(when(more, TARGET, "Job target", NOW, limits={}, runs=9)).quantile(0.9) == 0


def on_node(workload: Workload, host: str) -> Workload:
    """A Workload that runs, with its pods on a node."""
    admission = workload.status.admission
    assert admission is not None
    (one,) = admission.pod_set_assignments
    placed = topology_assignment((HOST,), (((host,), 1),))
    admission = admission.evolve(pod_set_assignments=(one.evolve(topology_assignment=placed),))
    return attrs.evolve(workload, status=attrs.evolve(workload.status, admission=admission))


def test_one_that_has_run_for_long_ends_like_those_that_ran_longer() -> None:
    past = [finished("short", 10), finished("long", 500)]
    answer = forecast_of(asked(waiting(ago=3 * 86400), running("r", 40), *past))
    assert answer.quantile(0.5) == 460
    assert answer.sources == {"few alike": 2}


def test_without_any_like_it_a_job_runs_as_long_as_it_may() -> None:
    limited = running("r", 40, maximumExecutionTimeSeconds=300)
    assert forecast_of(asked(waiting(), limited)).quantile(0.9) == 260
    by_job = running("r", 40)
    answer = asked(waiting(), by_job, r=600.0)
    assert forecast_of(answer).quantile(0.9) == 560
    assert "1 job runs as long as allowed" in "\n".join(lines(answer))


def test_a_limit_ends_what_would_have_run_longer() -> None:
    past = [finished(f"f{n}", 1000) for n in range(6)]
    limited = running("r", 40, maximumExecutionTimeSeconds=300)
    answer = forecast_of(asked(waiting(ago=3 * 86400), limited, *past))
    assert answer.quantile(0.9) == 260


def test_nobody_knows_when_a_job_ends_that_has_neither() -> None:
    answer = asked(waiting(), running("r", 40))
    found = forecast_of(answer)
    assert found.quantile(0.5) is None
    assert found.unknown == (ObjectKey("ns", "r"), TARGET)
    text = "\n".join(lines(answer))
    assert "The start of Job target cannot be predicted." in text
    assert "A limit on how long these run would help" in text
    assert "no end is known for ns/r, ns/target: without a limit" in text
    data = when_data(answer)
    assert data["known"] is False
    assert data["p90Seconds"] is None
    assert data["unknownRunTimes"] == ["ns/r", "ns/target"]


def test_it_may_be_known_although_something_never_ends() -> None:
    past = [finished(f"f{n}", 100) for n in range(6)]
    other = make_workload("two", "q", {"cpu": 1}, created=NOW - 90)
    limited = running("r", 40, maximumExecutionTimeSeconds=300)
    answer = asked(waiting(ago=3 * 86400), limited, *past, other, quota=2)
    assert forecast_of(answer).quantile(0.9) == 0
    assert "within 0 s with 90 %" in "\n".join(lines(answer))


def test_what_will_never_fit_is_said_with_its_reason() -> None:
    answer = asked(waiting(), quota=0)
    assert forecast_of(answer).because == {"ExceedsMaxQuota": 9}
    assert "9 ExceedsMaxQuota" in "\n".join(lines(answer))


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        (running("target", 10), "already has its quota"),
        (finished("target", 10), "has finished"),
        (waiting(active=False), "is deactivated: its spec.active is false"),
    ],
)
def test_what_does_not_wait_is_not_simulated(workload: Workload, why: str) -> None:
    answer = asked(workload)
    assert answer.forecast is None
    assert answer.why == why
    assert "\n".join(lines(answer)) == f"Job target {why}."
    assert when_data(answer)["why"] == why


def test_a_queue_that_is_missing_is_the_reason() -> None:
    answer = asked(make_workload("target", "elsewhere", {"cpu": 1}, created=NOW - 10))
    found = forecast_of(answer)
    assert found.waits == ()
    assert sum(found.because.values()) == 9


def test_the_same_question_has_the_same_answer() -> None:
    past = [finished(f"f{n}", 50.0 * n) for n in range(1, 9)]
    more = [make_workload(f"w{n}", "q", {"cpu": 1}, created=NOW - 3600 * n) for n in range(1, 9)]
    one, two = (asked(waiting(), running("r", 40), *past, *more) for _ in range(2))
    assert one == two
    assert forecast_of(one).arrivals > 0
    waits = forecast_of(one).waits
    assert list(waits) == sorted(waits)
    assert len(set(waits)) > 1


def test_quantiles_take_what_happens_as_one_more_simulation() -> None:
    found = Forecast(tuple(map(float, range(1, 10))), 9, {}, {}, (), 0)
    assert found.quantile(0.5) == 5.0
    assert found.quantile(0.9) == 9.0
    assert found.quantile(0.95) is None
    assert Forecast((), 9, {}, {}, (), 0).quantile(0.1) is None


def test_jobs_are_alike_when_their_queue_and_all_requests_are() -> None:
    times = RunTimes()
    for seconds in (30.0, 10.0, 20.0):
        times.add(waiting(), seconds)
    times.add(finished("big", 0, cpu=2), 99.0)
    assert times.of(waiting()) == (10.0, 20.0, 30.0)
    assert times.middle(waiting()) == 20.0
    other = make_workload("o", "q", {"cpu": 3})
    assert times.of(other) == ()
    assert times.middle(other) == 30.0
    assert times.middle(make_workload("o", "elsewhere", {"cpu": 1})) is None
    assert likeness(waiting()) != likeness(other)
    assert math.isfinite(times.in_queue(waiting())[-1])


@pytest.mark.parametrize(
    ("queue", "reason"), [({"stopPolicy": "Hold"}, "Suspended"), ({}, "NoMatchingFlavor")]
)
def test_a_limit_is_not_the_advice_where_no_end_of_a_job_helps(
    queue: dict[str, str], reason: str
) -> None:
    world = World(
        cluster_queues={"cq": make_cluster_queue("cq", {"f": {"cpu": 1}})},
        local_queues={ObjectKey("ns", "q"): make_local_queue("q", "cq", **queue)},
        flavors={"f": make_flavor("f", {"arch": "arm64"})},
        namespaces={"ns": {}},
    )
    pods = make_pod_set({"cpu": 1}, nodeSelector={"arch": "amd64"})
    for one in (make_workload("target", "q", pod_sets=[pods]), running("r", 40)):
        world = world.with_workload(one)
    answer = when(world, TARGET, "Job target", NOW, limits={}, runs=3)
    assert forecast_of(answer).because == {reason: 3}
    text = "\n".join(lines(answer))
    assert "No end of another job would help; ask without --when what does." in text
    assert "A limit on" not in text
