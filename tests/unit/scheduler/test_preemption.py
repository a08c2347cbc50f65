"""What becomes of preemptors and victims between cycles, and what is told about them."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from preemption_cluster import LOWER, RECLAIM, Cluster, key

from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Wait, decide
from kueuelib.scheduler.decide.cycle_values import Plan
from kueuelib.scheduler.decide.preemption import search
from kueuelib.scheduler.decide.preemption.search import Room
from kueuelib.scheduler.decide.preemption.victims import Candidates, Path, Preemptor
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.fork import fork
from kueuelib.scheduler.facts.workloads import Where
from kueuelib.scheduler.flavor_reasons import Mode, QuotaInUse, Together
from kueuelib.scheduler.pending.tries import Promise
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.snapshot import Snapshot
from kueuelib.scheduler.reasons import FitsAfterPreemptions, NoFlavors, NoLongerFits, Preempting
from kueuelib.scheduler.settings import FairSharingRules, Settings
from kueuelib.scheduler.values import changed
from kueuelib.testing.builders import (
    make_assignment,
    make_cohort,
    make_condition,
    make_flavor,
    make_pod_set,
    make_workload,
)


@pytest.fixture
def cluster() -> Cluster:
    """One preemptor after the other, as in Kueue."""
    found = Cluster(Engine(Settings(parallel_preemptors=False)))
    found.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    return found


def test_preemptor_is_admitted_when_its_victims_are_gone(cluster: Cluster) -> None:
    cluster.queue("q", {"f": {"gpu": 2}}, preemption=LOWER)
    cluster.running("low", "q", 2)
    cluster.submit("high", "q", 2, priority=1)
    assert cluster.cycle() == ["-low"]
    cluster.hears("low")
    assert cluster.cycle() == []
    cluster.leaves("low")
    assert cluster.cycle() == ["+high"]
    assert cluster.engine.standing(key("low")).where is Where.PENDING


def test_victims_are_told_once_and_the_preemptor_sleeps(cluster: Cluster) -> None:
    cluster.queue("q", {"f": {"gpu": 2}}, preemption=LOWER)
    cluster.running("low", "q", 2)
    cluster.submit("high", "q", 2, priority=1)
    assert cluster.cycle() == ["-low"]
    assert cluster.cycle() == []
    assert not cluster.engine.has_work(cluster.now)
    cluster.engine.reconsider()
    assert cluster.cycle() == []
    assert len(cluster.told) == 1
    assert isinstance(cluster.waits["high"].reason, Preempting)


def test_victim_counts_as_leaving_before_anybody_sees_it(cluster: Cluster) -> None:
    """Another state of the victim from before the eviction changes nothing."""
    cluster.queue("q", {"f": {"gpu": 2}}, preemption=LOWER)
    cluster.running("v1", "q", 1, at=5.0)
    cluster.running("v2", "q", 1, at=1.0)
    cluster.submit("high", "q", 1, priority=1)
    assert cluster.cycle() == ["-v1"]
    cluster.change("v1", make_condition("PodsReady"))
    holder = cluster.engine.cache.holder(key("v1"))
    assert holder is not None
    assert holder.evicted
    cluster.submit("higher", "q", 1, priority=2)
    cluster.engine.reconsider()
    assert cluster.cycle() == []


def test_victim_whose_eviction_is_void_stays_and_may_be_chosen_again(cluster: Cluster) -> None:
    cluster.queue("q", {"f": {"gpu": 1}}, preemption=LOWER)
    cluster.running("low", "q", 1)
    cluster.submit("high", "q", 1, priority=1)
    assert cluster.cycle() == ["-low"]
    cluster.tell(events.EvictionFailed(key("low")))
    holder = cluster.engine.cache.holder(key("low"))
    assert holder is not None
    assert not holder.evicted
    assert cluster.cycle() == ["-low"]


def test_failed_eviction_of_somebody_else_is_nothing(cluster: Cluster) -> None:
    cluster.queue("q", {"f": {"gpu": 1}}, preemption=LOWER)
    cluster.running("low", "q", 1)
    cluster.hears("low")
    cluster.tell(events.EvictionFailed(key("low")), events.EvictionFailed(key("nobody")))
    holder = cluster.engine.cache.holder(key("low"))
    assert holder is not None
    assert holder.evicted


def test_victim_that_is_gone_leaves_no_trace(cluster: Cluster) -> None:
    cluster.queue("q", {"f": {"gpu": 1}}, preemption=LOWER)
    cluster.running("low", "q", 1)
    cluster.submit("high", "q", 1, priority=1)
    assert cluster.cycle() == ["-low"]
    cluster.tell(events.WorkloadGone(key("low")))
    assert cluster.cycle() == ["+high"]
    cluster.tell(events.WorkloadGone(key("high")))
    cluster.running("low", "q", 1)
    holder = cluster.engine.cache.holder(key("low"))
    assert holder is not None
    assert not holder.evicted


def test_best_effort_preemptor_is_not_overtaken(cluster: Cluster) -> None:
    cluster.queue("q", {"f": {"gpu": 1}}, preemption=LOWER)
    cluster.running("low", "q", 1)
    cluster.submit("high", "q", 1, priority=1)
    assert cluster.cycle() == ["-low"]
    cluster.submit("higher", "q", 1, priority=2)
    cluster.leaves("low")
    assert cluster.cycle() == ["+high"]
    assert cluster.cycle() == ["-high"]


def test_preemptor_that_is_refused_is_overtaken(cluster: Cluster) -> None:
    """Somebody else has given away what its victim left."""
    cluster.queue("q", {"f": {"gpu": 1}}, preemption=LOWER)
    cluster.running("low", "q", 1)
    cluster.submit("high", "q", 1, priority=1)
    assert cluster.cycle() == ["-low"]
    cluster.running("other", "q", 1, priority=9)
    cluster.leaves("low")
    for _ in range(4):
        assert cluster.cycle() == []
    cluster.submit("higher", "q", 1, priority=2)
    cluster.tell(events.WorkloadGone(key("other")))
    assert cluster.cycle() == ["+higher"]


def test_strict_preemptor_is_overtaken(cluster: Cluster) -> None:
    cluster.queue("q", {"f": {"gpu": 1}}, preemption=LOWER, queueingStrategy="StrictFIFO")
    cluster.running("low", "q", 1)
    cluster.submit("high", "q", 1, priority=1)
    assert cluster.cycle() == ["-low"]
    cluster.submit("higher", "q", 1, priority=2)
    cluster.leaves("low")
    assert cluster.cycle() == ["+higher"]


def test_queue_that_becomes_strict_forgets_who_came_first(cluster: Cluster) -> None:
    cluster.queue("q", {"f": {"gpu": 1}}, preemption=LOWER)
    cluster.running("low", "q", 1)
    cluster.submit("high", "q", 1, priority=1)
    assert cluster.cycle() == ["-low"]
    cluster.queue("q", {"f": {"gpu": 1}}, preemption=LOWER, queueingStrategy="StrictFIFO")
    cluster.submit("higher", "q", 1, priority=2)
    cluster.leaves("low")
    assert cluster.cycle() == ["+higher"]


def test_preemptor_that_leaves_is_not_waited_for(cluster: Cluster) -> None:
    cluster.queue("q", {"f": {"gpu": 1}}, preemption=LOWER)
    cluster.running("low", "q", 1)
    cluster.submit("high", "q", 1, priority=1)
    assert cluster.cycle() == ["-low"]
    cluster.tell(events.WorkloadGone(key("high")))
    cluster.submit("other", "q", 1)
    cluster.leaves("low")
    cluster.submit("higher", "q", 1, priority=3)
    assert cluster.cycle() == ["+higher"]


def test_preemptor_that_changes_in_flight_preempts_nobody(cluster: Cluster) -> None:
    cluster.queue("q", {"f": {"gpu": 1}}, preemption=LOWER)
    cluster.running("low", "q", 1)
    cluster.submit("high", "q", 1, priority=1)
    found = cluster.engine.next_cycle(cluster.now)
    assert found is not None
    plan = decide(found, cluster.now)
    assert plan.preemptions
    cluster.submit("high", "q", 1, priority=-1)
    settled = cluster.engine.settle(plan, cluster.now)
    assert settled.preemptions == ()
    holder = cluster.engine.cache.holder(key("low"))
    assert holder is not None
    assert not holder.evicted


def test_victim_that_left_in_flight_is_not_told(cluster: Cluster) -> None:
    cluster.queue("q", {"f": {"gpu": 1}}, preemption=LOWER)
    cluster.running("low", "q", 1)
    cluster.submit("high", "q", 1, priority=1)
    found = cluster.engine.next_cycle(cluster.now)
    assert found is not None
    plan = decide(found, cluster.now)
    cluster.leaves("low")
    assert cluster.engine.settle(plan, cluster.now).preemptions == ()
    assert cluster.cycle() == ["+high"]


def _planned(cluster: Cluster) -> Plan:
    """What the next cycle decides; nobody hears of it."""
    found = fork(cluster.engine).next_cycle(cluster.now)
    assert found is not None
    return decide(found, cluster.now)


def test_deferred_head_fits_after_the_preemptions_of_others(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.queue(name, {"f": {"gpu": 2}}, cohort="c", preemption=RECLAIM)
    cluster.queue("z", {"f": {"gpu": 0}}, cohort="c")
    cluster.running("big", "z", 4)
    cluster.submit("p1", "a", 2, created=1)
    cluster.submit("p2", "b", 2, created=2)
    assert _planned(cluster).recomputations == {("b", "deferred_fit"): 1}
    assert cluster.cycle() == ["-big"]
    assert cluster.waits["p2"].reason == FitsAfterPreemptions((key("big"),))
    assert cluster.waits["p2"].condition_reason == "WaitingForPreemptedWorkloads"
    assert cluster.waits["p2"].message == (
        "Workload has overlapping preemption targets with another workload, "
        "but will fit after these preemptions complete"
    )
    cluster.leaves("big")
    assert cluster.cycle() == ["+p1", "+p2"]


@pytest.mark.parametrize("exceeds", [False, True])
def test_nobody_is_admitted_into_room_that_a_victim_has_yet_to_leave(exceeds: bool) -> None:
    """One of two fits beside the victim, both fit when it is gone; the setting lets both in."""
    cluster = Cluster(Engine(Settings(exceeds_quota=exceeds)))
    cluster.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    cluster.queue("a", {"f": {"gpu": 6}}, cohort="c", preemption=LOWER)
    for name in ("b", "d"):
        cluster.queue(name, {"f": {"gpu": 2}}, cohort="c")
    cluster.running("victim", "a", 8, priority=-1)
    cluster.submit("p", "a", 5, priority=1, created=1)
    cluster.submit("q1", "b", 2, created=2)
    cluster.submit("q2", "d", 2, created=3)
    if exceeds:
        assert cluster.cycle() == ["+q1", "+q2", "-victim"]
    else:
        assert cluster.cycle() == ["+q1", "-victim"]
        assert isinstance(cluster.waits["q2"].reason, FitsAfterPreemptions)
    assert cluster.cycle() == []
    cluster.leaves("victim")
    assert cluster.cycle() == (["+p"] if exceeds else ["+p", "+q2"])


def test_head_that_shares_a_victim_keeps_its_flavors(cluster: Cluster) -> None:
    """Looking again in the same cycle does not make it jump to another flavor."""
    cluster.tell(events.FlavorSet(make_flavor("g")))
    for name in ("a", "b"):
        groups = {"f": {"gpu": 2}, "g": {"gpu": 0}}
        cluster.queue(name, groups, cohort="c", preemption=RECLAIM)
    cluster.queue("z", {"f": {"gpu": 0}, "g": {"gpu": 0}}, cohort="c")
    cluster.running("z1", "z", 1, at=1.0)
    cluster.running("z2", "z", 3, at=2.0)
    cluster.submit("p1", "a", 2, created=1)
    cluster.submit("p2", "b", 2, created=2)
    assert _planned(cluster).recomputations == {("b", "new_targets"): 1}
    assert cluster.cycle() == ["-z2", "-z1"]
    assert {one.key.name: len(one.victims) for one in cluster.told} == {"p1": 1, "p2": 1}


def test_head_that_loses_its_victims_takes_another_flavor_in_a_later_cycle(
    cluster: Cluster,
) -> None:
    cluster.tell(events.FlavorSet(make_flavor("g")))
    policy = {"reclaimWithinCohort": "LowerPriority"}
    for name, other in (("a", 0), ("b", 2)):
        groups = {"f": {"gpu": 2}, "g": {"gpu": other}}
        cluster.queue(name, groups, cohort="c", preemption=policy)
    cluster.queue("z", {"f": {"gpu": 0}, "g": {"gpu": 0}}, cohort="c")
    cluster.running("low", "z", 2)
    cluster.running("high", "z", 2, priority=9)
    cluster.running("other", "z", 2, flavor="g")
    cluster.submit("p1", "a", 2, priority=1, created=1)
    cluster.submit("p2", "b", 2, priority=1, created=2)
    assert cluster.cycle() == ["-low"]
    cluster.leaves("low")
    assert [cluster.cycle(), cluster.cycle()] == [["+p1"], ["-other"]]


def test_head_that_loses_its_room_preempts_in_the_next_cycle(cluster: Cluster) -> None:
    cluster.queue("a", {"f": {"gpu": 2}}, cohort="c", preemption=LOWER)
    cluster.queue("b", {"f": {"gpu": 2}}, cohort="c", preemption=LOWER)
    cluster.running("v", "b", 1, priority=-5)
    cluster.running("w", "b", 2, priority=9)
    cluster.submit("p1", "a", 1, created=1)
    cluster.submit("p2", "b", 1, created=2)
    assert cluster.cycle() == ["+p1"]
    assert isinstance(cluster.waits["p2"].reason, NoLongerFits)
    assert cluster.cycle() == ["-v"]
    cluster.leaves("v")
    assert cluster.cycle() == ["+p2"]


def test_heads_that_lose_their_preemption_to_others_are_counted(cluster: Cluster) -> None:
    policy = {"reclaimWithinCohort": "LowerPriority"}
    for name in ("a", "b"):
        cluster.queue(name, {"f": {"gpu": 1}}, cohort="c", preemption=policy)
    cluster.queue("z", {"f": {"gpu": 0}}, cohort="c")
    cluster.running("low", "z", 1, priority=0)
    cluster.running("high", "z", 1, priority=9)
    for name, queue in (("p", "a"), ("q", "b")):
        cluster.submit(name, queue, 1, priority=1)
    plan = _planned(cluster)
    assert [one.key.name for one in plan.preemptions] == ["p"]
    assert plan.skipped_preemptions == {"b": 1}
    assert plan.recomputations == {("b", "skipped"): 1}


@pytest.mark.parametrize("reclaim", ["Never", "Any"])
def test_who_can_always_reclaim_does_not_hold_others_back(cluster: Cluster, reclaim: str) -> None:
    policy = {"reclaimWithinCohort": reclaim}
    cluster.queue("a", {"f": {"gpu": 4}}, cohort="c", preemption=policy)
    cluster.queue("b", {"f": {"gpu": 2}}, cohort="c")
    cluster.running("r", "a", 3)
    cluster.submit("blocked", "a", 4, created=1)
    cluster.submit("borrows", "b", 3, created=2)
    cluster.cycle()
    taken = isinstance(cluster.waits.get("borrows", object()), Wait)
    assert taken is (reclaim == "Never")
    if taken:
        assert isinstance(cluster.waits["borrows"].reason, NoLongerFits)


@pytest.mark.parametrize(
    ("missing", "spec"),
    [
        ("", {}),
        ("", {"stopPolicy": "Hold"}),
        ("flavor", {}),
        ("", {"admissionChecksStrategy": {"admissionChecks": [{"name": "unknown"}]}}),
    ],
    ids=["active", "stopped", "without its flavor", "without its check"],
)
@pytest.mark.parametrize("fair", [None, FairSharingRules()], ids=["", "fair"])
def test_nothing_is_reclaimed_from_an_inactive_queue(
    missing: str, spec: dict[str, Any], fair: FairSharingRules | None
) -> None:
    cluster = Cluster(Engine(Settings(fair_sharing=fair)))
    cluster.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    quota = {flavor: {"gpu": 0} for flavor in ("f", missing) if flavor}
    cluster.queue("owner", {"f": {"gpu": 2}}, cohort="c", preemption=RECLAIM)
    cluster.queue("borrower", quota, cohort="c", **spec)
    cluster.running("lent", "borrower", 2)
    cluster.submit("p", "owner", 2, priority=9)
    assert cluster.cycle() == ([] if missing or spec else ["-lent"])


@pytest.mark.parametrize("tries", [1, 2], ids=["begins", "continues"])
def test_a_search_continues_behind_the_flavor_that_it_lost(cluster: Cluster, tries: int) -> None:
    """Even if that flavor is free again, as in Kueue."""
    cluster.tell(events.FlavorSet(make_flavor("g")))
    cluster.queue("lender", {"f": {"gpu": 2}, "g": {"gpu": 0}}, cohort="c")
    cluster.queue("a", {"f": {"gpu": 0}, "g": {"gpu": 0}}, cohort="c")
    cluster.queue("b", {"f": {"gpu": 0}, "g": {"gpu": 2}}, cohort="c", preemption=LOWER)
    cluster.running("low", "b", 2, flavor="g", priority=-1)
    cluster.submit("first", "a", 2, priority=5)
    if tries == 2:
        cluster.submit("second", "b", 2)
    assert cluster.cycle() == ["+first"]
    cluster.tell(events.WorkloadGone(key("first")))
    if tries == 1:
        cluster.submit("second", "b", 2)
    assert cluster.cycle() == (["+second"] if tries == 1 else ["-low"])


def test_lost_write_of_a_victim_that_was_only_assumed(cluster: Cluster) -> None:
    cluster.queue("q", {"f": {"gpu": 1}}, preemption=LOWER)
    cluster.submit("low", "q", 1)
    found = cluster.engine.next_cycle(cluster.now)
    assert found is not None
    cluster.engine.settle(decide(found, cluster.now), cluster.now)
    cluster.submit("high", "q", 1, priority=1)
    assert cluster.cycle() == ["-low"]
    cluster.tell(events.Forgotten(key("low")))
    assert cluster.cycle() == ["+high"]
    assert cluster.engine.standing(key("low")).where in (Where.PENDING, Where.INADMISSIBLE)


def test_messages_name_both_sides_and_the_path(cluster: Cluster) -> None:
    cluster.queue("a", {"f": {"gpu": 2}}, cohort="c", preemption=RECLAIM)
    cluster.queue("b", {"f": {"gpu": 0}}, cohort="c")
    cluster.running("theirs", "b", 2, priority=7)
    wants = make_workload("mine", "a", {"gpu": 2}, priority=3)
    meta = attrs.evolve(wants.metadata, labels={"kueue.x-k8s.io/job-uid": "j1"})
    cluster.put(attrs.evolve(wants, metadata=meta))
    assert cluster.cycle() == ["-theirs"]
    (preemption,) = cluster.told
    (victim,) = preemption.victims
    assert victim.path is Path.IN_COHORT_RECLAMATION
    assert preemption.message(victim) == (
        "Preempted to accommodate a workload (UID: mine, JobUID: j1) due to reclamation within "
        "the cohort; preemptor path: /c/a; preemptee path: /c/b"
    )
    assert preemption.ranks(victim) == (
        "preemptor effective priority: 3 (base: 3, boost: 0); "
        "preemptee effective priority: 7 (base: 7, boost: 0)"
    )
    wait = cluster.waits["mine"]
    assert wait.condition_reason == "WaitingForPreemptedWorkloads"
    assert wait.message == (
        "couldn't assign flavors to pod set main: insufficient unused quota for gpu in flavor f, "
        "2 more needed. Pending the preemption of 1 workload(s)"
    )


def test_messages_name_all_cohorts_on_the_way(cluster: Cluster) -> None:
    cluster.tell(events.CohortChanged(make_cohort("left", parent="root")))
    cluster.tell(events.CohortChanged(make_cohort("right", parent="root")))
    cluster.queue("a", {"f": {"gpu": 2}}, cohort="left", preemption=RECLAIM)
    cluster.queue("b", {"f": {"gpu": 0}}, cohort="right")
    cluster.running("theirs", "b", 2)
    cluster.submit("mine", "a", 2)
    assert cluster.cycle() == ["-theirs"]
    (preemption,) = cluster.told
    message = preemption.message(preemption.victims[0])
    assert message.endswith("preemptor path: /root/left/a; preemptee path: /root/right/b")


def test_message_without_a_job_and_without_a_cohort(cluster: Cluster) -> None:
    cluster.queue("q", {"f": {"gpu": 1}}, preemption=LOWER)
    cluster.running("low", "q", 1)
    cluster.submit("high", "q", 1, priority=1)
    cluster.cycle()
    (preemption,) = cluster.told
    assert preemption.message(preemption.victims[0]) == (
        "Preempted to accommodate a workload (UID: high, JobUID: UNKNOWN) due to prioritization "
        "in the ClusterQueue; preemptor path: /q; preemptee path: /q"
    )


def quota_in_use_of(cluster: Cluster, name: str) -> QuotaInUse:
    reason = cluster.waits[name].reason
    if isinstance(reason, Preempting):
        reason = reason.blocked
    assert isinstance(reason, NoFlavors)
    (in_use,) = reason.pod_sets[0].groups[0].attempts[0].reasons
    assert isinstance(in_use, QuotaInUse)
    return in_use


def test_reason_tells_how_many_candidates_there_were_and_what_is_missing(cluster: Cluster) -> None:
    cluster.queue("q", {"f": {"gpu": 6}}, preemption=LOWER)
    cluster.running("low", "q", 1, priority=-1)
    cluster.running("lower", "q", 1, priority=-2)
    cluster.running("high", "q", 4, priority=5)
    cluster.submit("p", "q", 4)
    cluster.cycle()
    outlook = quota_in_use_of(cluster, "p").outlook
    assert outlook is not None
    assert (outlook.candidates, outlook.victims, outlook.lack) == (2, (), 2)
    assert outlook.named == (key("lower"), key("low"))
    assert cluster.waits["p"].condition_reason == "WaitingForQuota"


def test_reason_names_the_victims(cluster: Cluster) -> None:
    cluster.queue("q", {"f": {"gpu": 2}}, preemption=LOWER)
    cluster.running("low", "q", 2)
    cluster.submit("p", "q", 1, priority=1)
    cluster.cycle()
    outlook = quota_in_use_of(cluster, "p").outlook
    assert outlook is not None
    assert (outlook.candidates, outlook.victims, outlook.lack) == (1, (key("low"),), 0)


def test_reason_says_why_what_can_be_freed_one_by_one_cannot_be_freed_together(
    cluster: Cluster,
) -> None:
    quota = {"f": {"gpu": 4, "memory": 4}}
    policy = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    cluster.queue("a", quota, cohort="c", preemption=policy)
    cluster.queue("b", quota, cohort="c")
    for name, queue, amounts, priority in (
        ("high", "a", {"memory": 3}, 9),
        ("low", "a", {"memory": 1}, 0),
        ("other", "b", {"gpu": 8}, 0),
        ("more", "b", {"memory": 3}, 0),
    ):
        admission = {
            "clusterQueue": queue,
            "podSetAssignments": [make_assignment(amounts, "f")],
        }
        held = make_workload(
            name,
            queue,
            amounts,
            priority=priority,
            conditions=[make_condition("QuotaReserved")],
            status={"admission": admission},
        )
        cluster.tell(events.WorkloadSet(held))
    cluster.tell(events.WorkloadSet(make_workload("p", "a", {"gpu": 2, "memory": 2}, priority=5)))
    cluster.cycle()
    reason = cluster.waits["p"].reason
    assert isinstance(reason, NoFlavors)
    assert reason.together == Together(1, (key("low"),), True, (("f", "gpu", 2),))
    assert reason.together.text == ("With ns/low gone it would still lack 2 of gpu in flavor f")


def test_request_that_can_not_preempt_has_no_outlook(cluster: Cluster) -> None:
    cluster.queue("a", {"f": {"gpu": 1}}, cohort="c", preemption=RECLAIM)
    cluster.queue("b", {"f": {"gpu": 2}}, cohort="c")
    cluster.running("theirs", "b", 2)
    cluster.submit("p", "a", 2)
    cluster.cycle()
    assert quota_in_use_of(cluster, "p").outlook is None


def test_lowest_priority_follows_every_change(cluster: Cluster) -> None:
    def lowest() -> int | None:
        state = cluster.engine.cache.state("q")
        assert state is not None
        return state.priorities.lowest

    cluster.queue("q", {"f": {"gpu": 9}})
    assert lowest() is None
    for name, priority in (("a", 3), ("b", -2), ("c", -2)):
        cluster.running(name, "q", 1, priority=priority)
    assert lowest() == -2
    cluster.tell(events.WorkloadGone(key("b")))
    assert lowest() == -2
    cluster.leaves("c")
    assert lowest() == 3


@pytest.mark.parametrize("priority", [3, 4])
def test_a_queue_whose_lowest_priority_is_too_high_is_not_searched(
    cluster: Cluster, priority: int
) -> None:
    cluster.queue("q", {"f": {"gpu": 2}}, preemption=LOWER)
    for name, its in (("low", 3), ("high", 7)):
        cluster.running(name, "q", 1, priority=its)
    snapshot = Snapshot(cluster.engine.cache.freeze(["q"]))
    queue = snapshot.queue("q")
    assert queue is not None
    pair = FlavorResource("f", "gpu")
    preemptor = Preemptor(queue, priority, 0.0)
    candidates = Candidates(snapshot, preemptor, frozenset({pair}), {pair: 1})
    assert candidates.maybe_any is (priority == 4)


def test_without_a_candidate_nothing_is_searched(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms: list[object] = []

    class Counted(Room):
        def __init__(self, *args: Any, **more: Any) -> None:
            rooms.append(self)
            super().__init__(*args, **more)

    monkeypatch.setattr(search, "Room", Counted)
    cluster.queue("q", {"f": {"gpu": 1}}, preemption=LOWER)
    cluster.running("equal", "q", priority=3)
    cluster.submit("equal-too", "q", priority=3)
    assert cluster.cycle() == []
    assert not rooms
    cluster.submit("higher", "q", priority=4)
    assert cluster.cycle() == ["-equal"]
    assert rooms


@pytest.mark.parametrize("preempted", [2, 3])
def test_who_insists_comes_first_whatever_it_borrows(cluster: Cluster, preempted: int) -> None:
    for name in "ab":
        cluster.queue(name, {"f": {"gpu": 1}}, cohort="c")
    cluster.submit("borrows", "a", 2)
    cluster.submit("owns", "b")
    cycle = cluster.engine.next_cycle(cluster.now)
    assert cycle is not None
    promise = Promise((1,), {"main": {"gpu": "f"}}, {FlavorResource("f", "gpu"): 2})
    heads = tuple(
        changed(head, promise=promise, preempted=preempted) if head.cluster_queue == "a" else head
        for head in cycle.heads
    )
    first = decide(changed(cycle, heads=heads), cluster.now).order[0]
    assert first.name == ("borrows" if preempted == 3 else "owns")


@pytest.mark.parametrize("counted", [False, True])
def test_pods_are_made_room_for_only_when_asked_to(counted: bool) -> None:
    cluster = Cluster(Engine(Settings(preempt_for_pods=counted)))
    cluster.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    cluster.queue("q", {"f": {"gpu": 4, "pods": 2}}, preemption=LOWER)
    for name in ("v1", "v2"):
        assignment = make_assignment({"gpu": 1, "pods": 1}, "f")
        cluster.put(
            make_workload(
                name,
                "q",
                {"gpu": 1},
                conditions=[make_condition("QuotaReserved")],
                status={"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}},
            )
        )
    cluster.put(make_workload("p", "q", priority=1, pod_sets=[make_pod_set({"gpu": 1}, count=2)]))
    assert cluster.cycle() == (["-v1", "-v2"] if counted else [])


def test_borrower_that_was_preempted_goes_behind_where_age_alone_counts() -> None:
    """Otherwise the older borrower and its preemptor would take turns for ever."""
    cluster = Cluster(Engine(Settings(priority_sorting=False)))
    cluster.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    policy = {
        "reclaimWithinCohort": "LowerPriority",
        "borrowWithinCohort": {"policy": "LowerPriority"},
    }
    cluster.queue("a", {"f": {"gpu": 0}}, cohort="c", preemption=policy)
    cluster.queue("b", {"f": {"gpu": 0}}, cohort="c")
    cluster.queue("z", {"f": {"gpu": 1}}, cohort="c")
    cluster.running("old", "b", 1, created=1)
    cluster.submit("new", "a", 1, priority=1, created=2)
    assert cluster.cycle() == ["-old"]
    assert cluster.told[0].victims[0].path is Path.IN_COHORT_RECLAIM_WHILE_BORROWING
    cluster.change(
        "old",
        make_condition("QuotaReserved", False),
        make_condition("Evicted", reason="Preempted", at=cluster.now),
        make_condition("Preempted", reason="InCohortReclaimWhileBorrowing", at=cluster.now),
        admission=None,
    )
    assert cluster.cycle() == ["+new"]


def test_modes_rank_what_preemption_can_do() -> None:
    ranked = [Mode.NO_FIT, Mode.NO_CANDIDATES, Mode.PREEMPT, Mode.RECLAIM, Mode.FIT]
    assert sorted(ranked, reverse=True) == ranked[::-1]


def in_circles(cluster: Cluster) -> list[str]:
    """Lets victims leave at once until nothing is left to decide; what was decided."""
    found = []
    for _ in range(50):
        decided = cluster.cycle()
        if not decided and not cluster.engine.has_work(cluster.now):
            return found
        found += decided
        for victim in (one[1:] for one in decided if one.startswith("-")):
            cluster.leaves(victim)
    raise AssertionError("preemptions go on for ever")


def test_who_loses_the_room_again_and_again_insists_on_it(cluster: Cluster) -> None:
    """All pods of `p` would fit by borrowing, behind the victim that borrows less."""
    policy = {"reclaimWithinCohort": "Any"}
    cluster.queue("a", {"f": {"gpu": 4}}, cohort="c", preemption=policy)
    cluster.queue("b", {"f": {"gpu": 2}}, cohort="c", preemption=policy)
    cluster.running("stays", "a", 3, priority=5)
    cluster.running("victim", "a", 3, at=2.0, created=1.0)
    pod_sets = [make_pod_set({"gpu": 1}, count=3, min_count=2)]
    cluster.put(make_workload("p", "b", pod_sets=pod_sets, created=2.0))
    lost = ["-victim", "+victim"]
    assert in_circles(cluster) == [*lost, *lost, "-victim", "+p"]
    holder = cluster.engine.cache.holder(key("p"))
    assert holder is not None
    assert list(holder.usage.values()) == [2]


def circle(cluster: Cluster) -> None:
    """`owner` reclaims from `outranks`, `behind` borrows the rest, `outranks` preempts both."""
    policy = {"reclaimWithinCohort": "Any"}
    cluster.queue("a", {"f": {"gpu": 2}}, cohort="c", preemption=policy)
    above = {**policy, "borrowWithinCohort": {"policy": "LowerPriority"}}
    cluster.queue("b", {"f": {"gpu": 0}}, cohort="c", preemption=above)
    cluster.queue("c", {"f": {"gpu": 2}}, cohort="c")
    cluster.submit("outranks", "b", 4, priority=2)
    cluster.submit("behind", "a", 3)
    cluster.submit("owner", "a", 1, priority=-2)


def test_preemptions_for_each_other_end_and_the_reason_says_so(cluster: Cluster) -> None:
    circle(cluster)
    decided = in_circles(cluster)
    assert decided.count("-outranks") == decided.count("-owner") == 5
    assert decided[-1] == "+outranks"
    reason = cluster.engine.standing(key("owner")).reason
    assert isinstance(reason, NoFlavors)
    assert reason.in_vain == 5
    assert reason.text.endswith(
        "It preempted others 5 times and lost what they left; it does not preempt again until "
        "quotas change or other workloads end"
    )


def test_who_gave_up_preempts_again_when_quotas_change(cluster: Cluster) -> None:
    circle(cluster)
    assert in_circles(cluster).count("-outranks") == 5
    cluster.queue("z", {"f": {"gpu": 0}}, cohort="c")
    assert in_circles(cluster).count("-outranks") == 5


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "gives its quota back"])
def test_who_gave_up_preempts_again_when_one_that_was_preempted_ends(
    cluster: Cluster, ends: bool
) -> None:
    """But not when that one only leaves: then it waits again, and wants its room back."""
    circle(cluster)
    assert in_circles(cluster)[-1] == "+outranks"
    cluster.running("elsewhere", "c")
    cluster.hears("elsewhere")
    assert in_circles(cluster) == []
    if ends:
        cluster.tell(events.WorkloadGone(key("elsewhere")))
    else:
        cluster.leaves("elsewhere")
    assert in_circles(cluster).count("-outranks") == (5 if ends else 0)


@pytest.mark.parametrize("again", [True, False], ids=["created again", "changed"])
def test_who_gave_up_preempts_again_when_it_is_another_one(cluster: Cluster, again: bool) -> None:
    circle(cluster)
    assert in_circles(cluster)[-1] == "+outranks"
    if again:
        cluster.tell(events.WorkloadGone(key("owner")))
    cluster.submit("owner", "a", 1, priority=-2 if again else -1)
    assert in_circles(cluster)[0] == "-outranks"


@pytest.mark.parametrize("together", [True, False])
def test_who_may_reclaim_is_tried_again_when_others_begin_to_borrow(
    cluster: Cluster, together: bool
) -> None:
    policy = {
        "reclaimWithinCohort": "LowerPriority",
        "borrowWithinCohort": {"policy": "LowerPriority"},
    }
    cluster.queue("a", {"f": {"gpu": 2}}, cohort="c", preemption=policy)
    cluster.queue("b", {"f": {"gpu": 5}}, cohort="c")
    cluster.running("theirs", "b", 4, priority=-1)
    cluster.submit("p", "a", 4, priority=1)
    if not together:
        assert cluster.cycle() == []
        assert cluster.engine.next_cycle(cluster.now) is None
    cluster.submit("more", "b", 2, priority=3)
    assert cluster.cycle() == ["+more"]
    assert cluster.cycle() == ["-theirs"]
