"""Strategies of fair preemption are entries of one table, in either place of the list."""

from __future__ import annotations

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.decide.preemption.fair import STRATEGIES, Strategy
from kueuelib.scheduler.explain.trial import outcome
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.settings import FINAL_SHARE, INITIAL_SHARE, FairSharingRules, Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)

OURS = "WithinOneThird"


def victims(*strategies: str) -> list[str]:
    """Who leaves for a Workload of `mine`, which borrows as much as `theirs` then does."""
    world = World(settings=Settings(fair_sharing=FairSharingRules(strategies)))
    world = world.with_namespace("ns", {}).with_flavor(make_flavor("f"))
    for name, cpu in (("mine", 0), ("theirs", 0), ("lender", 9)):
        policy = {"reclaimWithinCohort": "Any"}
        queue = make_cluster_queue(name, {"f": {"cpu": cpu}}, cohort="x", preemption=policy)
        world = world.with_cluster_queue(queue).with_local_queue(make_local_queue(name, name))
    for name, queue_name in (("m", "mine"), ("t1", "theirs"), ("t2", "theirs")):
        assignment = make_assignment({"cpu": 3}, "f")
        holder = make_workload(
            name,
            queue_name,
            {"cpu": 3},
            conditions=[make_condition("QuotaReserved"), make_condition("Admitted")],
            status={"admission": {"clusterQueue": queue_name, "podSetAssignments": [assignment]}},
        )
        world = world.with_workload(holder)
    world = world.with_workload(make_workload("job", "mine", {"cpu": 3}))
    return [key.name for key in outcome(world, ObjectKey("ns", "job"), 1000.0).victims]


@pytest.mark.parametrize("first", [OURS, FINAL_SHARE, INITIAL_SHARE])
@pytest.mark.parametrize(
    ("allows", "taken"),
    [
        (lambda own, before, after: own.value - after.value < before.value / 3, 0),
        (lambda own, before, after: own.value - after.value <= before.value / 2, 1),
    ],
    ids=["too strict", "enough"],
)
def test_a_third_strategy_is_one_more_entry(
    monkeypatch: pytest.MonkeyPatch, first: str, allows: Strategy, taken: int
) -> None:
    assert victims(FINAL_SHARE, INITIAL_SHARE) == []
    monkeypatch.setitem(STRATEGIES, OURS, allows)
    assert len(victims(*dict.fromkeys((first, OURS)))) == taken


def test_a_name_that_stands_for_nothing_is_no_strategy() -> None:
    with pytest.raises(KeyError, match="Gentle"):
        victims("Gentle")
