"""No victim of several preemptors in one cycle leaves needlessly, beside those decided before."""

from __future__ import annotations

from typing import Any

import pytest
from preemption_cluster import LOWER, RECLAIM, Cluster, key

from kueuelib.scheduler import events
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.reasons import FitsAfterPreemptions, NoFlavors, Preempting
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.builders import make_flavor

TOGETHER = pytest.mark.parametrize("others", [True, False])


def cluster_with(*flavors: str, **settings: Any) -> Cluster:
    cluster = Cluster(Engine(Settings(**settings)))
    cluster.tell(events.NamespaceSet("ns", {}))
    cluster.tell(*(events.FlavorSet(make_flavor(name)) for name in ("f", *flavors)))
    return cluster


@TOGETHER
@pytest.mark.parametrize("exceeds", [True, False])
def test_what_the_victims_of_earlier_heads_leave_over_costs_no_victim(
    others: bool, exceeds: bool
) -> None:
    cluster = cluster_with(exceeds_quota=exceeds)
    cluster.queue("a", {"f": {"gpu": 1}}, cohort="c", preemption=RECLAIM)
    cluster.queue("b", {"f": {"gpu": 1}}, cohort="c", preemption=LOWER)
    cluster.queue("z", {"f": {"gpu": 1}}, cohort="c")
    cluster.running("big", "z", 2)
    cluster.running("low", "b", 1)
    if others:
        cluster.submit("owner", "a", 1, priority=9)
    cluster.submit("high", "b", 1, priority=1)
    assert cluster.cycle() == (["-big"] if others else ["-low"])
    if others:
        assert cluster.waits["high"].reason == FitsAfterPreemptions((key("big"),))
        assert cluster.cycle() == []
        cluster.leaves("big")
        assert cluster.cycle() == ["+owner", "+high"]


@TOGETHER
def test_it_may_cost_fewer_victims(others: bool) -> None:
    cluster = cluster_with()
    cluster.queue("a", {"f": {"gpu": 1}}, cohort="c", preemption=RECLAIM)
    cluster.queue("b", {"f": {"gpu": 2}}, cohort="c", preemption=LOWER)
    cluster.queue("z", {"f": {"gpu": 1}}, cohort="c")
    cluster.running("big", "z", 2)
    cluster.running("low", "b", 1, priority=-1)
    cluster.running("lower", "b", 1, priority=-2)
    if others:
        cluster.submit("owner", "a", 1, priority=9)
    cluster.submit("high", "b", 2, priority=1)
    assert cluster.cycle() == (["-big", "-lower"] if others else ["-lower", "-low"])


@TOGETHER
def test_room_in_another_flavor_costs_no_victim(others: bool) -> None:
    cluster = cluster_with("g")
    cluster.queue("a", {"g": {"gpu": 1}}, cohort="c", preemption=RECLAIM)
    cluster.queue("b", {"f": {"gpu": 1}, "g": {"gpu": 1}}, cohort="c", preemption=LOWER)
    cluster.queue("z", {"f": {"gpu": 0}, "g": {"gpu": 0}}, cohort="c")
    cluster.running("low", "b", 1)
    cluster.running("big", "z", 2, flavor="g")
    if others:
        cluster.submit("owner", "a", 1, priority=9)
    cluster.submit("high", "b", 1, priority=1)
    assert cluster.cycle() == (["-big"] if others else ["-low"])


@TOGETHER
def test_a_queue_that_is_back_at_its_nominal_quota_loses_nothing_to_a_second_one(
    others: bool,
) -> None:
    """The last one that could leave for the second one is within the quota of its own."""
    cluster = cluster_with()
    cluster.queue("a", {"f": {"gpu": 3}}, cohort="c", preemption=RECLAIM)
    lower = {"reclaimWithinCohort": "LowerPriority"}
    cluster.queue("b", {"f": {"gpu": 1}}, cohort="c", preemption=lower)
    for name in ("z", "w"):
        cluster.queue(name, {"f": {"gpu": int(name == "z")}}, cohort="c")
    cluster.running("small", "z", 1, at=2.0)
    cluster.running("big", "z", 3, at=1.0)
    cluster.running("important", "w", 1, priority=5)
    if others:
        cluster.submit("owner", "a", 3, priority=9)
    cluster.submit("high", "b", 1, priority=1)
    assert cluster.cycle() == (["-big"] if others else ["-small"])
    assert isinstance(cluster.waits["high"].reason, NoFlavors if others else Preempting)


@TOGETHER
def test_room_of_a_broken_promise_costs_no_victim(others: bool) -> None:
    """An earlier head takes some of the room of a preemptor, and leaves the rest to later ones."""
    cluster = cluster_with()
    borrows = {**LOWER, **RECLAIM, "borrowWithinCohort": {"policy": "LowerPriority"}}
    cluster.queue("a", {"f": {"gpu": 4}}, cohort="c")
    cluster.queue("b", {"f": {"gpu": 2}}, cohort="c", preemption=LOWER)
    cluster.queue("z", {"f": {"gpu": 2}}, cohort="c", preemption=borrows)
    cluster.running("old", "z", 6)
    cluster.running("low", "b", 2)
    cluster.submit("borrower", "z", 6, priority=1)
    assert cluster.cycle() == ["-old"]
    cluster.hears("old")
    if others:
        cluster.submit("owner", "a", 4, priority=9)
    cluster.submit("high", "b", 2, priority=1)
    assert cluster.cycle() == ([] if others else ["-low"])
    if others:
        assert cluster.waits["high"].reason == FitsAfterPreemptions((key("old"),))


def test_owners_cost_no_victims_beyond_those_with_which_it_borrows_nothing() -> None:
    """Nothing is kept from it when the one in its own ClusterQueue has left."""
    cluster = cluster_with(protects_nominal=True)
    cluster.queue("a", {"f": {"gpu": 8}}, cohort="c")
    cluster.queue("b", {"f": {"gpu": 8}}, cohort="c")
    cluster.queue("c", {"f": {"gpu": 4}}, cohort="c", preemption={**LOWER, **RECLAIM})
    cluster.running("mine", "a", 5)
    cluster.running("big", "b", 10)
    cluster.running("low", "c", 2)
    cluster.submit("want", "a", 5)
    assert cluster.cycle() == []
    cluster.submit("high", "c", 3, priority=1)
    assert cluster.cycle() == ["-low"]


@pytest.mark.parametrize("preemption", [RECLAIM, {}])
def test_who_borrows_nothing_in_another_flavor_preempts_nobody_for_owners(
    preemption: dict[str, str],
) -> None:
    cluster = cluster_with("g", protects_nominal=True)
    cluster.queue("a", {"f": {"gpu": 3}, "g": {"gpu": 3}}, cohort="c")
    cluster.queue("b", {"f": {"gpu": 0}, "g": {"gpu": 2}}, cohort="c")
    cluster.queue("c", {"f": {"gpu": 0}, "g": {"gpu": 2}}, cohort="c", preemption=preemption)
    cluster.running("f1", "a", 1)
    cluster.running("g1", "a", 1, flavor="g")
    cluster.running("big", "b", 4, flavor="g")
    cluster.submit("want", "a", 3)
    assert cluster.cycle() == []
    cluster.submit("high", "c", 2, priority=1)
    assert cluster.cycle() == ["+high"]
