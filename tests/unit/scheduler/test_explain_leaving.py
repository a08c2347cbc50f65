"""What is said and offered while preempted Workloads leave."""

from __future__ import annotations

import attrs
import pytest
from preemption_cluster import LOWER, Cluster, key

from kueuelib.scheduler import events
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.answer import Explanation, explain
from kueuelib.scheduler.explain.trial import TrialResult, outcomes
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)

NOW = 1000.0
TEXT = "Preempted to accommodate a workload (UID: {}, JobUID: UNKNOWN) due to prioritization"


def leaving_for(preemptor: str, *, parallel: bool = True) -> Explanation:
    """The answer for `urgent`, while one that runs leaves for a preemptor and another one stays."""
    world = attrs.evolve(World(), settings=Settings(parallel_preemptors=parallel))
    queue = make_cluster_queue("q", {"f": {"gpu": 2}}, preemption=LOWER)
    world = world.with_namespace("ns", {}).with_flavor(make_flavor("f"))
    world = world.with_cluster_queue(queue).with_local_queue(make_local_queue("q", "q"))
    urgent = make_workload("urgent", "q", {"gpu": 1}, priority=2, created=5)
    other = make_workload("other", "q", {"gpu": 1}, priority=3)
    uids = {"urgent": urgent.metadata.uid, "other": other.metadata.uid}
    text = TEXT.format(uids.get(preemptor, preemptor))
    assignment = make_assignment({"gpu": 1}, "f")
    status = {"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}}
    reserved = make_condition("QuotaReserved")
    evicted = {**make_condition("Evicted", reason="Preempted"), "message": text}
    for name, conditions in (("leaves", [reserved, evicted]), ("stays", [reserved])):
        world = world.with_workload(
            make_workload(name, "q", {"gpu": 1}, status=status, conditions=conditions)
        )
    world = world.with_workload(urgent)
    if preemptor == "other":
        world = world.with_workload(other)
    return explain(world, urgent.key, NOW)


def promised(strategy: str, *, told: bool = True) -> tuple[World, Cluster]:
    """`high` preempted `low`, then `big` came, which does not fit; what a cluster shows of that."""
    cluster = Cluster(Engine(Settings()))
    cluster.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    spec = {"preemption": LOWER, "queueingStrategy": strategy}
    cluster.queue("q", {"f": {"gpu": 1}}, **spec)
    cluster.running("low", "q")
    uid = cluster.submit("high", "q", 1, priority=1).metadata.uid
    at_rest(cluster)
    evicted = make_condition("Evicted", reason="Preempted", at=cluster.now)
    cluster.change("low", {**evicted, "message": TEXT.format(uid)})
    cluster.submit("big", "q", 4, priority=9)
    cluster.submit("next", "q", 1, created=7)
    at_rest(cluster)
    if told:
        waits = make_condition("QuotaReserved", False, "WaitingForPreemptedWorkloads")
        cluster.change("high", waits)
        at_rest(cluster)
    queue = make_cluster_queue("q", {"f": {"gpu": 1}}, **spec)
    world = World().with_namespace("ns", {}).with_flavor(make_flavor("f"))
    world = world.with_cluster_queue(queue).with_local_queue(make_local_queue("q", "q"))
    for each in cluster.workloads.values():
        world = world.with_workload(each)
    return world, cluster


def at_rest(cluster: Cluster) -> list[str]:
    found: list[str] = []
    for _ in range(20):
        found += cluster.cycle()
        if not cluster.engine.has_work(cluster.now):
            break
    return found


@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
def test_the_answer_is_that_of_the_manager_that_promised_the_room(strategy: str) -> None:
    world, cluster = promised(strategy)
    high = explain(world, key("high"), NOW)
    assert (high.verdict, high.outcome.victims) == (TrialResult.PREEMPTS, (key("low"),))
    assert not notes(high)
    for name in ("big", "next"):
        answer = explain(world, key(name), NOW)
        assert answer.verdict is TrialResult.WAITS
        assert not notes(answer)
        assert "the quota of preempted Workloads is kept for ns/high" in str(answer.notes)
    found = outcomes(world, NOW)
    assert {each.name for each in found if found[each].verdict is TrialResult.PREEMPTS} == {"high"}
    cluster.leaves("low")
    assert at_rest(cluster) == ["+high"]


def test_a_preemptor_that_its_condition_does_not_show_is_decided_again() -> None:
    world, _ = promised("StrictFIFO", told=False)
    high = explain(world, key("high"), NOW)
    assert (high.verdict, high.ahead) == (TrialResult.WAITS, (key("big"),))
    (note,) = notes(explain(world, key("next"), NOW))
    assert "ns/low (for ns/high)" in note


def test_a_condition_that_is_out_of_date_promises_nothing() -> None:
    """Its victim leaves, but another one took the place meanwhile, or it fits as it is."""
    world, _ = promised("StrictFIFO")
    more = make_cluster_queue("q", {"f": {"gpu": 2}}, queueingStrategy="StrictFIFO")
    high = explain(world.with_cluster_queue(more), key("high"), NOW)
    assert (high.verdict, high.ahead) == (TrialResult.WAITS, (key("big"),))
    less = make_cluster_queue("q", {"f": {"gpu": 0}}, queueingStrategy="StrictFIFO")
    high = explain(world.with_cluster_queue(less), key("high"), NOW)
    assert (high.verdict, high.ahead) == (TrialResult.WAITS, (key("big"),))


def test_a_preemptor_that_needs_more_victims_by_now_is_decided_again() -> None:
    world, _ = promised("StrictFIFO")
    assignment = make_assignment({"gpu": 1}, "f")
    status = {"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}}
    intruder = make_workload(
        "intruder", "q", {"gpu": 1}, status=status, conditions=[make_condition("QuotaReserved")]
    )
    high = explain(world.with_workload(intruder), key("high"), NOW)
    assert (high.verdict, high.ahead) == (TrialResult.WAITS, (key("big"),))


def test_conditions_that_are_out_of_date_do_not_matter_in_other_trees() -> None:
    world, _ = promised("StrictFIFO")
    waits = make_condition("QuotaReserved", False, "WaitingForPreemptedWorkloads")
    free = make_cluster_queue("free", {"f": {"gpu": 1}})
    world = world.with_cluster_queue(free).with_local_queue(make_local_queue("free", "free"))
    world = world.with_workload(make_workload("fits", "free", {"gpu": 1}, conditions=[waits]))
    found = {each.name: outcome.verdict for each, outcome in outcomes(world, NOW).items()}
    assert found["fits"] is TrialResult.ADMITTED
    assert found["high"] is TrialResult.PREEMPTS


def ends(answer: Explanation) -> list[str]:
    return [one.change.text for one in answer.changes if "finishes" in one.change.text]


def notes(answer: Explanation) -> list[str]:
    return [note for note in answer.notes if note.startswith("preempted Workloads are leaving")]


def test_a_note_names_those_that_leave_for_others_and_their_preemptor() -> None:
    (note,) = notes(leaving_for("other"))
    assert note.startswith("preempted Workloads are leaving: ns/leaves (for ns/other); ")
    (note,) = notes(leaving_for("unknown"))
    assert note.startswith("preempted Workloads are leaving: ns/leaves (for another Workload); ")


def test_there_is_no_note_about_its_own_victims_or_without_promises() -> None:
    assert notes(leaving_for("urgent")) == []
    assert notes(leaving_for("other", parallel=False)) == []


def test_the_end_of_a_preempted_workload_is_never_offered() -> None:
    answer = leaving_for("unknown")
    assert answer.verdict is TrialResult.PREEMPTS
    assert ends(answer) == ["Workload ns/stays finishes or is deleted"]
