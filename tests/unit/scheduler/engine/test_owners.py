"""Nominal quota that is kept for those who own it and wait."""

from __future__ import annotations

from typing import Any

import pytest
from engine_cluster import NOW, STRICT, Cluster, holding, key

from kueuelib.scheduler import events
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.reasons import NoFlavors, Preempting
from kueuelib.scheduler.settings import FairSharingRules, Settings
from kueuelib.testing.builders import (
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_pod_set,
)


def protecting(**settings: Any) -> Cluster:
    cluster = Cluster(Engine(Settings(protects_nominal=True, **settings)))
    cluster.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    return cluster


def owner_and_borrower(cluster: Cluster, owner: dict[str, Any] | None = None) -> None:
    """The owner needs 6 of its 6, and runs 3; others borrow 2 of 4 that they need."""
    cluster.queue("a", {"nominal": 6, "borrowing": 0}, cohort="c", **(owner or {}))
    cluster.queue("b", 4, cohort="c")
    cluster.tell(events.WorkloadSet(holding("r", "a", 3)))
    cluster.submit("want", "a", 6)
    cluster.submit("borrow", "b", 6, created=1)


@pytest.mark.parametrize("owner", [{}, STRICT], ids=["BestEffortFIFO", "StrictFIFO"])
@pytest.mark.parametrize("fair", [False, True])
def test_no_later_borrower_gets_what_a_waiting_owner_needs(owner: Any, fair: bool) -> None:
    cluster = protecting(fair_sharing=FairSharingRules() if fair else None)
    owner_and_borrower(cluster, owner)
    assert cluster.rest() == []
    for number in range(3):
        cluster.submit(f"more{number}", "b", 5, created=2)
        assert cluster.rest() == []
    assert isinstance(cluster.reason("borrow"), NoFlavors)
    cluster.tell(events.WorkloadGone(key("r")))
    assert cluster.rest() == ["want"]


def test_borrowers_get_what_the_owner_does_not_need() -> None:
    cluster = protecting()
    cluster.queue("a", 6, cohort="c")
    cluster.queue("b", 0, cohort="c")
    cluster.tell(events.WorkloadSet(holding("r", "a", 3)))
    cluster.submit("want", "a", 4)
    cluster.submit("small", "a", 1, created=1)
    assert cluster.rest() == ["small"]  # its own queue may use it
    cluster.tell(events.WorkloadGone(key("small")), events.WorkloadGone(key("want")))
    cluster.submit("want", "a", 5, created=2)
    cluster.submit("borrow", "b", 1, created=3)
    assert cluster.rest() == []
    cluster.tell(events.WorkloadGone(key("want")))
    assert cluster.rest() == ["borrow"]


def test_nobody_within_nominal_quota_waits_for_an_owner() -> None:
    """Although others have borrowed so much that not all owners fit."""
    cluster = protecting()
    for name, quota in (("a", 4), ("b", 4), ("z", 0)):
        cluster.queue(name, quota, cohort="c")
    cluster.tell(events.WorkloadSet(holding("z", "z", 4)))
    cluster.tell(events.WorkloadSet(holding("r", "a", 1)))
    cluster.submit("want", "a", 4)
    assert cluster.rest() == []
    cluster.submit("own", "b", 3, created=1)
    assert cluster.rest() == ["own"]


def test_who_would_have_to_borrow_is_no_owner() -> None:
    cluster = protecting()
    cluster.queue("a", 4, cohort="c")
    cluster.queue("b", 4, cohort="c")
    cluster.tell(events.WorkloadSet(holding("r", "a", 1)))
    cluster.submit("want", "a", 8)
    cluster.submit("borrow", "b", 6, created=1)
    cluster.rest()
    assert [one.key.name for one in cluster.admits] == ["borrow"]


def test_quota_is_kept_for_an_owner_that_may_reclaim_from_all() -> None:
    """What a stopped ClusterQueue has borrowed cannot be reclaimed."""
    cluster = protecting()
    owner_and_borrower(cluster, {"preemption": {"reclaimWithinCohort": "Any"}})
    assert cluster.rest() == []
    cluster.queue("b", 4, cohort="c", stopPolicy="Hold")
    cluster.tell(events.WorkloadGone(key("r")))
    assert cluster.rest() == ["want"]


@pytest.mark.parametrize("how", ["gone", "edited", "deactivated"])
def test_a_borrower_is_tried_again_when_the_owner_gives_up(how: str) -> None:
    cluster = protecting()
    owner_and_borrower(cluster)
    assert cluster.rest() == []
    if how == "gone":
        cluster.tell(events.WorkloadGone(key("want")))
    elif how == "edited":
        cluster.submit("want", "a", 7)
    else:
        cluster.submit("want", "a", 6, active=False)
    assert cluster.rest() == ["borrow"]


def test_nobody_preempts_in_order_to_borrow_what_an_owner_needs() -> None:
    cluster = protecting()
    cluster.queue("a", 6, cohort="c")
    cluster.queue("b", 0, cohort="c", preemption={"withinClusterQueue": "LowerPriority"})
    cluster.tell(events.WorkloadSet(holding("r", "a", 2)))
    cluster.tell(events.WorkloadSet(holding("low", "b", 4, priority=-1)))
    cluster.submit("want", "a", 4)
    cluster.submit("high", "b", 2, created=1)
    cluster.rest()
    assert isinstance(cluster.reason("high"), NoFlavors)
    holder = cluster.engine.cache.holder(key("low"))
    assert holder is not None
    assert not holder.evicted


def test_a_borrower_takes_another_flavor_that_no_owner_needs() -> None:
    cluster = protecting()
    cluster.tell(events.FlavorSet(make_flavor("g")))
    for name, f, g in (("a", 4, 0), ("b", 0, 0), ("l", 0, 2)):
        queue = make_cluster_queue(name, {"f": {"gpu": f}, "g": {"gpu": g}}, cohort="c")
        cluster.tell(events.ClusterQueueSet(queue))
        cluster.tell(events.LocalQueueSet(make_local_queue(name, name)))
    cluster.tell(events.WorkloadSet(holding("r", "a", 2)))
    cluster.submit("want", "a", 4)
    cluster.submit("borrow", "b", 2, created=1)
    assert cluster.rest() == ["borrow"]
    assignment = cluster.admits[-1].admission.pod_set_assignments[0]
    assert assignment.flavors == {"gpu": "g"}
    assert cluster.now == NOW


def test_pod_sets_count_together() -> None:
    """Each of them would fit the nominal quota; both together would have to borrow."""
    cluster = protecting()
    cluster.queue("a", 4, cohort="c")
    cluster.queue("b", 4, cohort="c")
    cluster.tell(events.WorkloadSet(holding("r", "a", 1)))
    pod_sets = [make_pod_set({"gpu": 4}, name) for name in ("driver", "workers")]
    cluster.submit("want", "a", pod_sets=pod_sets)
    cluster.submit("borrow", "b", 6, created=1)
    cluster.rest()
    assert [one.key.name for one in cluster.admits] == ["borrow"]


def test_fewer_pods_take_nothing_from_what_an_owner_wants() -> None:
    """All pods of the first one exceed the nominal quota, so nothing was kept for it."""
    cluster = protecting()
    cluster.queue("a", {"nominal": 7, "borrowing": 0}, cohort="c")
    cluster.queue("b", 3, cohort="c")
    pod_sets = [make_pod_set({"gpu": 2}, "main", 4, 3)]
    cluster.tell(events.WorkloadSet(holding("r", "b", 1)))
    cluster.submit("shrinks", "a", pod_sets=pod_sets)
    cluster.submit("want", "a", 3, created=1)
    cluster.submit("borrow", "b", 3, created=2)
    cluster.rest()
    assert [one.key.name for one in cluster.admits] == ["shrinks"]


def test_an_owner_keeps_every_flavor_that_it_could_get() -> None:
    cluster = protecting()
    cluster.tell(events.FlavorSet(make_flavor("g")))
    for name, f, g in (("a", 4, 4), ("b", 0, 0)):
        queue = make_cluster_queue(name, {"f": {"gpu": f}, "g": {"gpu": g}}, cohort="c")
        cluster.tell(events.ClusterQueueSet(queue))
        cluster.tell(events.LocalQueueSet(make_local_queue(name, name)))
    cluster.tell(events.WorkloadSet(holding("r", "a", 4)))
    cluster.tell(events.WorkloadSet(holding("s", "a", 2, flavor="g")))
    cluster.submit("want", "a", 4)
    cluster.submit("borrow", "b", 2, created=1)
    assert cluster.rest() == []


def test_the_queue_itself_may_use_what_is_kept_and_borrow_more() -> None:
    cluster = protecting()
    for name, quota in (("a", 6), ("b", 4), ("z", 0)):
        cluster.queue(name, quota, cohort="c")
    cluster.tell(events.WorkloadSet(holding("r", "a", 5)))
    cluster.tell(events.WorkloadSet(holding("z", "z", 3)))
    cluster.submit("want", "a", 6)
    cluster.submit("small", "a", 2, created=1)
    assert cluster.rest() == ["small"]


def test_no_more_is_kept_than_the_owner_leaves_unused() -> None:
    cluster = protecting()
    for name, quota in (("a", 4), ("b", 4), ("z", 0)):
        cluster.queue(name, quota, cohort="c")
    cluster.tell(events.WorkloadSet(holding("r", "a", 4)))
    cluster.submit("want", "a", 4)
    cluster.tell(events.WorkloadSet(holding("s", "b", 1)))
    cluster.submit("borrow", "z", 3, created=1)
    assert cluster.rest() == ["borrow"]


def test_who_preempts_leaves_room_for_owners() -> None:
    """One of both would be enough for it, if it borrowed what the owner needs."""
    cluster = protecting()
    cluster.queue("a", 6, cohort="c")
    cluster.queue("b", 1, cohort="c", preemption={"withinClusterQueue": "LowerPriority"})
    cluster.tell(events.WorkloadSet(holding("r", "a", 3)))
    for name in ("low0", "low1"):
        cluster.tell(events.WorkloadSet(holding(name, "b", 2, priority=-1)))
    cluster.submit("want", "a", 3)
    cluster.submit("high", "b", 1, created=1)
    assert cluster.rest() == []
    reason = cluster.reason("high")
    assert isinstance(reason, Preempting)
    assert reason.victims == (key("low0"), key("low1"))
