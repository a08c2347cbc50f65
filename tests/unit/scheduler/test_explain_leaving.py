"""What is said and offered while preempted Workloads leave."""

from __future__ import annotations

import attrs
from preemption_cluster import LOWER

from kueuelib.scheduler.explain.answer import Explanation, explain
from kueuelib.scheduler.explain.trial import Verdict
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
    assert answer.verdict is Verdict.PREEMPTS
    assert ends(answer) == ["Workload ns/stays finishes or is deleted"]
