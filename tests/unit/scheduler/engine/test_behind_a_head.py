"""What is reported about a workload that is never the head of its queue."""

from __future__ import annotations

from typing import Any

import pytest
from engine_cluster import NOW, STRICT, Cluster, holding, key

from kueuelib.scheduler import events
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.builders import (
    make_condition,
    make_flavor,
)


def later(cluster: Cluster, seconds: float) -> dict[str, str]:
    """What is reported once that much time has passed: messages by workload."""
    cluster.now += seconds
    before = len(cluster.waits)
    cluster.rest()
    return {wait.key.name: wait.message for wait in cluster.waits[before:]}


def test_who_waits_behind_a_blocked_head_is_reported_once_at_rest(cluster: Cluster) -> None:
    cluster.queue("q", 2, **STRICT)
    cluster.submit("big", "q", 3)
    cluster.submit("small", "q", 1, created=1)
    assert cluster.cycle() == ["big"]
    assert later(cluster, 0.5) == {}
    assert cluster.engine.next_deadline() == NOW + 1.0
    message = (
        "Not evaluated yet: workload ns/big was the head of ClusterQueue q "
        "when this one came to rest behind it"
    )
    assert later(cluster, 0.5) == {"small": message}
    assert cluster.engine.next_deadline() is None
    assert later(cluster, 3600.0) == {}


def test_who_is_admitted_in_time_is_not_reported(cluster: Cluster) -> None:
    cluster.queue("q", 2, **STRICT)
    cluster.submit("first", "q", 1)
    cluster.submit("second", "q", 1, created=1)
    assert cluster.rest() == ["first", "second"]
    assert later(cluster, 3600.0) == {}


def test_reports_about_those_behind_a_head_are_paced(cluster: Cluster) -> None:
    cluster.queue("q", 2, **STRICT)
    cluster.submit("big", "q", 3)
    for number in range(50):
        cluster.submit(f"w{number:02}", "q", 1, created=1)
    cluster.rest()
    counts = [len(later(cluster, seconds)) for seconds in (1.0, 0.05, 0.06, 0.11, 0.11)]
    assert counts == [20, 0, 20, 10, 0]


def test_all_of_a_shape_are_told_what_quota_has_become(cluster: Cluster) -> None:
    cluster.queue("q", 4)
    cluster.tell(events.WorkloadSet(holding("old", "q", 2)))
    for number in range(30):
        cluster.submit(f"big{number:02}", "q", 3, created=number)
    cluster.rest()
    assert "1 more needed" in cluster.waits[-1].message
    cluster.queue("q", 2)
    assert cluster.cycle() == ["big00"]
    told = [later(cluster, seconds) for seconds in (0.5, 0.5, 0.1, 0.1)]
    assert [len(each) for each in told] == [0, 20, 9, 0]
    assert all("> maximum capacity (2)" in text for each in told for text in each.values())
    assert later(cluster, 3600.0) == {}


def test_usage_that_changes_is_told_to_the_first_of_a_shape_only(cluster: Cluster) -> None:
    cluster.queue("q", 6, preemption={"withinClusterQueue": "LowerPriority"})
    for name in ("a", "b"):
        cluster.tell(events.WorkloadSet(holding(name, "q", 2)))
    for number in range(3):
        cluster.submit(f"big{number}", "q", 5, created=number)
    cluster.rest()
    cluster.waits.clear()
    cluster.tell(events.WorkloadGone(key("a")))
    cluster.rest()
    assert {wait.key.name for wait in cluster.waits} == {"big0"}
    assert later(cluster, 3600.0) == {}


def test_new_head_that_is_blocked_has_a_verdict_of_its_own(cluster: Cluster) -> None:
    cluster.queue("q", 2, **STRICT)
    cluster.submit("big", "q", 3)
    cluster.submit("next", "q", 4, created=1)
    cluster.rest()
    assert "ns/big was the head" in later(cluster, 1.0)["next"]
    cluster.tell(events.WorkloadGone(key("big")))
    assert "insufficient" in later(cluster, 0.0)["next"]


def test_queue_that_goes_on_reports_its_workloads_anew(cluster: Cluster) -> None:
    cluster.queue("q", 2, **STRICT)
    cluster.submit("big", "q", 3)
    cluster.submit("small", "q", 1, created=1)
    cluster.rest()
    assert later(cluster, 1.0).keys() == {"small"}
    cluster.queue("q", 2, **STRICT, stopPolicy="Hold")
    assert later(cluster, 3600.0) == {}
    cluster.queue("q", 2, **STRICT)
    assert later(cluster, 0.0).keys() == {"big"}
    assert later(cluster, 1.0).keys() == {"small"}


def test_edited_workload_behind_a_head_is_reported_again(cluster: Cluster) -> None:
    cluster.queue("q", 2, **STRICT)
    cluster.submit("big", "q", 3)
    cluster.submit("small", "q", 1, created=1)
    cluster.rest()
    assert later(cluster, 1.0).keys() == {"small"}
    cluster.submit("small", "q", 2, created=1)
    assert "small" in later(cluster, 1.0)


def test_who_leaves_is_not_reported(cluster: Cluster) -> None:
    cluster.queue("q", 2, **STRICT)
    cluster.submit("big", "q", 3)
    cluster.submit("small", "q", 1, created=1)
    cluster.rest()
    cluster.tell(events.WorkloadGone(key("small")))
    assert cluster.engine.next_deadline() is None
    assert "small" not in later(cluster, 1.0)


@pytest.mark.parametrize("strategy", [{}, STRICT])
@pytest.mark.parametrize("older", ["WaitingForQuota", "Suspended", "Inadmissible"])
def test_late_report_of_something_older_is_corrected(
    cluster: Cluster, strategy: dict[str, Any], older: str
) -> None:
    cluster.queue("q", 2, **strategy)
    cluster.submit("big", "q", 3)
    cluster.rest()
    verdict = cluster.waits[-1]
    told = make_condition("QuotaReserved", status=False, reason=verdict.condition_reason)
    told["message"] = verdict.message
    cluster.submit("big", "q", 3, conditions=[told])
    assert later(cluster, 3600.0) == {}
    late = make_condition("QuotaReserved", status=False, reason=older)
    cluster.submit("big", "q", 3, conditions=[late])
    assert later(cluster, 1.0) == {"big": verdict.message}
    cluster.submit("big", "q", 3, conditions=[told])
    assert later(cluster, 3600.0) == {}


def test_late_report_that_a_queue_is_stopped_is_corrected_behind_a_head(cluster: Cluster) -> None:
    cluster.queue("q", 2, **STRICT)
    cluster.submit("big", "q", 3)
    cluster.submit("small", "q", 1, created=1)
    cluster.rest()
    told = later(cluster, 1.0)
    assert told.keys() == {"small"}
    stopped = make_condition("QuotaReserved", status=False, reason="Suspended")
    cluster.submit("small", "q", 1, created=1, conditions=[stopped])
    assert later(cluster, 1.0) == told


def test_verdict_of_an_older_generation_is_reported_again(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    cluster.submit("big", "q", 3)
    cluster.rest()
    verdict = cluster.waits[-1]
    told = make_condition("QuotaReserved", status=False, reason=verdict.condition_reason)
    told |= {"message": verdict.message, "observedGeneration": 7}
    cluster.submit("big", "q", 3, conditions=[told])
    assert later(cluster, 1.0) == {"big": verdict.message}


def test_verdict_from_before_a_restart_is_better_than_the_name_of_a_head(cluster: Cluster) -> None:
    verdict = make_condition("QuotaReserved", status=False, reason="ExceedsMaxQuota")
    stopped = make_condition("QuotaReserved", status=False, reason="Suspended")
    cluster.queue("q", 2, **STRICT)
    cluster.submit("big", "q", 3)
    cluster.submit("known", "q", 1, created=1, conditions=[verdict])
    cluster.submit("stopped", "q", 1, created=1, conditions=[stopped])
    cluster.rest()
    assert later(cluster, 1.0).keys() == {"stopped"}


def test_heaps_of_a_replica_that_makes_no_cycles_stay_small(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    for number in range(300):
        name = f"gone-{number}"
        cluster.submit("same", "q", priority=number % 2)
        cluster.submit("other", "q")
        cluster.submit(name, "q", gpu=number)
        cluster.tell(events.WorkloadGone(key(name)))
    queue = cluster.engine._queues.cluster_queues.get("q")
    assert queue is not None
    assert set(queue.items) == {key("same"), key("other")}
    assert len(queue.heap._rankings[None]._entries) < 100
    for group in queue.groups.values():
        assert len(group._rankings[None]._entries) < 100
    assert cluster.rest() == ["same"]


@pytest.mark.parametrize("evicted", [False, True], ids=["alone", "with the eviction"])
def test_a_preemption_that_costs_the_place_moves_who_waits_already(evicted: bool) -> None:
    """Where age alone decides, the condition can be seen later than all that is around it."""
    cluster = Cluster(Engine(Settings(priority_sorting=False)))
    cluster.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    cluster.queue("q", 1)
    around = [make_condition("Evicted", reason="Preempted", at=9)] if evicted else []
    lost = make_condition("Preempted", reason="InCohortReclaimWhileBorrowing", at=9)
    cluster.submit("old", "q", created=1, conditions=around)
    cluster.submit("new", "q", created=2)
    cluster.submit("old", "q", created=1, conditions=[*around, lost])
    assert cluster.rest() == ["new"]
