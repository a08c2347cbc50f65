"""Admissions: what they say, what voids them, what they cost; and the numbers of statuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from engine_cluster import NOW, Cluster, holding, key

from kueuelib.api.codec import decode, encode
from kueuelib.api.core import LimitRange
from kueuelib.api.kueue import Workload
from kueuelib.scheduler import events
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.facts.workloads import Where
from kueuelib.scheduler.object_reasons import (
    ChecksFailed,
    InvalidResources,
)
from kueuelib.scheduler.reasons import PodsNotReady
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_check,
    make_condition,
    make_flavor,
    make_pod_set,
    make_workload,
)


def test_admission_says_who_gets_what(cluster: Cluster) -> None:
    cluster.queue("q", 9)
    cluster.submit("w", "q", 2, count=3, created=400)
    cluster.rest()
    (admit,) = cluster.admits
    assert encode(admit.admission) == {
        "clusterQueue": "q",
        "podSetAssignments": [
            {"name": "main", "flavors": {"gpu": "f"}, "resourceUsage": {"gpu": "6"}, "count": 3}
        ],
    }
    assert admit.admitted
    assert admit.wait_seconds == 600
    assert cluster.where("w") is Where.ASSUMED


def test_wait_counts_from_the_last_requeue(cluster: Cluster) -> None:
    cluster.queue("q", 9)
    evicted = make_condition("Evicted", True, "Preempted", at=900)
    requeued = make_condition("Requeued", True, "Preempted", at=950)
    cluster.submit("w", "q", created=400, conditions=[evicted, requeued])
    cluster.rest()
    assert cluster.admits[0].wait_seconds == 50


def check_state(state: str, name: str = "k") -> dict[str, Any]:
    at = "1970-01-01T00:00:00Z"
    return {"name": name, "state": state, "message": "", "lastTransitionTime": at}


@pytest.mark.parametrize(
    ("checks", "states", "admitted"),
    [
        ([], [], True),
        (["k"], [], False),
        (["k"], [check_state("Pending")], False),
        (["k"], [check_state("Ready")], True),
        (["k", "l"], [check_state("Ready")], False),
        ([{"name": "k", "onFlavors": ["f"]}], [], False),
        ([{"name": "k", "onFlavors": ["g"]}], [], True),
    ],
)
def test_admitted_at_once_only_when_all_checks_of_the_flavors_are_ready(
    cluster: Cluster, checks: list[Any], states: list[Any], admitted: bool
) -> None:
    cluster.tell(events.CheckSet(make_check("k")), events.CheckSet(make_check("l")))
    cluster.queue("q", 1, checks=checks)
    cluster.submit("w", "q", status={"admissionChecks": states})
    cluster.rest()
    (admit,) = cluster.admits
    assert admit.admitted is admitted
    status = cluster.engine.cluster_queue_status("q")
    assert status is not None
    assert (status.reserving, status.admitted) == (1, int(admitted))


@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
@pytest.mark.parametrize("state", ["Retry", "Rejected"])
def test_failed_check_parks_a_workload_without_blocking_its_queue(
    cluster: Cluster, strategy: str, state: str
) -> None:
    cluster.tell(events.CheckSet(make_check("k")))
    cluster.queue("q", 1, checks=["k"], queueingStrategy=strategy)
    cluster.submit("w", "q", status={"admissionChecks": [check_state(state)]})
    cluster.submit("v", "q", 1, created=1)
    assert cluster.rest() == ["v"]
    assert cluster.reason("w") == ChecksFailed(("k",))
    cluster.tell(events.WorkloadGone(key("v")))
    assert cluster.rest() == []
    cluster.submit("w", "q", status={"admissionChecks": [check_state("Pending")]})
    assert cluster.rest() == ["w"]


@pytest.mark.parametrize(
    "event",
    [events.CheckSet(make_check("k", active=False)), events.CheckGone("k")],
)
def test_inactive_check_makes_the_queue_inactive(cluster: Cluster, event: events.Event) -> None:
    cluster.tell(events.CheckSet(make_check("k")))
    cluster.queue("q", 1, checks=["k"])
    assert cluster.engine.activity("q").active
    cluster.tell(event)
    cluster.submit("w", "q")
    assert cluster.rest() == []
    assert not cluster.engine.activity("q").active
    cluster.tell(events.CheckSet(make_check("k")))
    assert cluster.rest() == ["w"]
    assert cluster.engine.cache.users_of_check("k") == ("q",)
    assert cluster.engine.cache.users_of_flavor("f") == ("q",)


def test_failed_write_gives_the_quota_back_and_wakes_others(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    cluster.submit("w", "q", 2)
    cluster.submit("v", "q", 1, created=1)
    assert cluster.rest() == ["w"]
    assert cluster.where("v") is Where.INADMISSIBLE
    cluster.tell(events.WorkloadGone(key("w")))
    cluster.tell(events.Forgotten(key("w")))
    assert cluster.rest() == ["v"]


def test_forgotten_workload_is_queued_again(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    cluster.submit("w", "q", 2)
    assert cluster.rest() == ["w"]
    cluster.tell(events.Forgotten(key("w")))
    assert cluster.where("w") is Where.PENDING
    assert cluster.rest() == ["w"]
    cluster.tell(events.WorkloadSet(holding("w", "q", 2)))
    cluster.tell(events.Forgotten(key("w")))
    assert cluster.where("w") is Where.HOLDS_QUOTA


def test_assumption_survives_states_from_before_it(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    found = cluster.submit("w", "q", 2)
    assert cluster.rest() == ["w"]
    cluster.tell(events.WorkloadSet(found))
    assert cluster.where("w") is Where.ASSUMED
    assert cluster.rest() == []


def test_reservation_elsewhere_moves_the_charge(cluster: Cluster) -> None:
    cluster.queue("a", 2)
    cluster.queue("b", 2)
    cluster.submit("w", "a", 2)
    cluster.submit("v", "a", 2, created=1)
    assert cluster.rest() == ["w"]
    cluster.tell(events.WorkloadSet(holding("w", "b", 2)))
    assert cluster.engine.cache.reserving("a") == 0
    assert cluster.engine.cache.reserving("b") == 1
    assert cluster.rest() == ["v"]


def test_assumed_by_somebody_else(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    cluster.submit("w", "q", 2)
    admission = holding("w", "q", 2).status.admission
    assert admission is not None
    cluster.tell(events.Assumed(key("w"), admission))
    assert cluster.where("w") is Where.ASSUMED
    assert cluster.rest() == []
    cluster.tell(events.Assumed(key("unknown"), admission))
    assert cluster.engine.cache.reserving("q") == 1


def test_reclaimed_pods_wake_others(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    assignment = make_assignment({"gpu": 2}, "f", count=2)

    def running(reclaimable: int) -> Workload:
        pods = [{"name": "main", "count": reclaimable}]
        return make_workload(
            "r",
            "q",
            {"gpu": 1},
            count=2,
            conditions=[make_condition("QuotaReserved")],
            status={
                "admission": {"clusterQueue": "q", "podSetAssignments": [assignment]},
                "reclaimablePods": pods,
            },
        )

    cluster.tell(events.WorkloadSet(running(0)))
    cluster.submit("w", "q")
    assert cluster.rest() == []
    cluster.tell(events.WorkloadSet(running(1)))
    assert cluster.rest() == ["w"]


def test_evicted_workload_holds_its_quota_until_the_admission_is_gone(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    evicted = make_condition("Evicted", True, "Preempted")
    cluster.tell(events.WorkloadSet(holding("r", "q", 2, evicted)))
    cluster.submit("w", "q", 2, priority=1)
    assert cluster.rest() == []
    cluster.submit("r", "q", 2, conditions=[evicted])
    assert cluster.rest() == ["w"]


def test_limit_range_changes_what_pending_workloads_ask_for(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    pods = make_pod_set(containers=[{"name": "c"}])
    cluster.submit("w", "q", pod_sets=[pods])
    limit_range = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "lr", "namespace": "ns"},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"gpu": "3"}}]},
    }
    cluster.tell(events.LimitRangeSet(decode(LimitRange, limit_range)))
    assert cluster.rest() == []
    assert cluster.where("w") is Where.INADMISSIBLE
    cluster.tell(events.LimitRangeGone(key("lr")))
    assert cluster.rest() == ["w"]


def test_requests_above_limits_wait_for_an_edit(cluster: Cluster) -> None:
    cluster.queue("q", 9)
    bad = {"requests": {"gpu": "3"}, "limits": {"gpu": "2"}}
    pods = make_pod_set(containers=[{"name": "c", "resources": bad}])
    cluster.submit("w", "q", pod_sets=[pods])
    cluster.rest()
    assert isinstance(cluster.reason("w"), InvalidResources)
    assert "podSets.main.containers[0][gpu]" in cluster.waits[0].message
    cluster.queue("q", 10)
    assert cluster.rest() == []
    cluster.submit("w", "q", 1)
    assert cluster.rest() == ["w"]


def test_admission_waits_until_all_pods_are_ready() -> None:
    cluster = Cluster(Engine(Settings(block_admission=True)))
    cluster.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    for name in ("a", "b"):
        cluster.queue(name, 9)
        cluster.submit(f"w-{name}", name)
    assert cluster.cycle() == ["+w-a", "w-b"]
    assert cluster.reason("w-b") == PodsNotReady()
    assert cluster.rest() == []
    cluster.tell(events.WorkloadSet(holding("w-a", "a", 1, make_condition("PodsReady"))))
    assert cluster.rest() == ["w-b"]


# --- status


def test_status_counts_and_usage(cluster: Cluster) -> None:
    cluster.queue("a", 2, cohort="c")
    cluster.queue("b", 4, cohort="c")
    cluster.tell(events.WorkloadSet(holding("r", "a", 3, make_condition("Admitted"))))
    cluster.tell(events.WorkloadSet(holding("s", "a", 1)))
    cluster.submit("w", "a", 9)
    cluster.rest()
    cluster.submit("v", "a", 1, created=3)
    status = cluster.engine.cluster_queue_status("a")
    assert status is not None
    assert (status.pending, status.active, status.inadmissible) == (2, 1, 1)
    assert (status.reserving, status.admitted) == (2, 1)
    (row,) = status.reservation
    (cell,) = row.resources
    assert (row.name, cell.name, str(cell.total), str(cell.borrowed)) == ("f", "gpu", "4", "2")
    assert str(status.usage[0].resources[0].total) == "3"
    local = cluster.engine.local_queue_status(key("a"))
    assert local is not None
    assert (local.pending, local.reserving, local.admitted) == (2, 2, 1)
    assert str(local.reservation[0].resources[0].total) == "4"
    assert str(local.usage[0].resources[0].total) == "3"
    assert cluster.engine.local_queue_status(key("gone")) is None
    assert cluster.engine.activity("gone").reason == "NotFound"


def test_head_in_flight_counts_as_pending(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    cluster.submit("w", "q")
    cluster.submit("v", "q", created=1)
    assert cluster.engine.next_cycle(NOW) is not None
    status = cluster.engine.cluster_queue_status("q")
    assert status is not None
    assert (status.pending, status.active) == (2, 2)
    assert [info.key.name for info in cluster.engine.pending("q")] == ["w", "v"]


@pytest.mark.parametrize(
    ("change", "queues"),
    [
        (lambda: events.WorkloadGone(key("r")), ("a",)),
        (lambda: events.FlavorGone("f"), ("a", "b")),
        (lambda: events.ClusterQueueGone("b"), ("b",)),
        (lambda: events.NamespaceSet("x", {}), ()),
    ],
)
def test_effects_name_the_queues_to_look_at(
    cluster: Cluster, change: Callable[[], events.Event], queues: tuple[str, ...]
) -> None:
    cluster.queue("a", 2, cohort="c")
    cluster.queue("b", 4, cohort="c")
    cluster.tell(events.WorkloadSet(holding("r", "a", 3)))
    assert cluster.engine.observe(change(), NOW).cluster_queues == queues
