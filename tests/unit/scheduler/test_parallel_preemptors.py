"""Preemptors that do not wait for each other's victims."""

from __future__ import annotations

from typing import Any

import pytest
from preemption_cluster import LOWER, RECLAIM, Cluster, key

from kueuelib.scheduler import events
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.quota.past_usage import UsageRule
from kueuelib.scheduler.reasons import FitsAfterPreemptions, NoFlavors
from kueuelib.scheduler.settings import FairSharingRules, Settings
from kueuelib.testing.builders import (
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)

BY_USAGE = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
STRATEGIES = pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])


def parallel(**settings: Any) -> Cluster:
    cluster = Cluster(Engine(Settings(parallel_preemptors=True, **settings)))
    cluster.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    return cluster


def rest(cluster: Cluster) -> list[str]:
    """What happens until nothing is left to decide."""
    found: list[str] = []
    for _ in range(50):
        found += cluster.cycle()
        if not cluster.engine.has_work(cluster.now):
            return found
    raise AssertionError("the engine does not come to rest")


def queue_of(cluster: Cluster, running: int, waiting: int, **spec: Any) -> None:
    """A full ClusterQueue, and Workloads of higher priority."""
    cluster.queue("q", {"f": {"gpu": running}}, preemption=LOWER, **spec)
    for number in range(running):
        cluster.running(f"low{number}", "q", at=number)
    for number in range(waiting):
        cluster.submit(f"high{number}", "q", priority=1, created=number)


@STRATEGIES
def test_all_victims_leave_at_once(strategy: str) -> None:
    cluster = parallel()
    queue_of(cluster, 4, 4, queueingStrategy=strategy)
    assert rest(cluster) == ["-low3", "-low2", "-low1", "-low0"]
    cluster.leaves("low1")
    assert rest(cluster) == ["+high0"]
    for name in ("low0", "low2", "low3"):
        cluster.leaves(name)
    assert rest(cluster) == ["+high1", "+high2", "+high3"]


def test_without_the_setting_they_leave_one_after_the_other() -> None:
    cluster = parallel()
    cluster.engine = Engine(Settings(parallel_preemptors=False))
    cluster.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    queue_of(cluster, 2, 2)
    assert rest(cluster) == ["-low1"]
    cluster.leaves("low1")
    assert rest(cluster) == ["+high0", "-low0"]


def test_a_preemptor_waits_only_for_its_own_victims() -> None:
    cluster = parallel()
    cluster.queue("q", {"f": {"gpu": 4}}, preemption=LOWER)
    cluster.running("big", "q", 3, at=2)
    cluster.running("small", "q", 1, at=1)
    cluster.submit("one", "q", 3, priority=2)
    cluster.submit("two", "q", 1, priority=1)
    assert rest(cluster) == ["-big", "-small"]
    cluster.leaves("small")
    assert rest(cluster) == ["+two"]
    cluster.leaves("big")
    assert rest(cluster) == ["+one"]


def test_nobody_takes_the_room_of_a_preemptor() -> None:
    """Not even piece by piece, while the second of its victims is still leaving."""
    cluster = parallel()
    cluster.queue("q", {"f": {"gpu": 2}}, cohort="c", preemption=LOWER)
    cluster.queue("z", {"f": {"gpu": 0}}, cohort="c")
    cluster.running("low0", "q")
    cluster.running("low1", "q")
    cluster.submit("high", "q", 2, priority=1)
    assert rest(cluster) == ["-low0", "-low1"]
    cluster.submit("late", "q", 1)
    cluster.submit("borrows", "z", 1, priority=9)
    cluster.leaves("low0")
    assert rest(cluster) == []
    cluster.leaves("low1")
    assert rest(cluster) == ["+high"]


def test_who_fits_beside_a_preemptor_starts_before_it() -> None:
    cluster = parallel()
    cluster.queue("q", {"f": {"gpu": 4}}, preemption=LOWER, queueingStrategy="StrictFIFO")
    cluster.running("low", "q", 3)
    cluster.submit("high", "q", 3, priority=1)
    cluster.submit("small", "q", 1)
    assert rest(cluster) == ["-low", "+small"]


def test_what_a_victim_leaves_over_is_given_when_it_is_gone() -> None:
    """No Workload is admitted into room that a victim has yet to leave, in later cycles as well."""
    cluster = parallel()
    cluster.queue("q", {"f": {"gpu": 3}}, preemption=LOWER)
    cluster.running("low", "q", 3)
    cluster.submit("high", "q", 1, priority=2)
    cluster.submit("next", "q", 1, priority=1, created=1)
    cluster.submit("last", "q", 1, priority=1, created=2)
    assert rest(cluster) == ["-low"]
    reason = cluster.engine.standing(key("last")).reason
    assert reason == FitsAfterPreemptions((key("low"),))
    cluster.leaves("low")
    assert rest(cluster) == ["+high", "+next", "+last"]


def test_something_else_that_becomes_free_is_for_the_first_preemptor() -> None:
    cluster = parallel()
    queue_of(cluster, 3, 2)
    assert rest(cluster) == ["-low2", "-low1"]
    cluster.tell(events.WorkloadGone(key("low0")))
    assert rest(cluster) == ["+high0"]
    cluster.submit("more", "q", priority=1, created=9)
    assert rest(cluster) == []
    reason = cluster.engine.standing(key("more")).reason
    assert reason == FitsAfterPreemptions((key("low1"), key("low2")))
    cluster.leaves("low1")
    cluster.leaves("low2")
    assert rest(cluster) == ["+high1", "+more"]


def test_a_better_flavor_that_becomes_free_is_taken() -> None:
    cluster = parallel()
    cluster.tell(events.FlavorSet(make_flavor("g")))
    cluster.queue("q", {"f": {"gpu": 2}, "g": {"gpu": 1}}, preemption=LOWER)
    cluster.submit("first", "q", 2, priority=9)
    cluster.submit("second", "q", 1, priority=9)
    assert rest(cluster) == ["+first", "+second"]
    cluster.tell(events.WorkloadGone(key("first")))
    cluster.running("low", "q", 2)
    cluster.submit("high", "q", 1, priority=1)
    assert rest(cluster) == ["-low"]
    cluster.tell(events.WorkloadGone(key("second")))
    assert rest(cluster) == ["+high"]
    flavors = cluster.workloads["high"].status.admission.pod_set_assignments[0].flavors  # type: ignore[union-attr]
    assert flavors == {"gpu": "g"}


# --- the order of the queue


def test_who_takes_another_flavor_leaves_its_promised_room_to_others() -> None:
    """They wait for it at once."""
    cluster = parallel()
    cluster.tell(events.FlavorSet(make_flavor("g")))
    cluster.queue("q", {"f": {"gpu": 2}, "g": {"gpu": 1}}, cohort="c", preemption=LOWER)
    cluster.queue("z", {"f": {"gpu": 0}}, cohort="c")
    cluster.submit("first", "q", 2, priority=9)
    cluster.submit("second", "q", 1, priority=9)
    assert rest(cluster) == ["+first", "+second"]
    cluster.tell(events.WorkloadGone(key("first")))
    cluster.running("low", "q", 2)
    cluster.submit("high", "q", 1, priority=1)
    cluster.submit("borrows", "z", 2, created=9)
    assert rest(cluster) == ["-low"]
    assert isinstance(cluster.engine.standing(key("borrows")).reason, NoFlavors)
    cluster.tell(events.WorkloadGone(key("second")))
    assert rest(cluster) == ["+high"]
    reason = cluster.engine.standing(key("borrows")).reason
    assert reason == FitsAfterPreemptions((key("low"),))


@STRATEGIES
def test_who_comes_first_takes_the_room_of_a_preemptor_behind(strategy: str) -> None:
    """If there are no other victims; nobody is evicted for that."""
    cluster = parallel()
    cluster.queue("q", {"f": {"gpu": 1}}, preemption=LOWER, queueingStrategy=strategy)
    cluster.running("low", "q")
    cluster.submit("high", "q", priority=1)
    assert rest(cluster) == ["-low"]
    cluster.submit("higher", "q", priority=2)
    assert rest(cluster) == []
    assert cluster.engine.standing(key("higher")).reason == FitsAfterPreemptions((key("low"),))
    assert isinstance(cluster.engine.standing(key("high")).reason, NoFlavors)
    cluster.leaves("low")
    assert rest(cluster) == ["+higher"]


@pytest.mark.parametrize("counts", [False, True])
def test_higher_priority_does_not_take_the_room_of_a_local_queue_that_used_less(
    counts: bool,
) -> None:
    """As for heads, past usage counts before priority in ClusterQueues that ask for it."""
    cluster = parallel(past_usage=UsageRule(half_life=600.0, interval=300.0))
    cluster.queue("q", {"f": {"gpu": 3}}, preemption=LOWER, **(BY_USAGE if counts else {}))
    cluster.tell(events.LocalQueueSet(make_local_queue("idle", "q")))
    cluster.running("used", "q", 2, priority=9, at=cluster.now - 900)
    cluster.running("low", "q", 1, priority=-9)
    cluster.put(make_workload("modest", "idle", {"gpu": 1}))
    assert rest(cluster) == ["-low"]
    cluster.submit("urgent", "q", 1, priority=5)
    assert rest(cluster) == []
    cluster.leaves("low")
    assert rest(cluster)[:1] == (["+modest"] if counts else ["+urgent"])


@pytest.mark.parametrize("priority", [0, 5])
def test_less_past_usage_alone_does_not_take_the_room_of_a_preemptor(priority: int) -> None:
    """It would be preempted as soon as it runs, unless its priority is as high."""
    cluster = parallel(past_usage=UsageRule(half_life=600.0, interval=300.0))
    cluster.queue("q", {"f": {"gpu": 3}}, preemption=LOWER, **BY_USAGE)
    cluster.tell(events.LocalQueueSet(make_local_queue("idle", "q")))
    cluster.running("used", "q", 2, priority=9, at=cluster.now - 900)
    cluster.running("low", "q", 1, priority=-9)
    cluster.submit("urgent", "q", 1, priority=5, created=50)
    assert rest(cluster) == ["-low"]
    cluster.put(make_workload("modest", "idle", {"gpu": 1}, priority=priority, created=1))
    assert rest(cluster) == []
    cluster.leaves("low")
    assert rest(cluster) == (["+modest"] if priority == 5 else ["+urgent"])


def test_past_usage_decides_whose_promise_lasts_where_it_counts() -> None:
    """If quota shrinks while their victims leave, the one that comes first keeps its room."""
    cluster = parallel(past_usage=UsageRule(half_life=600.0, interval=300.0))
    cluster.queue("q", {"f": {"gpu": 4}}, preemption=LOWER, **BY_USAGE)
    cluster.tell(events.LocalQueueSet(make_local_queue("idle", "q")))
    cluster.running("used", "q", 2, priority=9, at=cluster.now - 900)
    cluster.running("low", "q", 2, priority=-9)
    cluster.put(make_workload("modest", "idle", {"gpu": 1}))
    cluster.submit("urgent", "q", 1, priority=5)
    assert rest(cluster) == ["-low"]
    cluster.running("late", "q", 1, priority=9)
    cluster.leaves("low")
    assert rest(cluster) == ["+modest"]


def test_who_loses_its_room_to_an_earlier_one_finds_other_victims() -> None:
    cluster = parallel()
    queue_of(cluster, 2, 1)
    assert rest(cluster) == ["-low1"]
    cluster.submit("higher", "q", priority=2)
    assert rest(cluster) == ["-low0"]
    victims = {
        name: cluster.engine.standing(key(name)).reason.victims  # type: ignore[union-attr]
        for name in ("higher", "high0")
    }
    assert victims == {"higher": (key("low1"),), "high0": (key("low0"),)}


def test_who_comes_first_and_fits_takes_no_room_of_those_behind() -> None:
    cluster = parallel()
    cluster.queue("q", {"f": {"gpu": 3}}, preemption=LOWER)
    cluster.running("low", "q", 2)
    cluster.submit("high", "q", 2, priority=1)
    assert rest(cluster) == ["-low"]
    cluster.submit("higher", "q", 1, priority=2)
    assert rest(cluster) == ["+higher"]
    cluster.leaves("low")
    assert rest(cluster) == ["+high"]


def test_who_comes_first_and_is_blocked_takes_no_room_of_those_behind() -> None:
    cluster = parallel()
    cluster.queue("q", {"f": {"gpu": 2}}, preemption=LOWER)
    cluster.running("low", "q", 1)
    cluster.running("peer", "q", 1, priority=5)
    cluster.submit("high", "q", 1, priority=1)
    assert rest(cluster) == ["-low"]
    cluster.submit("higher", "q", 2, priority=2)
    assert rest(cluster) == []
    cluster.leaves("low")
    assert rest(cluster) == ["+high"]


# --- the end of a promise


@pytest.mark.parametrize("how", ["gone", "deactivated", "edited"])
def test_the_room_of_a_preemptor_that_gives_up_is_for_others(how: str) -> None:
    cluster = parallel()
    cluster.queue("q", {"f": {"gpu": 1}}, preemption=LOWER)
    cluster.running("low", "q")
    cluster.submit("high", "q", priority=2)
    cluster.submit("next", "q", priority=1)
    assert rest(cluster) == ["-low"]
    if how == "gone":
        cluster.tell(events.WorkloadGone(key("high")))
    elif how == "deactivated":
        cluster.submit("high", "q", priority=2, active=False)
    else:
        cluster.submit("high", "q", 2, priority=2)
    assert rest(cluster) == []
    assert cluster.engine.standing(key("next")).reason == FitsAfterPreemptions((key("low"),))
    cluster.leaves("low")
    assert rest(cluster) == ["+next"]


def test_a_preemptor_whose_victim_stays_looks_for_another() -> None:
    cluster = parallel()
    queue_of(cluster, 2, 1)
    assert rest(cluster) == ["-low1"]
    cluster.tell(events.EvictionFailed(key("low1"), why="no"))
    assert rest(cluster) == ["-low0"]
    cluster.hears("low0")
    cluster.leaves("low0")
    assert rest(cluster) == ["+high0"]


def test_a_preemptor_that_does_not_fit_without_its_victims_chooses_again() -> None:
    """Another manager may have given their room away."""
    cluster = parallel()
    queue_of(cluster, 1, 1)
    assert rest(cluster) == ["-low0"]
    cluster.running("intruder", "q", 1)
    cluster.leaves("low0")
    assert rest(cluster) == ["-intruder"]
    cluster.leaves("intruder")
    assert rest(cluster) == ["+high0"]


def test_a_change_of_quotas_ends_promises_but_not_their_victims() -> None:
    """Those that leave already come first when the preemptors choose again."""
    cluster = parallel()
    queue_of(cluster, 3, 2)
    assert rest(cluster) == ["-low2", "-low1"]
    queue = make_cluster_queue("q", {"f": {"gpu": 3}, "g": {"gpu": 0}}, preemption=LOWER)
    cluster.tell(events.FlavorSet(make_flavor("g")), events.ClusterQueueSet(queue))
    assert rest(cluster) == []
    cluster.leaves("low1")
    cluster.leaves("low2")
    assert rest(cluster) == ["+high0", "+high1"]


def test_a_shrunken_quota_lets_the_last_preemptor_wait_again() -> None:
    cluster = parallel()
    queue_of(cluster, 2, 2)
    assert rest(cluster) == ["-low1", "-low0"]
    queue = make_cluster_queue("q", {"f": {"gpu": 1}}, preemption=LOWER)
    cluster.tell(events.ClusterQueueSet(queue))
    cluster.leaves("low1")
    cluster.leaves("low0")
    assert rest(cluster) == ["+high0"]


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 1, 3), (3, 1, 2)])
def test_a_new_manager_evicts_nobody_again(sizes: tuple[int, ...]) -> None:
    """It does not know who preempted whom: those that leave already come first."""
    cluster = parallel()
    cluster.queue("q", {"f": {"gpu": sum(sizes) + 2}}, preemption=LOWER)
    for number, size in enumerate(sizes):
        cluster.running(f"low{number}", "q", size, at=number)
    cluster.running("stays", "q", 2, at=-1)
    for number, size in enumerate(reversed(sizes)):
        cluster.submit(f"high{number}", "q", size, priority=1, created=number)
    told = {name[1:] for name in rest(cluster)}
    for name in sorted(told):
        cluster.hears(name)
    fresh = Cluster(Engine(Settings(parallel_preemptors=True)))
    fresh.workloads = cluster.workloads
    fresh.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    fresh.queue("q", {"f": {"gpu": sum(sizes) + 2}}, preemption=LOWER)
    fresh.tell(*(events.WorkloadSet(found) for found in cluster.workloads.values()))
    assert rest(fresh) == []
    for name in sorted(told):
        fresh.leaves(name)
    started = [name for name in rest(fresh) if name.startswith("+high")]
    assert len(started) == len(sizes)


# --- cohorts, fair sharing, all at once


def owners(cluster: Cluster, fair: bool) -> None:
    """Two owners whose quota a third one borrows."""
    for name in ("a", "b"):
        cluster.queue(name, {"f": {"gpu": 2}}, cohort="c", preemption=RECLAIM)
    cluster.queue("z", {"f": {"gpu": 0}}, cohort="c")
    for number in range(4):
        cluster.running(f"z{number}", "z", at=number)
    for number in range(2):
        cluster.submit(f"a{number}", "a", created=number)
        cluster.submit(f"b{number}", "b", created=number)


@pytest.mark.parametrize("fair", [False, True])
def test_owners_reclaim_at_once(fair: bool) -> None:
    cluster = parallel(fair_sharing=FairSharingRules() if fair else None)
    owners(cluster, fair)
    assert sorted(rest(cluster)) == ["-z0", "-z1", "-z2", "-z3"]
    for number in range(4):
        cluster.leaves(f"z{number}")
    assert sorted(rest(cluster)) == ["+a0", "+a1", "+b0", "+b1"]


def test_one_at_a_time_while_pods_have_to_be_ready() -> None:
    """`blockAdmission` holds for those that wait for their victims as well."""
    cluster = parallel(block_admission=True)
    queue_of(cluster, 2, 2)
    rest(cluster)
    cluster.leaves("low0")
    cluster.leaves("low1")
    assert rest(cluster) == ["+high0"]


# --- room that depends on the victims of others


def test_room_that_depends_on_the_victim_of_another_is_kept() -> None:
    """A victim that comes back does not take it, and is not evicted again."""
    cluster = parallel()
    cluster.queue("q", {"f": {"gpu": 3}}, cohort="c", preemption=LOWER)
    cluster.queue("z", {"f": {"gpu": 0}}, cohort="c")
    cluster.running("b", "q", 1, at=1)
    cluster.running("a", "q", 2, at=2)
    cluster.submit("borrows", "z", 1, priority=-9)
    cluster.submit("one", "q", 1, priority=3, created=3)
    assert rest(cluster) == ["-a"]
    cluster.submit("two", "q", 2, priority=2, created=5)
    assert rest(cluster) == ["-b"]
    cluster.leaves("b")
    assert rest(cluster) == ["+one"]
    cluster.leaves("a")
    assert rest(cluster) == ["+two"]


def test_an_earlier_one_of_the_same_shape_is_tried() -> None:
    """A verdict behind a preemptor does not hold for those before it."""
    cluster = parallel()
    queue_of(cluster, 1, 0)
    cluster.submit("first", "q", priority=3, created=2, active=False)
    cluster.submit("high", "q", priority=3, created=20)
    cluster.submit("behind", "q", priority=3, created=21)
    assert rest(cluster) == ["-low0"]
    cluster.submit("first", "q", priority=3, created=2)
    assert rest(cluster) == []
    assert cluster.engine.standing(key("first")).reason == FitsAfterPreemptions((key("low0"),))
    cluster.leaves("low0")
    assert rest(cluster) == ["+first"]


def test_those_that_wait_hear_that_others_leave() -> None:
    """The first of them gets what the victims leave over, in another ClusterQueue as well."""
    cluster = parallel()
    cluster.queue("a", {"f": {"gpu": 3}}, cohort="c", preemption=LOWER)
    cluster.queue("b", {"f": {"gpu": 2}}, cohort="c")
    cluster.queue("z", {"f": {"gpu": 0}}, cohort="c")
    cluster.running("big", "a", 5, priority=7)
    cluster.submit("owner", "b", 2, priority=5)
    assert rest(cluster) == []
    cluster.submit("high", "a", 3, priority=8, created=1)
    assert rest(cluster) == ["-big"]
    assert cluster.engine.standing(key("owner")).reason == FitsAfterPreemptions((key("big"),))
    cluster.submit("late", "z", 2, priority=-5, created=20)
    assert rest(cluster) == []
    cluster.leaves("big")
    assert rest(cluster) == ["+high", "+owner"]


def test_promised_room_that_is_borrowed_makes_nobody_a_victim() -> None:
    """Only what runs counts: `within` is in a ClusterQueue that uses its nominal quota."""
    cluster = parallel()
    borrows = {
        "reclaimWithinCohort": "LowerPriority",
        "borrowWithinCohort": {"policy": "LowerPriority"},
    }
    cluster.queue("a", {"f": {"gpu": 0}}, cohort="c", preemption=borrows)
    cluster.queue("b", {"f": {"gpu": 2}}, cohort="c", preemption=LOWER)
    cluster.queue("z", {"f": {"gpu": 2}}, cohort="c")
    cluster.running("within", "b", 2, at=0, priority=8)
    cluster.running("low", "b", 2, at=5)
    cluster.submit("high", "b", 2, priority=1)
    assert rest(cluster) == ["-low"]
    cluster.hears("low")
    cluster.submit("top", "a", 2, priority=9)
    assert rest(cluster) == []
    cluster.leaves("low")
    assert rest(cluster) == ["+high", "-high"]


def test_what_runs_is_taken_until_its_cluster_queue_is_within_its_nominal_quota() -> None:
    """Room that is promised there does not count, so one victim would not be enough."""
    cluster = parallel()
    borrows = {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}
    cluster.queue("a", {"f": {"gpu": 0}}, cohort="c", preemption=borrows)
    cluster.queue("b", {"f": {"gpu": 1}}, cohort="c", preemption=LOWER)
    cluster.queue("z", {"f": {"gpu": 2}}, cohort="c")
    for number, name in enumerate(("low", "extra", "within")):
        cluster.running(name, "b", 1, priority=number + number)
    cluster.submit("high", "b", 1, priority=1)
    assert rest(cluster) == ["-low"]
    cluster.submit("top", "a", 2, priority=9)
    assert rest(cluster) == []
    cluster.submit("small", "a", 1, priority=10)
    assert rest(cluster) == ["-extra"]


def test_promised_room_elsewhere_costs_no_victims_of_the_own_cluster_queue() -> None:
    """Nobody can be preempted there, so the preemptor borrows what is free."""
    cluster = parallel()
    both = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    cluster.queue("a", {"f": {"gpu": 3}}, cohort="c", preemption=both)
    cluster.queue("b", {"f": {"gpu": 1}}, cohort="c", preemption=LOWER)
    cluster.queue("z", {"f": {"gpu": 2}}, cohort="c")
    cluster.running("within", "b", 1, priority=8)
    cluster.running("low", "b", 3)
    cluster.running("one", "a", 1)
    cluster.running("two", "a", 1)
    cluster.submit("high", "b", 1, priority=1)
    assert rest(cluster) == ["-low"]
    cluster.submit("owner", "a", 3, priority=9)
    assert rest(cluster) == ["-one"]


@pytest.mark.parametrize("fair", [False, True])
def test_an_owner_takes_fewer_pods_rather_than_what_promised_room_would_make_reclaimable(
    fair: bool,
) -> None:
    """It waits until the borrower has started, which is then what it reclaims."""
    cluster = parallel(fair_sharing=FairSharingRules() if fair else None)
    cluster.queue("a", {"f": {"gpu": 2}}, cohort="c")
    cluster.queue("b", {"f": {"gpu": 1}}, cohort="c", preemption=RECLAIM)
    cluster.queue("c", {"f": {"gpu": 2}}, cohort="c", preemption=LOWER)
    cluster.running("full", "a", 2, priority=9)
    cluster.running("within", "c", 1, at=0, priority=8)
    cluster.running("low", "c", 2, at=5)
    cluster.submit("high", "c", 2, priority=1)
    assert rest(cluster) == ["-low"]
    cluster.hears("low")
    cluster.put(make_workload("owner", "b", pod_sets=[make_pod_set({"gpu": 1}, "main", 2, 1)]))
    assert rest(cluster) == []
    cluster.leaves("low")
    assert rest(cluster) == ["+high", "-high"]


def test_a_promise_that_comes_to_borrow_leaves_owners_what_they_wait_for() -> None:
    """An earlier Workload of its ClusterQueue took the nominal quota that it would have used."""
    cluster = parallel(protects_nominal=True)
    cluster.queue("q", {"f": {"gpu": 2}}, cohort="c", preemption=LOWER)
    cluster.queue("o", {"f": {"gpu": 2}}, cohort="c")
    cluster.running("low", "q", 2, priority=-5)
    cluster.running("one", "o", 1, priority=9)
    cluster.running("two", "o", 1, priority=9)
    cluster.submit("owner", "o", 2, created=1)
    cluster.submit("behind", "q", 1, created=2)
    assert rest(cluster) == ["-low"]
    cluster.hears("low")
    cluster.tell(events.WorkloadGone(key("two")))
    cluster.submit("first", "q", 2, created=0)
    assert rest(cluster) == []
    cluster.leaves("low")
    assert rest(cluster) == ["+first"]
    cluster.tell(events.WorkloadGone(key("one")))
    assert rest(cluster) == ["+owner"]


@pytest.mark.parametrize("policy", [{}, RECLAIM])
@pytest.mark.parametrize("fair", [False, True])
def test_a_preemptor_that_borrows_yields_to_an_owner(policy: dict[str, str], fair: bool) -> None:
    cluster = parallel(fair_sharing=FairSharingRules() if fair else None)
    cluster.queue("a", {"f": {"gpu": 2}}, cohort="c", preemption=LOWER)
    cluster.queue("b", {"f": {"gpu": 2}}, cohort="c", preemption=policy)
    cluster.running("peer", "a", 2, priority=8, at=0)
    cluster.running("low", "a", 2)
    cluster.submit("borrows", "a", 2, priority=1)
    assert rest(cluster) == ["-low"]
    cluster.submit("owner", "b", 2, created=50)
    assert rest(cluster) == []
    cluster.leaves("low")
    assert rest(cluster) == ["+owner"]


def test_a_preemptor_that_lost_its_room_three_times_keeps_it() -> None:
    """Owners elsewhere come after it then, although it borrows."""
    cluster = parallel()
    cluster.queue("a", {"f": {"gpu": 2}}, cohort="c", preemption=LOWER)
    cluster.queue("b", {"f": {"gpu": 8}}, cohort="c")
    cluster.running("peer", "a", 2, priority=8, at=0)
    for number in range(4):
        cluster.running(f"low{number}", "a", 2, at=number + 1)
    cluster.submit("borrows", "a", 2, priority=1)
    assert rest(cluster) == ["-low3"]
    for number in (0, 1):
        cluster.submit(f"owner{number}", "b", 2, created=50 + number)
        assert rest(cluster) == [f"-low{2 - number}"]
    cluster.submit("owner2", "b", 2, created=60)
    assert rest(cluster) == []
    for name in ("low1", "low2", "low3"):
        cluster.leaves(name)
    assert sorted(rest(cluster)) == ["+borrows", "+owner0", "+owner1"]


def test_a_preemptor_that_borrows_yields_to_an_owner_that_comes_as_its_victim_leaves() -> None:
    cluster = parallel()
    cluster.queue("a", {"f": {"gpu": 2}}, cohort="c", preemption=LOWER)
    cluster.queue("b", {"f": {"gpu": 2}}, cohort="c")
    cluster.running("peer", "a", 2, priority=8, at=0)
    cluster.running("low", "a", 2)
    cluster.submit("borrows", "a", 2, priority=1)
    assert rest(cluster) == ["-low"]
    cluster.leaves("low")
    cluster.submit("owner", "b", 2, created=50)
    assert rest(cluster) == ["+owner"]


@pytest.mark.parametrize("protects", [False, True])
def test_a_preemptor_takes_no_other_flavor_from_its_owner(protects: bool) -> None:
    cluster = parallel(protects_nominal=protects)
    cluster.tell(events.FlavorSet(make_flavor("g")))
    cluster.queue("a", {"f": {"gpu": 1}, "g": {"gpu": 0}}, cohort="c", preemption=LOWER)
    cluster.queue("b", {"g": {"gpu": 1}}, cohort="c")
    cluster.running("low", "a")
    cluster.submit("holds", "b", priority=9)
    assert rest(cluster) == ["+holds"]
    cluster.submit("owner", "b", priority=5)
    cluster.submit("high", "a", priority=1, created=30)
    assert rest(cluster) == ["-low"]
    cluster.tell(events.WorkloadGone(key("holds")))
    assert rest(cluster) == ["+owner"]


def test_who_lost_its_room_five_times_preempts_nobody_until_others_end() -> None:
    cluster = parallel()
    queue_of(cluster, 9, 1)
    assert rest(cluster) == ["-low8"]
    for number in range(4):
        cluster.submit(f"higher{number}", "q", priority=2 + number)
        assert rest(cluster) == [f"-low{7 - number}"]
    cluster.submit("higher4", "q", priority=6)
    assert rest(cluster) == []
    cluster.tell(events.WorkloadGone(key("low0")))
    assert rest(cluster) == ["+higher4"]
    for number in range(4, 9):
        cluster.leaves(f"low{number}")
    assert "+high0" in rest(cluster)


@STRATEGIES
def test_preemptors_of_two_queues_that_take_room_from_each_other_come_to_rest(
    strategy: str,
) -> None:
    """What an earlier Workload of the queue takes may be lost to others at once."""
    cluster = parallel()
    borrows = {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}
    reclaims = {"reclaimWithinCohort": "Any"}
    cluster.queue("a", {"f": {"gpu": 1}}, cohort="x")
    spec = {"queueingStrategy": strategy}
    cluster.queue("b", {"f": {"gpu": 6}}, cohort="x", preemption=borrows, **spec)
    cluster.queue("c", {"f": {"gpu": 3}}, cohort="x", preemption=reclaims)
    cluster.submit("b1", "b", 5, priority=3, created=5)
    cluster.submit("b2", "b", 5, priority=3, created=7)
    cluster.submit("c1", "c", 5, priority=2, created=0)
    cluster.submit("c2", "c", 3, priority=2, created=5)
    for _ in range(20):
        told = [step[1:] for step in rest(cluster) if step.startswith("-")]
        if not told:
            return
        for name in told:
            cluster.hears(name)
        for name in told:
            cluster.leaves(name)
    raise AssertionError("they preempt each other again and again")


def test_what_is_free_now_comes_before_what_others_leave() -> None:
    """A head that fits in another flavor does not wait for the first one."""
    cluster = parallel()
    cluster.tell(events.FlavorSet(make_flavor("g")))
    cluster.queue("q", {"f": {"gpu": 2}, "g": {"gpu": 1}}, preemption=LOWER)
    cluster.running("low", "q", 2)
    cluster.submit("high", "q", 2, priority=1)
    assert rest(cluster) == ["-low"]
    cluster.tell(events.WorkloadGone(key("high")))
    cluster.submit("next", "q", 1)
    assert rest(cluster) == ["+next"]
