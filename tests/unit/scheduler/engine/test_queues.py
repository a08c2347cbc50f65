"""Which workload is tried next, which waits, and what wakes it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from engine_cluster import NOW, STRICT, Cluster, holding, key

from kueuelib.api.kueue import Workload
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.facts.workloads import Where
from kueuelib.scheduler.object_reasons import AdmissionGated
from kueuelib.scheduler.pending import queues
from kueuelib.scheduler.reasons import NoFlavors, NoLongerFits, NotEvaluated
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)


def test_best_effort_tries_the_next_when_the_head_does_not_fit(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    cluster.submit("big", "q", 3)
    cluster.submit("small", "q", 1, created=1)
    assert cluster.cycle() == ["big"]
    assert cluster.where("big") is Where.INADMISSIBLE
    assert cluster.cycle() == ["+small"]


def test_strict_fifo_waits_behind_its_head(cluster: Cluster) -> None:
    cluster.queue("q", 2, **STRICT)
    cluster.submit("big", "q", 3)
    cluster.submit("small", "q", 1, created=1)
    assert cluster.rest() == []
    assert cluster.where("big") is Where.PENDING
    assert isinstance(cluster.reason("big"), NoFlavors)
    assert cluster.reason("small") == NotEvaluated()


def test_blocked_strict_head_is_not_tried_again_without_a_change(cluster: Cluster) -> None:
    cluster.queue("q", 2, **STRICT)
    cluster.submit("big", "q", 3)
    assert cluster.cycle() == ["big"]
    assert not cluster.engine.has_work(NOW)
    assert cluster.cycle() == []
    cluster.queue("q", 3, **STRICT)
    assert cluster.cycle() == ["+big"]


def test_blocked_strict_head_keeps_its_quota_from_borrowers(cluster: Cluster) -> None:
    cluster.queue("a", {"nominal": 6, "borrowing": 0}, cohort="c", **STRICT)
    cluster.queue("b", 4, cohort="c")
    cluster.tell(events.WorkloadSet(holding("r", "a", 3)))
    cluster.submit("want", "a", 6)
    cluster.submit("borrow", "b", 6, created=1)
    assert cluster.rest() == []
    cluster.submit("small", "b", 1, created=2)
    assert cluster.rest() == []
    cluster.tell(events.WorkloadGone(key("want")))
    assert cluster.rest() == ["borrow", "small"]


def test_blocked_strict_head_keeps_its_quota_from_every_borrower(cluster: Cluster) -> None:
    cluster.queue("a", {"nominal": 6, "borrowing": 0}, cohort="c", **STRICT)
    cluster.queue("b", 2, cohort="c")
    cluster.queue("d", 2, cohort="c")
    cluster.tell(events.WorkloadSet(holding("r", "a", 3)))
    cluster.submit("want", "a", 6)
    cluster.submit("one", "b", 5, created=1)
    cluster.submit("two", "d", 5, created=2)
    assert cluster.cycle() == ["one", "two", "want"]
    lost = {wait.key.name for wait in cluster.waits if isinstance(wait.reason, NoLongerFits)}
    assert lost == {"one", "two"}
    assert cluster.rest() == []


def test_parked_head_does_not_keep_quota_for_ever(cluster: Cluster) -> None:
    cluster.queue("a", {"nominal": 6, "borrowing": 0}, cohort="c")
    cluster.queue("b", 4, cohort="c")
    cluster.tell(events.WorkloadSet(holding("r", "a", 3)))
    cluster.submit("want", "a", 6)
    cluster.submit("borrow", "b", 6, created=1)
    assert cluster.cycle() == ["borrow", "want"]
    assert cluster.cycle() == ["+borrow"]


def test_heads_come_in_the_order_of_queue_names(cluster: Cluster) -> None:
    for name in ("c", "a", "b"):
        cluster.queue(name, 1)
        cluster.submit(f"w-{name}", name)
    found = cluster.engine.next_cycle(NOW)
    assert found is not None
    assert [head.cluster_queue for head in found.heads] == ["a", "b", "c"]


def test_trees_that_are_due_together_share_cycles_up_to_a_number_of_queues(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no cycle takes long, and none of them comes late: who is due for longest comes first."""
    monkeypatch.setattr(queues, "MOST_HEADS", 3)
    for cohort, names in (("", "z"), ("a", "bcde"), ("f", "gh"), ("i", "j")):
        for name in names:
            cluster.queue(name, 4, cohort=cohort)
            cluster.submit(name, name)
    assert cluster.cycle() == ["+z"]
    cluster.submit("again", "z", gpu=9)
    assert cluster.cycle() == ["+b", "+c", "+d", "+e"], "a tree is never cut"
    assert cluster.cycle() == ["+g", "+h", "+j"]
    assert cluster.cycle() == ["again"]
    assert cluster.cycle() == []


def test_priority_then_age_then_uid_decide_within_a_queue(cluster: Cluster) -> None:
    cluster.queue("q", 10)
    cluster.submit("z", "q", created=5)
    cluster.submit("b", "q", created=9)
    cluster.submit("a", "q", created=9)
    cluster.submit("vip", "q", created=20, priority=1)
    assert cluster.rest() == ["vip", "z", "a", "b"]


def test_status_patch_leaves_a_parked_workload_where_it_is(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    cluster.submit("big", "q", 3)
    cluster.rest()
    pending = make_condition("QuotaReserved", status=False)
    cluster.submit("big", "q", 3, conditions=[pending])
    assert not cluster.engine.has_work(NOW)
    assert cluster.where("big") is Where.INADMISSIBLE


def test_edited_workload_is_tried_again(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    cluster.submit("big", "q", 3)
    cluster.rest()
    cluster.submit("big", "q", 2)
    assert cluster.rest() == ["big"]


def test_workload_that_changes_its_queue_counts_in_the_new_one_only(cluster: Cluster) -> None:
    cluster.queue("a", 1)
    cluster.queue("b", 1)
    cluster.submit("w", "a", 2)
    cluster.rest()
    moved = make_workload("w", "b", {"gpu": 2})
    effects = cluster.engine.observe(events.WorkloadSet(moved), cluster.now)
    assert set(effects.local_queues) == {key("a"), key("b")}
    assert set(effects.cluster_queues) == {"a", "b"}


def test_nothing_stays_of_a_scope_whose_last_queue_goes_or_leaves(cluster: Cluster) -> None:
    """Also in a replica that runs no cycle."""
    cluster.queue("goes", 1, cohort="one")
    cluster.queue("leaves", 1, cohort="two")
    cluster.tell(events.ClusterQueueGone("goes"))
    cluster.queue("leaves", 1, cohort="three")
    queues = cluster.engine._state.queues
    for table in (queues.scopes, queues.due, queues.unsettled):
        assert set(table) <= {("three", "")}


def test_finished_workload_wakes_its_cohort_only(cluster: Cluster) -> None:
    for name, cohort in (("a", "c"), ("b", "c"), ("x", "d")):
        cluster.queue(name, 1, cohort=cohort)
    cluster.tell(events.WorkloadSet(holding("r", "b", 2)))
    cluster.submit("w", "a", 2)
    cluster.submit("v", "x", 2)
    assert cluster.rest() == []
    cluster.tell(events.WorkloadSet(holding("r", "b", 2, make_condition("Finished"))))
    assert cluster.cycle() == ["+w"]
    assert cluster.cycle() == []
    assert cluster.where("r") is Where.FINISHED


@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
def test_pod_sets_that_take_turns_in_finding_a_flavor_come_to_rest(
    cluster: Cluster, strategy: str
) -> None:
    groups = {"small": {"gpu": 2}, "f": {"gpu": 8}}
    cluster.tell(
        events.FlavorSet(make_flavor("small")),
        events.ClusterQueueSet(make_cluster_queue("q", groups, queueingStrategy=strategy)),
        events.LocalQueueSet(make_local_queue("q", "q")),
        events.WorkloadSet(holding("r", "q", 8)),
    )
    pod_sets = [
        make_pod_set({"gpu": 1}, name="driver", count=2),
        make_pod_set({"gpu": 1}, name="workers", count=1),
    ]
    cluster.tell(events.WorkloadSet(make_workload("two", "q", pod_sets=pod_sets, created=1.0)))
    cluster.submit("other", "q", 1, created=2.0)
    blocks = strategy == "StrictFIFO"
    assert cluster.rest() == ([] if blocks else ["other"])
    assert not cluster.engine.has_work(NOW)
    cluster.tell(events.WorkloadGone(key("r")))
    assert cluster.rest() == (["two", "other"] if blocks else ["two"])


def test_what_becomes_free_wakes_only_those_who_ask_for_it(cluster: Cluster) -> None:
    cluster.tell(
        events.ClusterQueueSet(make_cluster_queue("q", {"f": {"gpu": 1}}, {"f": {"cpu": 4}})),
        events.LocalQueueSet(make_local_queue("q", "q")),
        events.WorkloadSet(holding("r", "q", 1)),
    )
    for number in range(3):
        found = make_workload(f"c{number}", "q", {"cpu": 5 + number}, created=float(number))
        cluster.tell(events.WorkloadSet(found))
    cluster.submit("g", "q", 1)
    assert cluster.rest() == []
    cluster.tell(events.WorkloadGone(key("r")))
    assert [cluster.cycle(), cluster.cycle()] == [[], ["+g"]]
    assert cluster.rest() == []
    cluster.tell(events.WorkloadSet(holding("r", "q", 1)), events.WorkloadGone(key("r")))
    assert cluster.engine.next_cycle(NOW) is None


def test_the_turn_of_those_whom_nothing_can_help_passes_to_other_queues(cluster: Cluster) -> None:
    two_flavors(cluster, "a", 0, 3, cohort="x")
    cluster.queue("b", 3, cohort="x", preemption={"reclaimWithinCohort": "Any"})
    cluster.queue("c", 0, cohort="x")
    cluster.tell(events.WorkloadSet(holding("r", "b", 2)))
    gpus = make_assignment({"gpu": 1}, "g")
    admission = {"clusterQueue": "a", "podSetAssignments": [gpus]}
    cluster.tell(events.WorkloadSet(holding("s", "a", 1, status={"admission": admission})))
    cluster.submit("large", "b", 2, created=1.0)
    assert cluster.rest() == []
    cluster.submit("small", "b", 1, created=2.0)
    cluster.submit("other", "c", 1, created=3.0)
    cluster.tell(events.WorkloadGone(key("s")))
    assert cluster.cycle() == ["+other"]
    assert cluster.where("large") is Where.INADMISSIBLE
    assert cluster.cycle() == ["small"]


def test_no_turn_passes_that_keeps_free_quota_for_a_later_workload(cluster: Cluster) -> None:
    """Or another ClusterQueue would borrow what the next one here needs, and keep it."""
    for name in ("a", "b"):
        cluster.queue(name, 4, cohort="x")
    cluster.tell(events.WorkloadSet(holding("r", "a", 2)), events.WorkloadSet(holding("s", "a", 2)))
    cluster.tell(events.WorkloadSet(holding("t", "b", 4)))
    for name, queue, gpu in (("large", "a", 4), ("small", "a", 2), ("other", "b", 2)):
        cluster.submit(name, queue, gpu, created=float(len(name)))
    assert cluster.rest() == []
    cluster.tell(events.WorkloadGone(key("r")))
    assert cluster.cycle() == ["large", "other"]
    assert cluster.cycle() == ["+small", "other"]


def test_no_turn_passes_once_nobody_is_left_to_try(cluster: Cluster) -> None:
    two_flavors(cluster, "a", 0, 3, cohort="x")
    cluster.queue("b", 3, cohort="x")
    cluster.tell(events.WorkloadSet(holding("r", "b", 2)))
    gpus = make_assignment({"gpu": 1}, "g")
    admission = {"clusterQueue": "a", "podSetAssignments": [gpus]}
    cluster.tell(events.WorkloadSet(holding("s", "a", 1, status={"admission": admission})))
    cluster.submit("large", "b", 2)
    assert cluster.rest() == []
    cluster.submit("small", "b", 1, priority=1)
    cluster.tell(events.WorkloadGone(key("s")))
    assert cluster.cycle() == ["+small"]
    assert cluster.engine.next_cycle(NOW) is None
    assert cluster.where("large") is Where.INADMISSIBLE


def test_who_preempts_waits_for_nobodys_turn() -> None:
    cluster = Cluster(Engine(Settings(parallel_preemptors=False)))
    cluster.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    two_flavors(cluster, "a", 0, 3, cohort="x")
    cluster.queue("b", 3, cohort="x", preemption={"withinClusterQueue": "LowerPriority"})
    cluster.tell(events.WorkloadSet(holding("r", "b", 2)))
    cluster.tell(events.WorkloadSet(holding("t", "b", 1, priority=9)))
    gpus = make_assignment({"gpu": 1}, "g")
    admission = {"clusterQueue": "a", "podSetAssignments": [gpus]}
    cluster.tell(events.WorkloadSet(holding("s", "a", 1, status={"admission": admission})))
    cluster.submit("large", "b", 3, priority=2)
    assert cluster.rest() == []
    cluster.submit("small", "b", 2, priority=1)
    assert cluster.cycle() == ["small"]
    cluster.tell(events.WorkloadGone(key("s")))
    assert cluster.cycle() == ["small"]


@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
def test_older_workload_of_a_hopeless_shape_may_preempt_those_that_are_newer(
    cluster: Cluster, strategy: str
) -> None:
    policy = {"withinClusterQueue": "LowerOrNewerEqualPriority"}
    cluster.queue("q", 1, preemption=policy, queueingStrategy=strategy)
    cluster.tell(events.WorkloadSet(holding("r", "q", 1, created=50.0)))
    cluster.submit("new", "q", created=100.0)
    assert cluster.rest() == []
    cluster.submit("old", "q", created=10.0)
    cluster.submit("newest", "q", created=200.0)
    found = cluster.engine.next_cycle(NOW)
    assert found is not None
    plan = decide(found, NOW)
    assert [head.info.key for head in found.heads] == [key("old")]
    assert [victim.key for one in plan.preemptions for victim in one.victims] == [key("r")]


def test_older_workload_may_reclaim_what_a_newer_one_of_its_shape_may_not(
    cluster: Cluster,
) -> None:
    policy = {"reclaimWithinCohort": "LowerOrNewerEqualPriority"}
    cluster.queue("q", 1, cohort="c", preemption=policy)
    cluster.queue("b", 0, cohort="c")
    cluster.tell(events.WorkloadSet(holding("r", "b", 1, created=50.0)))
    cluster.submit("new", "q", created=100.0)
    assert cluster.rest() == []
    cluster.submit("old", "q", created=10.0)
    found = cluster.engine.next_cycle(NOW)
    assert found is not None
    plan = decide(found, NOW)
    assert [victim.key for one in plan.preemptions for victim in one.victims] == [key("r")]


def test_older_workload_is_not_given_up_with_a_newer_one_that_was_tried_alone(
    cluster: Cluster,
) -> None:
    policy = {"withinClusterQueue": "LowerOrNewerEqualPriority"}
    cluster.queue("q", 1, preemption=policy)
    cluster.tell(events.WorkloadSet(holding("r", "q", 1, created=50.0)))
    cluster.submit("new", "q", created=100.0)
    found = cluster.engine.next_cycle(NOW)
    assert found is not None
    cluster.submit("old", "q", created=10.0)
    cluster.engine.settle(decide(found, NOW), NOW)
    found = cluster.engine.next_cycle(NOW)
    assert found is not None
    (preemption,) = decide(found, NOW).preemptions
    assert preemption.key == key("old")


@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
def test_quota_freed_while_a_head_is_tried_is_not_missed(cluster: Cluster, strategy: str) -> None:
    cluster.queue("q", 2, queueingStrategy=strategy)
    cluster.tell(events.WorkloadSet(holding("r", "q", 2)))
    cluster.submit("w", "q", 1)
    found = cluster.engine.next_cycle(NOW)
    assert found is not None
    cluster.tell(events.WorkloadGone(key("r")))
    cluster.engine.settle(decide(found, NOW), NOW)
    assert cluster.rest() == ["w"]


def test_workload_that_changes_in_flight_is_not_admitted_as_it_was(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    cluster.submit("w", "q", 1)
    found = cluster.engine.next_cycle(NOW)
    assert found is not None
    assert cluster.where("w") is Where.IN_FLIGHT
    cluster.submit("w", "q", 3)
    settled = cluster.engine.settle(decide(found, NOW), NOW)
    assert settled.admissions == ()
    assert cluster.cycle() == ["w"]
    assert cluster.where("w") is Where.INADMISSIBLE


def test_workload_that_changes_in_flight_is_not_parked_as_it_was(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    cluster.submit("w", "q", 3)
    found = cluster.engine.next_cycle(NOW)
    assert found is not None
    cluster.submit("w", "q", 2)
    settled = cluster.engine.settle(decide(found, NOW), NOW)
    assert settled.waits == ()
    assert cluster.rest() == ["w"]


def two_flavors(cluster: Cluster, name: str, one: Any, two: Any, **spec: Any) -> None:
    cluster.tell(
        events.FlavorSet(make_flavor("g")),
        events.ClusterQueueSet(
            make_cluster_queue(name, {"f": {"gpu": one}, "g": {"gpu": two}}, **spec)
        ),
        events.LocalQueueSet(make_local_queue(name, name)),
    )


def test_quota_freed_behind_a_search_that_moved_on_is_not_missed(cluster: Cluster) -> None:
    two_flavors(cluster, "a", 2, 0, cohort="c")
    two_flavors(cluster, "b", 0, 0, cohort="c")
    cluster.submit("first", "a", 2)
    cluster.submit("second", "b", 2, created=1)
    assert cluster.cycle() == ["+first", "second"]
    cluster.tell(events.WorkloadGone(key("first")))
    assert cluster.cycle() == ["second"]
    assert cluster.cycle() == ["+second"]


def test_search_starts_anew_if_quota_was_freed_while_another_had_the_turn(
    cluster: Cluster,
) -> None:
    two_flavors(cluster, "a", 3, 0, cohort="c")
    two_flavors(cluster, "b", 0, 2, cohort="c")
    cluster.submit("first", "a", 2)
    cluster.submit("second", "b", 2, created=1)
    assert cluster.cycle() == ["+first", "second"]
    cluster.submit("other", "b", 1, priority=9)
    cluster.tell(events.WorkloadGone(key("first")))
    assert cluster.cycle() == ["+other"]
    assert cluster.cycle() == ["+second"]
    assert cluster.admits[-1].admission.pod_set_assignments[0].flavors == {"gpu": "f"}


def test_quota_freed_in_the_course_of_a_search_is_not_missed(cluster: Cluster) -> None:
    """With the driver in `g` the workers find no room; the search has passed the driver's `f`."""
    two_flavors(cluster, "q", 3, 3)
    cluster.tell(events.WorkloadSet(holding("stays", "q", 2)))
    cluster.tell(events.WorkloadSet(holding("ends", "q", 3, flavor="g")))
    both = [make_pod_set({"gpu": 1}, "driver", 1), make_pod_set({"gpu": 3}, "workers", 1)]
    cluster.submit("w", "q", pod_sets=both)
    assert cluster.cycle() == ["w"]
    cluster.tell(events.WorkloadGone(key("ends")))
    assert cluster.cycle() == ["w"]
    assert cluster.cycle() == ["+w"]


@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
def test_head_that_lost_a_flavor_gets_the_rest_of_it_for_fewer_pods(
    cluster: Cluster, strategy: str
) -> None:
    two_flavors(cluster, "a", 2, 0, cohort="c")
    two_flavors(cluster, "b", 2, 0, cohort="c", queueingStrategy=strategy)
    cluster.submit("first", "a", 2)
    cluster.submit("second", "b", pod_sets=[make_pod_set({"gpu": 1}, "main", 4, 2)], created=1)
    assert cluster.cycle() == ["+first", "second"]
    assert cluster.cycle() == ["second"]
    assert cluster.rest() == ["second"]
    assert cluster.admits[-1].admission.pod_set_assignments[0].count == 2


def test_search_starts_anew_when_nobody_took_what_was_held_back(cluster: Cluster) -> None:
    two_flavors(cluster, "a", {"nominal": 6, "borrowing": 0}, 0, cohort="c")
    two_flavors(cluster, "b", 4, 0, cohort="c")
    cluster.tell(events.WorkloadSet(holding("r", "a", 3)))
    cluster.submit("want", "a", 6)
    cluster.submit("borrow", "b", 6, created=1)
    assert cluster.cycle() == ["borrow", "want"]
    assert cluster.cycle() == ["borrow"]
    assert cluster.cycle() == ["+borrow"]
    assert cluster.admits[0].admission.pod_set_assignments[0].flavors == {"gpu": "f"}


def test_shape_that_was_hopeless_once_is_tried_again_when_it_comes_later(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    cluster.tell(events.WorkloadSet(holding("r", "q", 2)))
    cluster.submit("w", "q")
    assert cluster.rest() == []
    cluster.tell(events.WorkloadGone(key("r")))
    assert cluster.rest() == ["w"]
    cluster.submit("v", "q")
    assert cluster.rest() == ["v"]


def test_queue_that_leaves_a_cohort_frees_what_it_had_borrowed(cluster: Cluster) -> None:
    cluster.queue("a", 1, cohort="c")
    cluster.queue("b", 2, cohort="c")
    cluster.tell(events.WorkloadSet(holding("r", "a", 3)))
    cluster.submit("w", "b", 2)
    assert cluster.rest() == []
    cluster.queue("a", 1)
    assert cluster.rest() == ["w"]


@pytest.mark.parametrize(
    "event",
    [
        events.WorkloadGone(key("w")),
        events.ClusterQueueGone("q"),
        events.LocalQueueGone(key("q")),
        events.FlavorGone("f"),
    ],
)
def test_admission_is_void_when_its_ground_is_gone(cluster: Cluster, event: events.Event) -> None:
    cluster.queue("q", 2)
    cluster.submit("w", "q", 1)
    found = cluster.engine.next_cycle(NOW)
    assert found is not None
    cluster.tell(event)
    settled = cluster.engine.settle(decide(found, NOW), NOW)
    assert settled.admissions == ()
    assert cluster.engine.cache.holder(key("w")) is None


def test_equal_shapes_are_parked_together_and_told_once(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    for number in range(5):
        cluster.submit(f"big{number}", "q", 3, created=number)
    assert cluster.cycle() == [f"big{number}" for number in range(5)]
    assert {wait.message for wait in cluster.waits} == {cluster.waits[0].message}
    cluster.submit("late", "q", 3, created=9)
    assert cluster.where("late") is Where.INADMISSIBLE
    assert cluster.cycle() == ["late"]
    assert cluster.cycle() == []
    cluster.waits.clear()
    cluster.queue("q", 1)
    assert cluster.cycle() == ["big0"]
    counts = cluster.engine.cluster_queue_status("q")
    assert counts is not None
    assert (counts.active, counts.inadmissible) == (0, 6)


def test_equal_shapes_are_admitted_one_after_the_other(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    cluster.tell(events.WorkloadSet(holding("r", "q", 2)))
    for number in range(4):
        cluster.submit(f"w{number}", "q", created=number)
    assert cluster.rest() == []
    cluster.tell(events.WorkloadGone(key("r")))
    assert cluster.rest() == ["w0", "w1"]


def test_preempted_workload_returns_to_its_old_place(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    cluster.submit("first", "q", created=1)
    cluster.submit("second", "q", created=2)
    assert cluster.rest() == ["first"]
    cluster.tell(events.WorkloadSet(holding("first", "q", 1, created=1)))
    evicted = make_condition("Evicted", True, "Preempted", at=500)
    cluster.submit("first", "q", created=1, conditions=[evicted])
    assert cluster.cycle() == ["+first"]


@pytest.mark.parametrize(
    ("reason", "timestamp", "first"),
    [
        ("PodsReadyTimeout", "Eviction", "+young"),
        ("AdmissionCheck", "Eviction", "+young"),
        ("PodsReadyTimeout", "Creation", "+old"),
        ("AdmissionCheck", "Creation", "+old"),
        ("Preempted", "Eviction", "+old"),
        ("ClusterQueueStopped", "Eviction", "+old"),
    ],
)
def test_age_counts_from_an_eviction_that_the_workload_caused(
    reason: str, timestamp: str, first: str
) -> None:
    cluster = Cluster(Engine(Settings(queue_timestamp=timestamp)))
    cluster.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    cluster.queue("q", 1)
    cluster.submit("young", "q", created=2)
    evicted = make_condition("Evicted", reason=reason, at=500)
    cluster.submit("old", "q", created=1, conditions=[evicted])
    assert cluster.cycle() == [first]


def test_who_lacks_pods_stays_out_of_its_queue(cluster: Cluster) -> None:
    cluster.queue("q", 2)
    lacks = make_condition("Requeued", False, "WaitingForReplacementPods")
    cluster.submit("group", "q", conditions=[lacks])
    cluster.submit("other", "q", created=2)
    assert cluster.where("group") is Where.PODS_MISSING
    assert cluster.rest() == ["other"]
    cluster.submit("group", "q", conditions=[{**lacks, "status": "True"}])
    assert cluster.rest() == ["group"]


def gated(*gates: str) -> Workload:
    workload = make_workload("gated", "q", {"gpu": 1})
    notes = {"kueue.x-k8s.io/admission-gated-by": ",".join(gates)}
    return attrs.evolve(workload, metadata=attrs.evolve(workload.metadata, annotations=notes))


def test_who_is_gated_stays_out_of_its_queue(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    cluster.tell(events.WorkloadSet(gated("example.com/a", "example.com/b")))
    cluster.submit("other", "q", created=2)
    assert cluster.where("gated") is Where.GATED
    assert cluster.reason("gated") == AdmissionGated(("example.com/a", "example.com/b"))
    assert cluster.rest() == ["other"]
    numbers = cluster.engine.local_queue_status(key("q"))
    assert numbers is not None
    assert numbers.pending == 0
    cluster.tell(events.WorkloadGone(key("other")), events.WorkloadSet(gated("example.com/b")))
    assert cluster.rest() == []
    cluster.tell(events.WorkloadSet(gated()))
    assert cluster.rest() == ["gated"]


def test_a_gate_takes_no_quota_away(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    running = holding("r", "q", 1)
    notes = gated("example.com/a").metadata.annotations
    metadata = attrs.evolve(running.metadata, annotations=notes)
    cluster.tell(events.WorkloadSet(attrs.evolve(running, metadata=metadata)))
    assert cluster.where("r") is Where.HOLDS_QUOTA


def test_back_off_is_waited_for(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    evicted = make_condition("Evicted", True, "PodsReadyTimeout", at=900)
    state = {"requeueState": {"count": 1, "requeueAt": "1970-01-01T00:17:00Z"}}
    cluster.submit("w", "q", conditions=[evicted], status=state)
    assert cluster.where("w") is Where.BACKING_OFF
    assert cluster.engine.next_deadline() == 1020.0
    cluster.queue("q", 2)
    assert cluster.rest() == []
    cluster.now = 1019.9
    assert cluster.rest() == []
    cluster.now = 1020.0
    assert cluster.rest() == ["w"]
    assert cluster.engine.next_deadline() is None
