"""Explain in a ClusterQueue that orders its LocalQueues by past usage (KEP-4136)."""

from __future__ import annotations

import attrs

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.explain.answer import Explanation, explain
from kueuelib.scheduler.explain.trial import TrialResult
from kueuelib.scheduler.explain.world import World
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

NOW = 3000.0
BY_USAGE = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
RULE = UsageRule(half_life=600.0)


def key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


def running(name: str, queue: str, cpu: int, ago: float) -> Workload:
    at = NOW - ago
    return make_workload(
        name,
        queue,
        {"cpu": cpu},
        conditions=[make_condition("QuotaReserved", at=at), make_condition("Admitted", at=at)],
        status={
            "admission": {
                "clusterQueue": "q",
                "podSetAssignments": [make_assignment({"cpu": cpu}, "f")],
            }
        },
    )


def world(strategy: str = "StrictFIFO") -> World:
    """One LocalQueue that used much, one that used little; each has workloads that wait."""
    found = World(
        flavors={"f": make_flavor("f")},
        namespaces={"ns": {}},
        settings=Settings(past_usage=RULE),
    )
    queue = make_cluster_queue("q", {"f": {"cpu": 4}}, queueingStrategy=strategy, **BY_USAGE)
    found = found.with_cluster_queue(queue)
    for name in ("busy", "calm", "idle"):
        found = found.with_local_queue(make_local_queue(name, "q"))
    for workload in (
        running("past", "busy", 2, ago=2000),
        running("short", "calm", 1, ago=10),
        make_workload("mine", "busy", {"cpu": 1}, created=1),
        make_workload("high", "calm", {"cpu": 3}, created=3, priority=9),
        make_workload("calmest", "idle", {"cpu": 3}, created=4),
    ):
        found = found.with_workload(workload)
    return found


def ask(found: World, name: str) -> Explanation:
    return explain(found, key(name), NOW, changes=False)


def test_local_queues_that_used_less_are_ahead_and_named() -> None:
    found = ask(world(), "mine")
    assert found.ahead == (key("calmest"), key("high"))
    assert found.behind == 0
    assert [queue for queue, _ in found.used_less] == [key("idle"), key("calm")]
    numbers = [usage for _, usage in found.used_less]
    assert found.usage is not None
    assert 0 == numbers[0] < numbers[1] < found.usage
    assert found.verdict is TrialResult.WAITS
    assert not found.outcome.evaluated


def test_the_first_one_has_nobody_ahead_of_it() -> None:
    found = ask(world(), "calmest")
    assert found.ahead == found.used_less == ()
    assert found.behind == 2
    assert found.usage == 0
    assert found.outcome.evaluated


def test_a_workload_of_another_local_queue_that_comes_first_later_is_not_left_out() -> None:
    """Its turn comes before the second one of a LocalQueue that paid for the first one."""
    start = world("BestEffortFIFO").without_workloads(key("mine"), key("high"), key("calmest"))
    start = start.without_workloads(key("past"), key("short"))
    for name, queue, created in (("a1", "calm", 1), ("a2", "calm", 2), ("b1", "idle", 3)):
        start = start.with_workload(make_workload(name, queue, {"cpu": 2}, created=created))
    assert ask(start, "a1").verdict is TrialResult.ADMITTED
    assert ask(start, "b1").verdict is TrialResult.ADMITTED
    assert ask(start, "a2").verdict is TrialResult.WAITS


def test_without_the_configuration_age_and_priority_decide() -> None:
    found = ask(attrs.evolve(world(), settings=Settings()), "mine")
    assert found.ahead == (key("high"),)
    assert found.usage is None
    assert found.used_less == ()
    assert [one.field for one in found.unhonoured] == ["spec.admissionScope"]
