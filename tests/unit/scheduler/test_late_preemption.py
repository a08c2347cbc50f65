"""Quota that is reserved on the assumption of preemptions (KEP-993, AfterCheckPassedOrOnDemand)."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from preemption_cluster import LOWER, RECLAIM, Cluster, key

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey, format_time
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.decide.cycle_values import Plan
from kueuelib.scheduler.decide.preemption.guard import FIRST_REST
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.reasons import (
    FitsAfterPreemptions,
    MakingRoom,
    PodsNotReady,
    QuotaWithdrawn,
)
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_check,
    make_cluster_queue,
    make_cohort,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)

NOW = 1_700_000_000.0


def entry(state: str = "Pending", reason: str = "", name: str = "late") -> dict[str, Any]:
    found = {"name": name, "state": state, "message": "", "lastTransitionTime": format_time(NOW)}
    return {**found, **({"reason": reason} if reason else {})}


def reserved(
    name: str, *entries: dict[str, Any], admitted: bool = False, at: float = NOW, priority: int = 0
) -> Workload:
    assignment = make_assignment({"gpu": 1}, "f")
    status = {
        "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
        "admissionChecks": list(entries),
    }
    conditions = [make_condition("QuotaReserved", at=at)]
    if admitted:
        conditions.append(make_condition("Admitted", at=at))
    return make_workload(
        name, "lq", {"gpu": 1}, priority=priority, status=status, conditions=conditions
    )


def world(quota: int = 1, policy: str = "AfterCheckPassedOrOnDemand") -> Engine:
    engine = Engine()
    preemption = {"withinClusterQueue": "LowerPriority"}
    for event in (
        events.FlavorSet(make_flavor("f")),
        events.CheckSet(make_check("late", preemptionPolicy=policy)),
        events.NamespaceSet("ns", {}),
        events.ClusterQueueSet(
            make_cluster_queue("cq", {"f": {"gpu": quota}}, checks=["late"], preemption=preemption)
        ),
        events.LocalQueueSet(make_local_queue("lq", "cq")),
        events.WorkloadSet(reserved("low", admitted=True, at=NOW - 9)),
    ):
        engine.observe(event, NOW)
    return engine


def submit(engine: Engine, name: str, *entries: dict[str, Any], priority: int = 5) -> Settled:
    checks = {"admissionChecks": list(entries or [entry()])}
    wl = make_workload(name, "lq", {"gpu": 1}, priority=priority, status=checks)
    engine.observe(events.WorkloadSet(wl), NOW)
    found = engine.next_cycle(NOW)
    assert found is not None
    return engine.settle(decide(found, NOW), NOW)


def test_quota_is_reserved_and_nobody_has_to_leave() -> None:
    settled = submit(world(), "high")
    (admit,) = settled.admissions
    assert (admit.key.name, admit.admitted) == ("high", False)
    assert settled.preemptions == ()


def test_a_request_without_a_reservation_is_about_an_earlier_one() -> None:
    settled = submit(world(), "high", entry("Pending", "PreemptionRequired"))
    assert [admit.key.name for admit in settled.admissions] == ["high"]
    assert settled.preemptions == ()


def test_with_a_check_that_is_ready_already_preemption_comes_first() -> None:
    settled = submit(world(), "high", entry("Ready"))
    assert settled.admissions == ()
    assert [one.victims[0].key.name for one in settled.preemptions] == ["low"]


def test_anytime_preempts_before_the_reservation() -> None:
    settled = submit(world(policy="Anytime"), "high")
    assert settled.admissions == ()
    assert len(settled.preemptions) == 1


def test_the_same_room_is_promised_once() -> None:
    engine = world()
    assert len(submit(engine, "high").admissions) == 1
    for name, priority in (("peer", 5), ("lesser", 3)):
        settled = submit(engine, name, priority=priority)
        assert settled.admissions == ()
        assert settled.preemptions == ()


@pytest.mark.parametrize("exceeds", [False, True])
def test_room_of_victims_that_may_stay_is_never_given_away(exceeds: bool) -> None:
    """Each of the borrowers fits beside the victim; nobody asks the victim to leave."""
    engine = Engine(Settings(exceeds_quota=exceeds))
    preemption = {"withinClusterQueue": "LowerPriority"}
    holding = {"clusterQueue": "a", "podSetAssignments": [make_assignment({"gpu": 6}, "f")]}
    conditions = [make_condition("QuotaReserved"), make_condition("Admitted")]
    for event in (
        events.FlavorSet(make_flavor("f")),
        events.CheckSet(make_check("late", preemptionPolicy="AfterCheckPassedOrOnDemand")),
        events.NamespaceSet("ns", {}),
        *(
            events.ClusterQueueSet(
                make_cluster_queue(name, {"f": {"gpu": quota}}, cohort="c", **more)
            )
            for name, quota, more in (
                ("a", 10, {"checks": ["late"], "preemption": preemption}),
                ("b", 0, {}),
                ("d", 0, {}),
            )
        ),
        *(events.LocalQueueSet(make_local_queue(name, name)) for name in "abd"),
        events.WorkloadSet(
            make_workload(
                "victim", "a", {"gpu": 6}, status={"admission": holding}, conditions=conditions
            )
        ),
        events.WorkloadSet(
            make_workload("p", "a", {"gpu": 5}, priority=5, status={"admissionChecks": [entry()]})
        ),
        events.WorkloadSet(make_workload("b1", "b", {"gpu": 2})),
        events.WorkloadSet(make_workload("d1", "d", {"gpu": 3})),
    ):
        engine.observe(event, NOW)
    found = engine.next_cycle(NOW)
    assert found is not None
    settled = engine.settle(decide(found, NOW), NOW)
    assert [each.key.name for each in settled.admissions] == ["p"]
    assert settled.preemptions == ()


def test_two_fit_together_when_there_is_room_for_two() -> None:
    engine = world(quota=2)
    engine.observe(events.WorkloadSet(reserved("low-2", admitted=True, at=NOW - 8)), NOW)
    names = [submit(engine, name).admissions[0].key.name for name in ("one", "two")]
    assert names == ["one", "two"]
    assert submit(engine, "three").admissions == ()


@pytest.mark.parametrize("names", [("a", "z"), ("z", "a")])
@pytest.mark.parametrize("delay", [0, 2])
def test_of_two_reservations_the_one_that_was_decided_first_is_the_earlier_one(
    names: tuple[str, str], delay: int
) -> None:
    """Whatever their names are, and however long the write of the first one takes."""
    engine = world()
    first, second = names
    for name, priority in ((first, 5), (second, 9)):
        assert [one.key.name for one in submit(engine, name, priority=priority).admissions]
    for name, priority, at in ((second, 9, NOW), (first, 5, NOW + delay)):
        stored = reserved(name, entry(), at=at, priority=priority)
        engine.observe(events.WorkloadSet(stored), NOW + delay)
    again = reserved(first, entry("Ready"), at=NOW + delay, priority=5)
    engine.observe(events.WorkloadSet(again), NOW + delay)
    assert engine.void_reservation(key(first)) == MakingRoom((key("low"),))


def test_a_reservation_that_is_decided_again_is_a_later_one() -> None:
    engine = world(quota=2)
    engine.observe(events.WorkloadSet(reserved("low-2", admitted=True, at=NOW - 8)), NOW)
    for name in ("a", "b"):
        submit(engine, name)
    engine.observe(events.Forgotten(key("a")), NOW)  # its write was refused
    engine.settle(decide(engine.next_cycle(NOW), NOW), NOW)
    for name in ("a", "b"):
        engine.observe(events.WorkloadSet(reserved(name, entry("Ready"), priority=5)), NOW)
    assert engine.void_reservation(key("b")) == MakingRoom((key("low-2"),))
    assert engine.void_reservation(key("a")) == MakingRoom((key("low"), key("low-2")))


def test_the_victims_are_told_once_and_who_is_gone_is_none() -> None:
    engine = world()
    submit(engine, "high")
    engine.observe(events.WorkloadSet(reserved("high", entry("Ready"), priority=5)), NOW)
    key = ObjectKey("ns", "high")
    assert engine.void_reservation(key) == MakingRoom((ObjectKey("ns", "low"),))
    (preemption,) = engine.make_room(key).preemptions
    assert [victim.key.name for victim in preemption.victims] == ["low"]
    assert preemption.reserved
    assert engine.make_room(key).preemptions == ()
    effects = engine.observe(events.WorkloadGone(ObjectKey("ns", "low")), NOW)
    assert key in effects.workloads
    assert engine.void_reservation(key) is None


def test_victims_that_a_cycle_chooses_for_a_reservation_are_for_what_is_reserved_already() -> None:
    engine, other = world(), world()
    for one in (engine, other):
        submit(one, "high")
        one.observe(events.WorkloadSet(reserved("high", entry("Ready"), priority=5)), NOW)
    (preemption,) = other.make_room(ObjectKey("ns", "high")).preemptions
    chosen = attrs.evolve(preemption, reserved=False)
    (issued,) = engine.settle(Plan((), (), (), (chosen,)), NOW).preemptions
    assert issued.reserved


def test_a_victim_that_ended_by_itself_is_never_told() -> None:
    engine = world()
    submit(engine, "high")
    engine.observe(events.WorkloadSet(reserved("high", entry("Ready"), priority=5)), NOW)
    engine.observe(events.WorkloadGone(ObjectKey("ns", "low")), NOW)
    key = ObjectKey("ns", "high")
    assert engine.void_reservation(key) is None
    assert engine.make_room(key).preemptions == ()


def test_a_reservation_that_nobody_can_make_room_for_is_void() -> None:
    engine = world()
    engine.observe(events.WorkloadSet(reserved("high", entry("Ready"), priority=0)), NOW)
    found = engine.void_reservation(ObjectKey("ns", "high"))
    assert isinstance(found, QuotaWithdrawn)


def owners_and_borrowers(*, parallel: bool, borrowers: int = 2) -> Cluster:
    """Queues `a`, with a late check, and `b` own 1 each, and `z` has borrowed that."""
    cluster = Cluster(Engine(Settings(parallel_preemptors=parallel)))
    late = make_check("late", preemptionPolicy="AfterCheckPassedOrOnDemand")
    cluster.tell(events.NamespaceSet("ns", {}), events.CheckSet(late))
    cluster.tell(events.FlavorSet(make_flavor("f")), events.FlavorSet(make_flavor("g")))
    cluster.queue("a", {"f": {"gpu": 1}}, cohort="c", preemption=RECLAIM, checks=["late"])
    cluster.queue("b", {"f": {"gpu": 1}}, cohort="c", preemption=RECLAIM)
    cluster.queue("z", {"f": {"gpu": 0}}, cohort="c")
    for number in range(borrowers):
        cluster.running(f"z{number}", "z", at=number)
    return cluster


def with_check(cluster: Cluster, name: str, created: float) -> None:
    cluster.submit(name, "a", created=created, status={"admissionChecks": [entry()]})


def rest(cluster: Cluster) -> list[str]:
    return [each for _ in range(9) for each in cluster.cycle()]


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("together", [True, False])
def test_a_reservation_assumes_no_room_that_a_preemptor_waits_for(
    parallel: bool, together: bool
) -> None:
    """Or both borrowers would have to leave, although its check has not passed."""
    cluster = owners_and_borrowers(parallel=parallel)
    cluster.submit("preemptor", "b", created=5)
    if together:
        with_check(cluster, "reserving", 6)
    assert cluster.cycle() == ["-z1"]
    if not together:
        with_check(cluster, "reserving", 6)
    assert rest(cluster) == []
    cluster.leaves("z1")
    assert rest(cluster) == ["+preemptor", "+reserving"]
    assert cluster.workloads["z0"].status.admission is not None
    assert len(cluster.told) == 1


@pytest.mark.parametrize("parallel", [True, False])
def test_an_older_reservation_waits_for_a_preemptor_as_well(parallel: bool) -> None:
    cluster = owners_and_borrowers(parallel=parallel)
    cluster.submit("preemptor", "b", created=5)
    assert cluster.cycle() == ["-z1"]
    with_check(cluster, "reserving", 4)
    assert rest(cluster) == []
    cluster.tell(events.WorkloadGone(key("preemptor")))
    assert rest(cluster) == ["+reserving"]


def test_a_reservation_does_not_take_the_room_that_a_preemptor_has_made() -> None:
    """Another manager has given away what was free, so one more has to leave."""
    cluster = owners_and_borrowers(parallel=True)
    cluster.queue("d", {"f": {"gpu": 1}}, cohort="c")
    with_check(cluster, "reserving", 5)
    cluster.submit("preemptor", "b", created=6)
    assert rest(cluster) == ["+reserving", "-z1"]
    cluster.running("z9", "z", at=9)
    cluster.change("reserving", admissionChecks=[entry("Ready")])
    assert cluster.engine.void_reservation(key("reserving")) == MakingRoom((key("z9"),))
    (preemption,) = cluster.engine.make_room(key("reserving")).preemptions
    assert [victim.key for victim in preemption.victims] == [key("z9")]


def test_room_is_promised_by_the_present_quotas_only() -> None:
    """The preemptor asks again once they have changed, and holds nothing until then."""
    cluster = owners_and_borrowers(parallel=True)
    cluster.queue("d", {"f": {"gpu": 1}}, cohort="c")
    with_check(cluster, "reserving", 5)
    cluster.submit("preemptor", "b", created=6)
    assert rest(cluster) == ["+reserving", "-z1"]
    cluster.queue("d", {"f": {"gpu": 0}}, cohort="c")
    cluster.change("reserving", admissionChecks=[entry("Ready")])
    assert cluster.engine.void_reservation(key("reserving")) == MakingRoom((key("z1"),))


def test_a_preemptor_that_asks_for_something_else_holds_no_reservation_up() -> None:
    cluster = owners_and_borrowers(parallel=True)
    lower = {"withinClusterQueue": "LowerPriority"}
    cluster.queue("g", {"g": {"gpu": 1}}, cohort="c", preemption=lower)
    cluster.queue("alone", {"f": {"gpu": 1}}, preemption=lower)
    for name in ("g", "alone"):
        assignment = make_assignment({"gpu": 1}, "g" if name == "g" else "f")
        holding = {"clusterQueue": name, "podSetAssignments": [assignment]}
        reserving = [make_condition("QuotaReserved")]
        status = {"admission": holding}
        cluster.put(
            make_workload(f"in-{name}", name, {"gpu": 1}, status=status, conditions=reserving)
        )
        cluster.submit(f"urgent-{name}", name, priority=9)
    assert sorted(cluster.cycle()) == ["-in-alone", "-in-g"]
    with_check(cluster, "reserving", 6)
    assert rest(cluster) == ["+reserving"]


@pytest.mark.parametrize("together", [True, False])
def test_a_reservation_waits_for_victims_that_leave_enough_for_it_too(together: bool) -> None:
    cluster = owners_and_borrowers(parallel=True)
    with_check(cluster, "reserving", 5)
    if together:
        cluster.submit("preemptor", "b", created=6)
    assert cluster.cycle() == ["+reserving"]
    if not together:
        cluster.submit("preemptor", "b", created=6)
    assert sorted(rest(cluster)) == ["-z0", "-z1"]
    cluster.change("reserving", admissionChecks=[entry("Ready")])
    both = MakingRoom((key("z0"), key("z1")))
    assert cluster.engine.void_reservation(key("reserving")) == both
    assert cluster.engine.make_room(key("reserving")).preemptions == ()
    cluster.leaves("z0")
    assert cluster.engine.void_reservation(key("reserving")) is None


def test_a_reservation_does_not_count_on_the_room_of_a_preemptor() -> None:
    """Others took more meanwhile, so one more has to leave, and not only those that do already."""
    cluster = owners_and_borrowers(parallel=True)
    with_check(cluster, "reserving", 5)
    cluster.submit("preemptor", "b", created=6)
    rest(cluster)
    cluster.running("z2", "z", at=9)
    cluster.change("reserving", admissionChecks=[entry("Ready")])
    assert cluster.engine.void_reservation(key("reserving")) == MakingRoom((key("z2"),))


def waiting_for_low(check: dict[str, Any]) -> Cluster:
    """`high` has reserved the quota of `low`, which keeps it, and its check answers."""
    cluster = Cluster()
    late = make_check("late", preemptionPolicy="AfterCheckPassedOrOnDemand")
    cluster.tell(events.NamespaceSet("ns", {}), events.CheckSet(late))
    cluster.tell(events.FlavorSet(make_flavor("f")))
    cluster.queue("a", {"f": {"gpu": 1}}, preemption=LOWER, checks=["late"])
    cluster.running("low", "a")
    cluster.submit("high", "a", priority=5, status={"admissionChecks": [entry()]})
    assert cluster.cycle() == ["+high"]
    cluster.change("high", admissionChecks=[check])
    return cluster


@pytest.mark.parametrize("check", [entry("Ready"), entry("Pending", "PreemptionRequired")])
def test_after_a_refused_eviction_a_reservation_tries_again(check: dict[str, Any]) -> None:
    cluster = waiting_for_low(check)
    engine = cluster.engine
    assert engine.make_room(key("high")).preemptions
    refused = events.EvictionFailed(key("low"), why="denied")
    assert key("high") in engine.observe(refused, cluster.now).workloads
    void = engine.void_reservation(key("high"))
    assert isinstance(void, QuotaWithdrawn)
    assert void.again == cluster.now + FIRST_REST
    engine.advance(void.again)
    assert engine.void_reservation(key("high")) == MakingRoom((key("low"),))
    assert engine.make_room(key("high")).preemptions


def test_a_reservation_hears_that_a_running_workload_lost_its_priority() -> None:
    cluster = waiting_for_low(entry("Pending", "PreemptionRequired"))
    engine = cluster.engine
    low = cluster.workloads["low"]
    raised = attrs.evolve(low, spec=attrs.evolve(low.spec, priority=9))
    cluster.tell(events.WorkloadSet(raised))
    void = engine.void_reservation(key("high"))
    assert isinstance(void, QuotaWithdrawn)
    assert void.again is None
    assert key("high") in engine.observe(events.WorkloadSet(low), cluster.now).workloads
    assert engine.void_reservation(key("high")) == MakingRoom((key("low"),))


def test_a_reservation_that_has_room_hears_nothing_of_priorities() -> None:
    cluster = waiting_for_low(entry("Pending", "PreemptionRequired"))
    cluster.queue("a", {"f": {"gpu": 2}}, preemption=LOWER, checks=["late"])
    low = cluster.workloads["low"]
    raised = attrs.evolve(low, spec=attrs.evolve(low.spec, priority=1))
    assert cluster.engine.observe(events.WorkloadSet(raised), cluster.now).workloads == ()


@pytest.mark.parametrize("parallel", [True, False])
def test_who_fits_when_others_have_left_reserves_before(parallel: bool) -> None:
    cluster = Cluster(Engine(Settings(parallel_preemptors=parallel)))
    late = make_check("late", preemptionPolicy="AfterCheckPassedOrOnDemand")
    cluster.tell(events.NamespaceSet("ns", {}), events.CheckSet(late))
    cluster.tell(events.FlavorSet(make_flavor("f")))
    cluster.queue("a", {"f": {"gpu": 1}}, preemption=LOWER, checks=["late"])
    cluster.running("low", "a")
    cluster.change("low", make_condition("Evicted", reason="Deactivated"))
    cluster.submit("high", "a", priority=5, status={"admissionChecks": [entry()]})
    assert rest(cluster) == ["+high"]
    cluster.change("high", admissionChecks=[entry("Ready")])
    assert cluster.engine.void_reservation(key("high")) == MakingRoom((key("low"),))
    cluster.tell(events.WorkloadGone(key("low")))
    assert cluster.engine.void_reservation(key("high")) is None


def test_who_fits_when_the_victims_of_a_preemptor_have_left_does_not_reserve_before() -> None:
    cluster = owners_and_borrowers(parallel=True, borrowers=1)
    cluster.queue("z", {"f": {"gpu": 1}}, cohort="c")
    cluster.running("z2", "z", gpu=2, at=9)
    cluster.submit("preemptor", "b", created=5)
    assert cluster.cycle() == ["-z2"]
    with_check(cluster, "reserving", 6)
    assert cluster.cycle() == []
    assert isinstance(cluster.waits["reserving"].reason, FitsAfterPreemptions)
    cluster.leaves("z2")
    assert rest(cluster) == ["+preemptor", "+reserving"]


def lend(name: str, gpu: int, **spec: Any) -> events.ClusterQueueSet:
    more = {"cohort": "all", **spec}
    return events.ClusterQueueSet(make_cluster_queue(name, {"f": {"gpu": gpu}}, **more))


CHANGES: dict[str, tuple[tuple[events.Event, ...], events.Event]] = {
    "starts again": ((lend("z", 0, stopPolicy="Hold"),), lend("z", 0)),
    "returns": ((lend("z", 0, cohort=""),), lend("z", 0)),
    "check": ((lend("z", 0, checks=["new"]),), events.CheckSet(make_check("new"))),
    "lends less": ((lend("d", 1),), lend("d", 0)),
    "goes": ((lend("d", 1),), events.ClusterQueueGone("d")),
    "lends elsewhere": ((lend("d", 1),), lend("d", 1, cohort="other")),
    "Cohort": (
        (events.CohortChanged(make_cohort("spare", {"f": {"gpu": 1}}, parent="all")),),
        events.CohortDeleted("spare"),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_reservation_hears_what_changes_in_its_cohort(name: str) -> None:
    """When it has to preempt, or may, because of another ClusterQueue or a Cohort."""
    before, change = CHANGES[name]
    cluster = Cluster()
    late = make_check("late", preemptionPolicy="AfterCheckPassedOrOnDemand")
    cluster.tell(events.NamespaceSet("ns", {}), events.CheckSet(late))
    cluster.tell(events.FlavorSet(make_flavor("f")))
    cluster.queue("a", {"f": {"gpu": 1}}, cohort="all", preemption=RECLAIM, checks=["late"])
    cluster.queue("z", {"f": {"gpu": 0}}, cohort="all")
    cluster.running("borrows", "z")
    cluster.submit("owns", "a", status={"admissionChecks": [entry()]})
    assert cluster.cycle() == ["+owns"]
    cluster.change("owns", admissionChecks=[entry("Pending", "PreemptionRequired")])
    cluster.tell(*before)
    assert not isinstance(cluster.engine.void_reservation(key("owns")), MakingRoom)
    assert key("owns") in cluster.engine.observe(change, cluster.now).workloads
    assert cluster.engine.void_reservation(key("owns")) == MakingRoom((key("borrows"),))


def test_reservations_wait_for_pods_that_are_not_ready() -> None:
    cluster = Cluster(Engine(Settings(block_admission=True)))
    late = make_check("late", preemptionPolicy="AfterCheckPassedOrOnDemand")
    cluster.tell(events.NamespaceSet("ns", {}), events.CheckSet(late))
    cluster.tell(events.FlavorSet(make_flavor("f")))
    for name in ("a", "b"):
        cluster.queue(name, {"f": {"gpu": 1}}, preemption=LOWER, checks=["late"])
        cluster.running(f"low-{name}", name)
        cluster.submit(f"high-{name}", name, priority=5, status={"admissionChecks": [entry()]})
    assert rest(cluster) == []
    assert cluster.engine.standing(key("high-a")).reason == PodsNotReady()
    for name in ("low-a", "low-b"):
        cluster.change(name, make_condition("PodsReady", at=cluster.now))
    assert rest(cluster) == ["+high-a"]
    cluster.change("high-a", make_condition("PodsReady", at=cluster.now))
    assert rest(cluster) == ["+high-b"]
