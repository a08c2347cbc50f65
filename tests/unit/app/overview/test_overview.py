"""The facts of the page: trees with their bars, who could be preempted, who was evicted."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kueuelib.api.codec import encode
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.quantity import Quantity
from kueuelib.api.queues import ClusterQueueStatus, FlavorUsage, ResourceUsage
from kueuelib.api.workload import EvictionCount, SchedulingStats
from kueuelib.app.explaining.gather import ClusterData, Decoder
from kueuelib.app.overview.cohort_trees import reported_load
from kueuelib.app.overview.gathering import ListedFacts, evictions_of, explained, overview_of
from kueuelib.app.overview.values import Overview, QueueOrCohort, QuotaUse, RunningWorkload, Threat
from kueuelib.jobs.reconcile.priority import PriorityClasses
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.settings import DEFAULTS, FairSharingRules
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_cohort,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)

NOW = 1000.0
CPU = FlavorResource("f", "cpu")
ANY = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def queue(name: str, cpu: Any, **fields: Any) -> Any:
    return make_cluster_queue(name, {"f": {"cpu": cpu}}, **fields)


def world(*objects: Any) -> World:
    """The given ClusterQueues, each with a LocalQueue of its name, Cohorts and Workloads."""
    found = World().with_namespace("ns", {}).with_flavor(make_flavor("f"))
    for one in objects:
        if isinstance(one, Workload):
            found = found.with_workload(one)
        elif hasattr(one.spec, "parent_name"):
            found = found.with_cohort(one)
        else:
            found = found.with_cluster_queue(one)
            found = found.with_local_queue(make_local_queue(one.name, one.name))
    return found


def waits(name: str, to: str, cpu: int, **fields: Any) -> Workload:
    return make_workload(name, to, {"cpu": cpu}, **fields)


def runs(name: str, to: str, cpu: int, *more: Obj, **fields: Any) -> Workload:
    assigned = [make_assignment({"cpu": cpu}, "f")]
    admission = {"clusterQueue": to, "podSetAssignments": assigned}
    conditions = [make_condition("QuotaReserved", at=500), *more]
    status = {"admission": admission}
    return waits(name, to, cpu, conditions=conditions, status=status, **fields)


def facts(found: World, why: str = "") -> ListedFacts:
    cluster = ClusterData(found, (), PriorityClasses({}, {}), ("a note",))
    return ListedFacts(cluster, why, DEFAULTS, NOW)


def overview(*objects: Any) -> Overview:
    return overview_of(facts(world(*objects)))


def places(found: Overview) -> dict[str, QueueOrCohort]:
    return {place.name: place for tree in found.trees for place in tree.places}


def running(found: Overview) -> dict[str, RunningWorkload]:
    return {one.key.name: one for one in found.running}


def test_a_tree_says_who_uses_borrows_lends_and_waits() -> None:
    found = overview(
        make_cohort("company"),
        make_cohort("dept", parent="company"),
        queue("a", 4, cohort="dept"),
        queue("b", 4, cohort="company"),
        queue("alone", 3),
        runs("r", "a", 6),
        waits("w", "b", 7),
    )
    assert [(tree.name, len(tree.places)) for tree in found.trees] == [("company", 4), ("alone", 1)]
    assert [(one.kind, one.name, one.depth) for one in found.trees[0].places] == [
        ("Cohort", "company", 0),
        ("ClusterQueue", "b", 1),
        ("Cohort", "dept", 1),
        ("ClusterQueue", "a", 2),
    ]
    uses = {name: place.uses for name, place in places(found).items()}
    assert uses == {
        "company": (QuotaUse(CPU, 8000, 6000, 0, 0, 7000),),
        "b": (QuotaUse(CPU, 4000, 0, 0, 2000, 7000),),
        "dept": (QuotaUse(CPU, 4000, 4000, 2000, 0, 0),),
        "a": (QuotaUse(CPU, 4000, 4000, 2000, 0, 0),),
        "alone": (QuotaUse(CPU, 3000),),
    }
    assert uses["b"][0].free == 2000
    company = places(found)["company"]
    assert (company.running, company.waiting) == (1, 1)


def test_what_waits_counts_at_the_first_flavor_that_its_pods_can_use() -> None:
    spot = {"key": "spot", "effect": "NoSchedule"}
    tolerant = make_pod_set({"cpu": 7}, tolerations=[{"key": "spot", "operator": "Exists"}])
    flavors = {"spot": {"cpu": 1}, "f": {"cpu": 1}}
    found = overview_of(
        facts(
            world(make_cluster_queue("a", flavors))
            .with_flavor(make_flavor("spot", taints=[spot]))
            .with_workload(waits("w", "a", 5))
            .with_workload(waits("tolerant", "a", 7, pod_sets=[tolerant]))
        )
    )
    uses = {use.pair.flavor: use.waiting for use in places(found)["a"].uses}
    assert uses == {"spot": 7000, "f": 5000}


def test_without_a_flavor_for_its_pods_a_workload_counts_at_the_first() -> None:
    taint = {"key": "k", "effect": "NoSchedule"}
    tainted = world(queue("a", 1)).with_flavor(make_flavor("f", taints=[taint]))
    found = overview_of(facts(tainted.with_workload(waits("w", "a", 5))))
    assert places(found)["a"].uses[0].waiting == 5000


def test_values_are_kept_while_their_objects_stay_the_same() -> None:
    decoder = Decoder()
    raw = encode(waits("w", "a", 1))
    first = decoder(Workload, raw)
    decoder.end()
    assert decoder(Workload, raw) is first
    assert decoder(Workload, {**raw}) is not first
    decoder.end()
    decoder.end()
    assert decoder(Workload, raw) is not first


def test_a_queue_that_cannot_admit_and_a_cycle_of_cohorts_are_named() -> None:
    found = overview(
        make_cohort("x", parent="y"),
        make_cohort("y", parent="x"),
        make_cluster_queue("lost", {"absent": {"cpu": 1}}),
        queue("in-cycle", 1, cohort="x"),
    )
    problems = {name: place.problem for name, place in places(found).items()}
    assert "cycle: x, y" in problems["x"]
    assert "absent" in problems["lost"]
    assert problems["in-cycle"]


def test_waiting_workloads_come_in_order_with_verdicts() -> None:
    found = overview(queue("a", 4), waits("late", "a", 3, created=2), waits("early", "a", 3))
    assert [(one.key.name, one.place, one.verdict) for one in found.waiting] == [
        ("early", 1, "fits now"),
        ("late", 2, "quota in use"),
    ]
    assert found.decided
    assert found.notes == ("a note",)


def test_who_could_be_preempted_follows_the_policies() -> None:
    found = overview(
        queue("a", 4, cohort="c", preemption=ANY),
        queue("b", 4, cohort="c"),
        queue("idle", 4, cohort="c", preemption={"reclaimWithinCohort": "LowerPriority"}),
        runs("low", "a", 4),
        runs("borrows", "b", 6, priority=5),
        waits("w1", "a", 9, priority=7),
        waits("w2", "a", 9, priority=0),
    )
    assert running(found)["low"].threats == (Threat("a", 0, or_older=False, waiting=1),)
    assert running(found)["borrows"].threats == (
        Threat("a", None, or_older=False, waiting=2),
        Threat("idle", 5, or_older=False, waiting=0),
    )


def test_older_ones_of_the_same_priority_count_where_the_policy_says_so() -> None:
    policy = {"withinClusterQueue": "LowerOrNewerEqualPriority"}
    found = overview(
        queue("a", 4, preemption=policy),
        runs("r", "a", 4, created=50),
        waits("older", "a", 9, created=10),
        waits("newer", "a", 9, created=90),
    )
    assert running(found)["r"].threats == (Threat("a", 0, or_older=True, waiting=1),)


def test_those_that_are_preempted_now_name_the_preemptor() -> None:
    found = overview(
        queue("a", 4, preemption=ANY), runs("r", "a", 4), waits("w", "a", 4, priority=1)
    )
    (row,) = found.running
    assert row.wanted_by == (ObjectKey("ns", "w"),)
    assert (row.since, row.admitted, row.leaving) == (500.0, False, False)
    assert row.uses == ((CPU, 4000),)


MESSAGE = (
    "Preempted to accommodate a workload (UID: w, JobUID: UNKNOWN) due to prioritization in the "
    "ClusterQueue; preemptor path: /a; preemptee path: /a"
)


def evicted(message: str, reason: str = "Preempted", *, over: bool = False, at: float = 7) -> Obj:
    return {**make_condition("Evicted", not over, reason, at), "message": message}


def test_an_eviction_says_when_for_which_workload_and_why() -> None:
    gone = MESSAGE.replace("UID: w,", "UID: x,")
    found = evictions_of(
        (
            waits("w", "a", 1),
            runs("first", "a", 1, evicted(MESSAGE)),
            waits("second", "a", 1, conditions=[evicted(gone, at=9)]),
            runs("slow", "a", 1, evicted("took too long", "PodsReadyTimeout", over=True, at=8)),
        ),
        10,
    )
    why = "prioritization in the ClusterQueue"
    shown = [(one.key.name, one.at, one.over, one.preemptor, one.why) for one in found]
    assert shown == [
        ("second", 9, False, "a Workload that is gone (UID x) in /a", why),
        ("slow", 8, True, "", "took too long"),
        ("first", 7, False, "ns/w in /a", why),
    ]
    assert len(evictions_of((runs("r", "a", 1, evicted(MESSAGE)),) * 3, 2)) == 2


@pytest.mark.parametrize(
    ("reason", "times"),
    [
        ("Preempted", 2),
        ("PodsReadyTimeout", 4),
        ("DeactivatedDueToAdmissionCheck", 5),
        ("DeactivatedDueToRequeuingLimitExceeded", 0),
    ],
)
def test_an_eviction_says_how_often_there_was_one_for_its_reason(reason: str, times: int) -> None:
    counts = [("Preempted", "", 2), ("PodsReadyTimeout", "WaitForStart", 3)]
    counts += [("PodsReadyTimeout", "WaitForRecovery", 1), ("Deactivated", "AdmissionCheck", 5)]
    rows = tuple(EvictionCount(*each) for each in counts)
    workload = runs("r", "a", 1, evicted("why", reason))
    status = attrs.evolve(workload.status, scheduling_stats=SchedulingStats(rows))
    (found,) = evictions_of((attrs.evolve(workload, status=status),), 1)
    assert found.times == times


def test_without_the_rights_to_decide_amounts_are_those_of_the_status() -> None:
    usage = FlavorUsage("f", (ResourceUsage("cpu", Quantity.of(6), Quantity.of(2)),))
    status = ClusterQueueStatus(flavors_reservation=(usage,), reserving_workloads=2)
    told = attrs.evolve(queue("a", 4, cohort="c"), status=status)
    found = overview_of(facts(world(told, waits("w", "a", 1)), "nobody may see them"))
    assert not found.decided
    assert found.notes[0] == "nobody may see them"
    place = places(found)["a"]
    assert place.uses == (QuotaUse(CPU, 4000, 4000, 2000),)
    assert place.running == reported_load(told).running == 2
    assert [one.verdict for one in found.waiting] == ["not evaluated"]


def test_a_whole_answer_is_about_a_workload_that_waits() -> None:
    known = facts(world(queue("a", 4), waits("w", "a", 5), runs("r", "a", 1)))
    found = explained(known, ObjectKey("ns", "w"))
    assert found is not None
    assert found.changes
    assert explained(known, ObjectKey("ns", "r")) is None
    assert explained(known, ObjectKey("ns", "absent")) is None
    assert explained(attrs.evolve(known, undecided="no rights"), ObjectKey("ns", "w")) is None


@pytest.mark.parametrize("shares", [True, False])
def test_what_else_decides_is_noted(shares: bool) -> None:
    settings = attrs.evolve(DEFAULTS, fair_sharing=FairSharingRules() if shares else None)
    found = overview_of(attrs.evolve(facts(world(queue("a", 4))), settings=settings))
    assert any("fair sharing" in note for note in found.notes) is shares
