"""`explain` offers time as an answer where a preemption policy protects others for a while."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.explain.answer import explain
from kueuelib.scheduler.explain.trial import TrialResult, outcome
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.policy import PreemptionPolicy
from kueuelib.scheduler.settings import FairSharingRules, Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "preemption_policies"))

from preemption_policies import MinimumRunTime

NOW = 1000.0
KEY = ObjectKey("ns", "job")


def world(policy: PreemptionPolicy, fair: FairSharingRules | None, cpu: int) -> World:
    """Two Workloads of one CPU run since 900 and 950, and `job` may preempt both."""
    found = World(settings=Settings(preemption=policy, fair_sharing=fair))
    rule = {"withinClusterQueue": "LowerPriority"}
    queue = make_cluster_queue("cq", {"f": {"cpu": 2}}, preemption=rule)
    found = found.with_namespace("ns", {}).with_flavor(make_flavor("f")).with_cluster_queue(queue)
    found = found.with_local_queue(make_local_queue("lq", "cq"))
    for name, since in (("old", 900), ("new", 950)):
        assignment = make_assignment({"cpu": 1}, "f")
        holder = make_workload(
            name,
            "lq",
            {"cpu": 1},
            conditions=[
                make_condition("QuotaReserved", at=since),
                make_condition("Admitted", at=since),
            ],
            status={"admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]}},
        )
        found = found.with_workload(holder)
    return found.with_workload(make_workload("job", "lq", {"cpu": cpu}, priority=1))


@pytest.mark.parametrize("fair", [None, FairSharingRules()], ids=["by quota", "by share"])
@pytest.mark.parametrize(
    ("cpu", "until", "victims"),
    [(1, "1970-01-01T00:25:00Z", ["old"]), (2, "1970-01-01T00:25:50Z", ["new", "old"])],
    ids=["one", "both"],
)
def test_it_is_said_until_when_others_are_protected(
    cpu: int, until: str, victims: list[str], fair: FairSharingRules | None
) -> None:
    before = world(MinimumRunTime(600), fair, cpu)
    found = explain(before, KEY, NOW)
    assert found.verdict is TrialResult.WAITS
    (one,) = (each for each in found.changes if each.change.kind == "protection")
    text = "only time helps: the preemption policy example.com/minimum-run-time protects others"
    assert one.change.text == f"{text} until {until}"
    assert [key.name for key in one.victims] == victims
    ends = 1500.0 if cpu == 1 else 1550.0
    assert outcome(before, KEY, ends) == one.outcome
    assert not outcome(before, KEY, ends - 1).helps


def test_time_is_no_answer_where_it_does_not_help() -> None:
    found = explain(world(MinimumRunTime(600), None, 3), KEY, NOW)
    assert not [each for each in found.changes if each.change.kind == "protection"]
