"""The preemptor, asked about one Workload from outside a cycle."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.errors import UnknownObject
from kueuelib.scheduler import (
    FlavorResource,
    QuotaCache,
    Snapshot,
    World,
    choose_victims,
    decide_cycle,
    explain_workload,
)
from kueuelib.testing import make_cluster_queue, make_flavor, make_local_queue, make_workload
from kueuelib.testing.builders import make_assignment, make_condition

NOW = 1000.0


def holding(name: str, cpu: int, *, priority: int = 0, at: float = 1, queue: str = "team"):
    admission = {"clusterQueue": queue, "podSetAssignments": [make_assignment({"cpu": cpu}, "f")]}
    held = [make_condition(each, at=at) for each in ("QuotaReserved", "Admitted")]
    return make_workload(
        name,
        queue,
        {"cpu": cpu},
        priority=priority,
        status={"admission": admission},
        conditions=held,
    )


def waiting(cpu: int, *, priority: int = 9, name: str = "urgent"):
    return make_workload(name, "team", {"cpu": cpu}, priority=priority)


@pytest.fixture
def world() -> World:
    policy = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    found = World().with_flavor(make_flavor("f")).with_namespace("ns", {})
    for name in ("team", "other"):
        queue = make_cluster_queue(name, {"f": {"cpu": 4}}, cohort="all", preemption=policy)
        found = found.with_cluster_queue(queue).with_local_queue(make_local_queue(name, name))
    return found


def names(world: World, *, of: str = "urgent") -> list[str]:
    return [victim.key.name for victim in choose_victims(world, ObjectKey("ns", of), NOW)]


def test_victims_are_a_minimal_set_in_the_order_of_preemption(world: World) -> None:
    for held in (holding("a", 2), holding("b", 2, at=5), holding("c", 4, queue="other")):
        world = world.with_workload(held)
    assert names(world.with_workload(waiting(2))) == ["b"]
    assert names(world.with_workload(waiting(3))) == ["b", "a"]


def test_borrowed_quota_is_reclaimed_first_and_the_reason_is_given(world: World) -> None:
    borrower = holding("borrower", 8, queue="other", priority=99)
    world = world.with_workload(borrower).with_workload(waiting(1))
    (victim,) = choose_victims(world, ObjectKey("ns", "urgent"), NOW)
    assert victim.key.name == "borrower"
    assert victim.path.words == "reclamation within the cohort"


def test_there_are_none_when_it_fits_when_nothing_helps_and_when_it_does_not_wait(
    world: World,
) -> None:
    assert names(world.with_workload(waiting(4))) == []
    full = world.with_workload(holding("a", 4)).with_workload(holding("c", 4, queue="other"))
    assert names(full.with_workload(waiting(4, priority=0))) == []
    assert names(full, of="a") == []


@pytest.mark.parametrize("unknown", [ObjectKey("ns", "unknown"), "ns/urgent"])
def test_a_workload_that_is_not_there_is_an_error(world: World, unknown: Any) -> None:
    there = world.with_workload(waiting(4))
    for ask in (choose_victims, explain_workload):
        with pytest.raises(UnknownObject, match=f"^the world has no Workload {unknown}"):
            ask(there, unknown, NOW)


def test_a_cluster_queue_that_is_not_there_is_an_error(world: World) -> None:
    cache = world.engine(NOW).cache
    assert cache.available("team", FlavorResource("f", "cpu")) == 8000
    with pytest.raises(UnknownObject, match="^the cache has no ClusterQueue typo$"):
        cache.available("typo", FlavorResource("f", "cpu"))


def test_what_is_taken_out_twice_counts_once(world: World) -> None:
    world = world.with_workload(holding("a", 3))
    cache, pair = world.engine(NOW).cache, FlavorResource("f", "cpu")
    snapshot = Snapshot(cache.freeze(["team"]))
    (holder,), queue = cache.holders.values(), snapshot.queue("team")
    assert queue is not None
    with pytest.raises(UnknownObject, match="ns/a was not taken out"):
        snapshot.put_back(holder)
    snapshot.take_out(holder)
    with pytest.raises(UnknownObject, match="ns/a holds no quota in this snapshot"):
        snapshot.take_out(holder)
    assert snapshot.available(queue, pair) == 8000
    snapshot.put_back(holder)
    assert snapshot.available(queue, pair) == 5000
    with pytest.raises(UnknownObject, match="ns/a holds no quota in this snapshot"):
        Snapshot(cache.freeze([])).take_out(holder)


def test_what_waits_before_it_does_not_matter(world: World) -> None:
    world = world.with_workload(holding("a", 4)).with_workload(holding("c", 4, queue="other"))
    first = waiting(4, priority=100, name="first")
    assert names(world.with_workload(first).with_workload(waiting(4))) == ["a"]


def test_a_cycle_chooses_the_same_victims(world: World) -> None:
    for held in (holding("a", 2), holding("b", 2, at=5), holding("c", 4, queue="other")):
        world = world.with_workload(held)
    world = world.with_workload(waiting(3))
    cycle = world.engine(NOW).next_cycle(NOW)
    assert cycle is not None
    (preemption,) = decide_cycle(cycle, NOW).preemptions
    chosen = choose_victims(world, preemption.key, NOW)
    assert [(each.key, each.path) for each in preemption.victims] == [
        (each.key, each.path) for each in chosen
    ]


def test_a_snapshot_of_the_cache_is_a_state_to_try_things_on(world: World) -> None:
    cache = world.with_workload(held := holding("a", 3)).engine(NOW).cache
    assert isinstance(cache, QuotaCache)
    snapshot = Snapshot(cache.freeze(["team"]))
    (queue,) = filter(None, [snapshot.queue("team")])
    (pair,) = cache.holders[held.key].usage
    assert snapshot.available(queue, pair) == cache.available("team", pair) == 5000
    snapshot.take_out(cache.holders[held.key])
    assert snapshot.available(queue, pair) == 8000
    assert cache.available("team", pair) == 5000
