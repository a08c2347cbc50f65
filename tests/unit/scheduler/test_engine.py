from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from kueuelib.api.codec import decode, encode
from kueuelib.api.core import LimitRange
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Admit, Wait, decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.facts.standing import Where
from kueuelib.scheduler.object_reasons import (
    ChecksFailed,
    ClusterQueueInactive,
    ClusterQueueMissing,
    InvalidResources,
    LocalQueueMissing,
    LocalQueueStopped,
    NamespaceMismatch,
    NamespaceUnknown,
)
from kueuelib.scheduler.reasons import NoFlavors, NoLongerFits, NotEvaluated, PodsNotReady
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_check,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)

NOW = 1000.0
STRICT = {"queueingStrategy": "StrictFIFO"}


def key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


@attrs.define
class Cluster:
    """An engine and whoever writes for it."""

    engine: Engine = attrs.field(factory=Engine)
    now: float = NOW
    admits: list[Admit] = attrs.field(factory=list)
    waits: list[Wait] = attrs.field(factory=list)

    def tell(self, *found: events.Event) -> None:
        self.engine.observe_all(found, self.now)

    def queue(self, name: str, quota: Any, **spec: Any) -> None:
        self.tell(
            events.ClusterQueueSet(make_cluster_queue(name, {"f": {"gpu": quota}}, **spec)),
            events.LocalQueueSet(make_local_queue(name, name)),
        )

    def submit(self, name: str, queue: str, gpu: int = 1, **more: Any) -> Workload:
        found = make_workload(name, queue, {"gpu": gpu}, **more)
        self.tell(events.WorkloadSet(found))
        return found

    def cycle(self) -> list[str]:
        """One cycle; the names of those that were tried, admitted ones marked with `+`."""
        found = self.engine.next_cycle(self.now)
        if found is None:
            return []
        settled = self.engine.settle(decide(found, self.now), self.now)
        self.admits += settled.admissions
        self.waits += settled.waits
        return sorted(
            [f"+{admit.key.name}" for admit in settled.admissions]
            + [wait.key.name for wait in settled.waits]
        )

    def rest(self) -> list[str]:
        """Cycles until nothing is left to do; the names of the admitted."""
        tried: list[str] = []
        for _ in range(100):
            names = self.cycle()
            if not names and not self.engine.has_work(self.now):
                return [name[1:] for name in tried if name.startswith("+")]
            tried += names
        raise AssertionError("the engine does not come to rest")

    def where(self, name: str) -> Where:
        return self.engine.standing(key(name)).where

    def reason(self, name: str) -> Any:
        return self.engine.standing(key(name)).reason


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    found.tell(events.NamespaceSet("ns", {"team": "red"}), events.FlavorSet(make_flavor("f")))
    return found


def holding(name: str, queue: str, gpu: int, *conditions: dict[str, str], **more: Any) -> Workload:
    flavor = more.pop("flavor", "f")
    admission = {
        "clusterQueue": queue,
        "podSetAssignments": [make_assignment({"gpu": gpu}, flavor)],
    }
    return make_workload(
        name,
        queue,
        {"gpu": gpu},
        conditions=[make_condition("QuotaReserved"), *conditions],
        status={"admission": admission, **more.pop("status", {})},
        **more,
    )


# --- queues


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


def test_who_preempts_waits_for_nobodys_turn(cluster: Cluster) -> None:
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


def test_workload_that_was_not_ready_in_time_goes_to_the_back(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    cluster.submit("second", "q", 1, created=2)
    evicted = make_condition("Evicted", True, "PodsReadyTimeout", at=500)
    cluster.submit("first", "q", created=1, conditions=[evicted])
    assert cluster.cycle() == ["+second"]


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


# --- where a workload stands


def test_missing_local_queue(cluster: Cluster) -> None:
    cluster.submit("w", "q")
    assert cluster.where("w") is Where.NO_LOCAL_QUEUE
    assert cluster.reason("w") == LocalQueueMissing("q")
    assert cluster.reason("w").condition_reason == "Misconfigured"
    effects = cluster.engine.observe(events.LocalQueueSet(make_local_queue("q", "q")), NOW)
    assert effects.workloads == (key("w"),)
    assert cluster.where("w") is Where.NO_CLUSTER_QUEUE
    assert cluster.reason("w") == ClusterQueueMissing("q")
    cluster.queue("q", 1)
    assert cluster.rest() == ["w"]


def test_cluster_queue_that_goes_and_comes_back(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    cluster.submit("w", "q", 2)
    cluster.rest()
    effects = cluster.engine.observe(events.ClusterQueueGone("q"), NOW)
    assert effects.workloads == (key("w"),)
    assert cluster.where("w") is Where.NO_CLUSTER_QUEUE
    assert cluster.engine.cluster_queue_status("q") is None
    cluster.queue("q", 2)
    assert cluster.rest() == ["w"]


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_stopped_cluster_queue_offers_nothing(cluster: Cluster, policy: str) -> None:
    cluster.queue("q", 1, stopPolicy=policy)
    cluster.submit("w", "q")
    assert cluster.rest() == []
    assert cluster.where("w") is Where.CLUSTER_QUEUE_INACTIVE
    assert cluster.reason("w") == ClusterQueueInactive("q", "Stopped")
    assert cluster.reason("w").condition_reason == "Suspended"
    status = cluster.engine.cluster_queue_status("q")
    assert status is not None
    assert (status.active, status.inadmissible) == (0, 1)
    cluster.queue("q", 1)
    assert cluster.rest() == ["w"]


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_stopped_local_queue_holds_its_workloads_back(cluster: Cluster, policy: str) -> None:
    cluster.queue("q", 1)
    cluster.tell(events.LocalQueueSet(make_local_queue("q", "q", stopPolicy=policy)))
    cluster.submit("w", "q")
    assert cluster.rest() == []
    assert cluster.where("w") is Where.LOCAL_QUEUE_STOPPED
    assert cluster.reason("w") == LocalQueueStopped("q")
    cluster.tell(events.LocalQueueSet(make_local_queue("q", "q")))
    assert cluster.rest() == ["w"]


def test_missing_flavor_and_its_return(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    cluster.tell(events.FlavorGone("f"))
    cluster.submit("w", "q")
    assert cluster.rest() == []
    assert cluster.engine.activity("q").reason == "FlavorNotFound"
    assert cluster.reason("w").condition_reason == "Misconfigured"
    cluster.tell(events.FlavorSet(make_flavor("f")))
    assert cluster.rest() == ["w"]


def test_edited_flavor_wakes_its_users(cluster: Cluster) -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    cluster.tell(events.FlavorSet(make_flavor("f", taints=[taint])))
    cluster.queue("q", 1)
    cluster.submit("w", "q")
    assert cluster.rest() == []
    assert cluster.reason("w").condition_reason == "NoMatchingFlavor"
    cluster.tell(events.FlavorSet(make_flavor("f")))
    assert cluster.rest() == ["w"]


def test_deactivated_workload_leaves_the_queue(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    cluster.submit("w", "q", active=False)
    assert cluster.rest() == []
    assert cluster.where("w") is Where.DEACTIVATED
    cluster.submit("w", "q")
    assert cluster.rest() == ["w"]


def test_workload_that_is_being_deleted_is_not_admitted(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    found = make_workload("w", "q", {"gpu": 1})
    meta = attrs.evolve(found.metadata, deletion_timestamp=5.0)
    cluster.tell(events.WorkloadSet(attrs.evolve(found, metadata=meta)))
    assert cluster.rest() == []
    assert cluster.where("w") is Where.LEAVING
    assert cluster.where("unheard-of") is Where.UNKNOWN


def test_recreated_workload_of_the_same_name_is_another_one(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    cluster.tell(events.WorkloadSet(holding("w", "q", 1)))
    found = make_workload("w", "q", {"gpu": 1})
    meta = attrs.evolve(found.metadata, uid="other")
    cluster.tell(events.WorkloadSet(attrs.evolve(found, metadata=meta)))
    assert cluster.rest() == ["w"]


def test_local_queue_that_points_elsewhere_takes_its_workloads_along(cluster: Cluster) -> None:
    cluster.queue("a", 1)
    cluster.queue("b", 2)
    cluster.submit("w", "a", 2)
    assert cluster.rest() == []
    cluster.tell(events.LocalQueueSet(make_local_queue("a", "b")))
    assert cluster.engine.pending("a") == ()
    assert cluster.rest() == ["w"]
    assert cluster.admits[0].cluster_queue == "b"


def test_namespace_that_does_not_match_and_then_does(cluster: Cluster) -> None:
    cluster.queue("q", 1, selector={"matchLabels": {"team": "blue"}}, **STRICT)
    cluster.queue("free", 1)
    cluster.submit("w", "q")
    cluster.submit("v", "q", created=1, namespace="other")
    cluster.tell(events.LocalQueueSet(make_local_queue("q", "q", "other")))
    cluster.tell(events.NamespaceSet("other", {"team": "blue"}))
    assert cluster.rest() == ["v"]
    assert cluster.reason("w") == NamespaceMismatch("q", "ns")
    cluster.tell(events.WorkloadGone(ObjectKey("other", "v")))
    assert cluster.rest() == []
    cluster.tell(events.NamespaceSet("ns", {"team": "blue"}))
    assert cluster.rest() == ["w"]


def test_selector_that_opens_lets_parked_workloads_in(cluster: Cluster) -> None:
    cluster.queue("q", 1, selector={"matchLabels": {"team": "blue"}})
    cluster.submit("w", "q")
    assert cluster.rest() == []
    cluster.queue("q", 1)
    assert cluster.rest() == ["w"]


def test_unknown_namespace_is_a_passing_state(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    cluster.tell(events.LocalQueueSet(make_local_queue("q", "q", "new")))
    cluster.submit("w", "q", namespace="new")
    assert cluster.rest() == []
    (wait,) = cluster.waits
    assert wait.transient
    assert wait.reason == NamespaceUnknown("new")
    cluster.tell(events.NamespaceSet("new", {}))
    assert cluster.rest() == ["w"]


# --- admission


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


def test_wait_counts_from_the_last_eviction(cluster: Cluster) -> None:
    cluster.queue("q", 9)
    evicted = make_condition("Evicted", True, "Preempted", at=900)
    cluster.submit("w", "q", created=400, conditions=[evicted])
    cluster.rest()
    assert cluster.admits[0].wait_seconds == 100


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


# --- who is never a head


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
