"""Laws of rest: preemptions end, and then nobody sleeps who could run."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_worlds import PAIRS, QUEUES, Replay, wild_world, worlds

from kueuelib.api.kueue import Workload
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.quota.snapshot import Snapshot
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)


def pods(name: str, gpu: int, count: int, fewest: int | None = None) -> dict[str, Any]:
    """A pod set."""
    return make_pod_set({"gpu": gpu}, name, count, fewest)


def runs(name: str, queue: str, gpu: int, flavor: str, *, created: float = 0) -> Workload:
    """A workload that holds quota."""
    assignment = make_assignment({"gpu": gpu}, flavor)
    return make_workload(
        name,
        queue,
        {"gpu": gpu},
        created=created,
        conditions=[make_condition("QuotaReserved", at=1)],
        status={"admission": {"clusterQueue": queue, "podSetAssignments": [assignment]}},
    )


@given(
    facts=worlds(waiting=8, loners=True) | worlds(waiting=8, shrinking=True),
    by_priority=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_preemptions_come_to_an_end_and_then_nobody_sleeps(
    facts: list[events.Event], by_priority: bool
) -> None:
    """Also when workloads end afterwards, one after the other."""
    replay = Replay(facts, Settings(priority_sorting=by_priority))
    for _ in range(4):
        replay.rest_without_leaving()
        assert replay.sleeper() is None
        if not replay.finish_one():
            break
    for plan in replay.plans:
        for preemption in plan.preemptions:
            assert preemption.victims
            assert preemption.key not in {victim.key for victim in preemption.victims}


@pytest.mark.parametrize("seed", range(5))
def test_nobody_sleeps_in_many_worlds(seed: int) -> None:
    """Worlds that are random all over find what shrunken and varied examples miss."""
    rng = random.Random(seed)
    for _ in range(int(os.environ.get("LAW_EXAMPLES", "200")) // 2):
        facts = wild_world(rng)
        replay = Replay(facts, Settings(priority_sorting=rng.random() < 0.8))
        replay.rest()
        assert replay.sleeper() is None, facts
        if running := sorted(replay.engine.cache.holders):
            replay.prioritize(rng.choice(running), rng.randint(-3, 4))
            replay.rest()
            assert replay.sleeper() is None, facts


def test_heads_do_not_keep_each_other_searching() -> None:
    """In this random world a pass that nothing happened before would cause the next one."""
    rng = random.Random(1375)
    replay = Replay(wild_world(rng), Settings(priority_sorting=rng.random() < 0.8))
    replay.rest()
    assert replay.sleeper() is None


def small(
    queues: dict[str, tuple[int, int, dict[str, Any]]], *workloads: Workload
) -> list[events.Event]:
    """A cohort of two ClusterQueues: what each owns of either flavor, and its policies."""
    facts: list[events.Event] = [events.NamespaceSet("ns", {})]
    facts += [events.FlavorSet(make_flavor(pair.flavor)) for pair in PAIRS]
    for name, (one, two, more) in queues.items():
        queue = make_cluster_queue(
            name, {"one": {"gpu": one}, "two": {"gpu": two}}, cohort="x", **more
        )
        facts += [events.ClusterQueueSet(queue), events.LocalQueueSet(make_local_queue(name, name))]
    return facts + [events.WorkloadSet(found) for found in workloads]


def test_who_can_choose_otherwise_after_a_charge_is_tried_again() -> None:
    """`p3` takes what `p2` had chosen, and only so `p2` finds a victim."""
    own = {
        "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
        "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch"},
    }
    facts = small(
        {"a": (4, 0, {}), "c": (3, 1, own)},
        runs("r2", "c", 1, "one", created=8),
        runs("r7", "a", 1, "two", created=6),
        make_workload(
            "p2", "c", priority=3, created=7, pod_sets=[pods("driver", 1, 3), pods("workers", 1, 1)]
        ),
        make_workload("p3", "a", created=7, pod_sets=[pods("driver", 1, 2), pods("workers", 1, 2)]),
    )
    replay = Replay(facts, Settings())
    replay.rest()
    assert replay.sleeper() is None
    assert [found.key.name for plan in replay.plans for found in plan.preemptions] == ["p2"]


def test_who_meets_a_blocked_head_at_the_same_flavor_every_time_comes_later() -> None:
    """`p4` keeps the rest of one flavor in every other of its tries, which are those of `p6`."""
    facts = small(
        {"b": (0, 0, {}), "c": (6, 0, {"queueingStrategy": "StrictFIFO"})},
        runs("r0", "b", 1, "one", created=1),
        make_workload("p0", "b", created=9, pod_sets=[pods("main", 0, 1)]),
        make_workload("p4", "c", created=9, pod_sets=[pods("driver", 1, 3), pods("workers", 1, 3)]),
        make_workload("p5", "b", created=4, pod_sets=[pods("driver", 2, 3)]),
        make_workload("p6", "b", priority=-1, created=4, pod_sets=[pods("main", 1, 1)]),
    )
    replay = Replay(facts, Settings(priority_sorting=False))
    replay.rest()
    assert replay.sleeper() is None
    assert {key.name for key in replay.ran} == {"p0", "p6"}


def test_who_loses_to_the_same_head_again_is_tried_once_more_when_all_began_anew() -> None:
    """`p1` and `p2` meet at flavor `one` as long as both may choose otherwise than before."""
    quota: dict[str, Any] = {
        "a": {
            "one": {"gpu": {"nominal": 8, "borrowing": 2, "lending": 5}},
            "two": {"gpu": {"nominal": 5, "borrowing": 2}},
        },
        "b": {"one": {"gpu": {"nominal": 3, "lending": 0}}, "two": {"gpu": 5}},
        "c": {
            "one": {"gpu": {"nominal": 1, "borrowing": 4, "lending": 1}},
            "two": {"gpu": {"nominal": 1, "lending": 1}},
        },
    }
    more: dict[str, dict[str, Any]] = {
        "a": {
            "flavorFungibility": {
                "whenCanBorrow": "MayStopSearch",
                "whenCanPreempt": "MayStopSearch",
                "preference": "PreemptionOverBorrowing",
            }
        },
        "b": {
            "preemption": {"reclaimWithinCohort": "Any"},
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch"},
        },
        "c": {
            "queueingStrategy": "StrictFIFO",
            "preemption": {"withinClusterQueue": "LowerOrNewerEqualPriority"},
            "flavorFungibility": {"whenCanBorrow": "TryNextFlavor"},
        },
    }
    facts: list[events.Event] = [events.NamespaceSet("ns", {})]
    facts += [events.FlavorSet(make_flavor(pair.flavor)) for pair in PAIRS]
    for name in QUEUES:
        queue = make_cluster_queue(name, quota[name], cohort="x", **more[name])
        facts += [events.ClusterQueueSet(queue), events.LocalQueueSet(make_local_queue(name, name))]
    workloads = (
        runs("r0", "c", 4, "two", created=5),
        runs("r1", "a", 1, "two", created=2),
        runs("r2", "a", 5, "one", created=1),
        runs("r3", "a", 4, "two", created=6),
        runs("r4", "b", 3, "two", created=5),
        make_workload("p0", "c", created=7, pod_sets=[pods("main", 3, 1, 1)]),
        make_workload(
            "p1", "a", priority=2, created=6, pod_sets=[pods("driver", 2, 1), pods("workers", 3, 1)]
        ),
        make_workload("p2", "b", priority=-2, created=3, pod_sets=[pods("main", 1, 4, 3)]),
        make_workload("p3", "c", created=0, pod_sets=[pods("main", 2, 1)]),
    )
    replay = Replay(facts + [events.WorkloadSet(found) for found in workloads], Settings())
    replay.rest()
    assert replay.sleeper() is None
    assert {key.name for key in replay.ran} == {"p2", "p3"}


def test_release_that_is_too_small_for_a_doubtful_shape_lets_it_be_tried_at_rest() -> None:
    """While `r1` runs, `blocked` keeps flavor `one` from `waits`, and afterwards flavor `two`."""
    quota: dict[str, dict[str, Any]] = {
        "a": {"one": {"gpu": 0}, "two": {"gpu": 2}},
        "b": {"one": {"gpu": 0}, "two": {"gpu": 0}},
        "c": {"two": {"gpu": 6}, "one": {"gpu": 6}},
    }
    facts: list[events.Event] = [events.NamespaceSet("ns", {})]
    facts += [events.FlavorSet(make_flavor(pair.flavor)) for pair in PAIRS]
    for name in QUEUES:
        more: dict[str, Any] = {"queueingStrategy": "StrictFIFO"} if name == "c" else {}
        queue = make_cluster_queue(name, quota[name], cohort="x", **more)
        facts += [events.ClusterQueueSet(queue), events.LocalQueueSet(make_local_queue(name, name))]
    workloads = (
        runs("r1", "c", 1, "two", created=1),
        runs("r2", "b", 2, "one", created=2),
        runs("r3", "b", 6, "two", created=3),
        make_workload("blocked", "c", {"gpu": 6}, created=4),
        make_workload("waits", "b", {"gpu": 3}, created=5),
    )
    replay = Replay([*facts, *map(events.WorkloadSet, workloads)], Settings())
    replay.rest()
    assert replay.sleeper() is None
    assert not replay.ran
    replay.engine.observe(events.WorkloadGone(workloads[0].key), replay.now)
    del replay.workloads[workloads[0].key]
    replay.rest()
    assert replay.sleeper() is None
    assert {key.name for key in replay.ran} == {"waits"}


def test_three_with_rights_against_each_other_come_to_an_end() -> None:
    """Each of them is preempted by another one; the flavors that were promised end it."""

    borrow = {"policy": "LowerPriority"}
    low = {**borrow, "maxPriorityThreshold": 1}
    rights = {
        "a": {"withinClusterQueue": "LowerPriority", "borrowWithinCohort": borrow},
        "b": {},
        "c": {"borrowWithinCohort": low},
    }
    nominal = {"a": (6, 7), "b": (1, 1), "c": (0, 0)}
    facts: list[events.Event] = [events.NamespaceSet("ns", {})]
    facts += [events.FlavorSet(make_flavor(pair.flavor)) for pair in PAIRS]
    for name, policy in rights.items():
        one, two = nominal[name]
        reclaim = {} if name == "b" else {"reclaimWithinCohort": "Any"}
        queue = make_cluster_queue(
            name,
            {"one": {"gpu": one}, "two": {"gpu": two}},
            cohort="x",
            preemption={**policy, **reclaim},
            queueingStrategy="StrictFIFO",
            flavorFungibility={
                "whenCanBorrow": "MayStopSearch" if name == "a" else "TryNextFlavor",
                "whenCanPreempt": "MayStopSearch" if name == "a" else "TryNextFlavor",
            },
        )
        facts += [events.ClusterQueueSet(queue), events.LocalQueueSet(make_local_queue(name, name))]
    runs = make_workload(
        "runs",
        "a",
        {"gpu": 5},
        priority=-1,
        created=8,
        conditions=[make_condition("QuotaReserved", at=1)],
        status={
            "admission": {
                "clusterQueue": "a",
                "podSetAssignments": [make_assignment({"gpu": 5}, "two")],
            }
        },
    )
    borrows = make_workload("borrows", "c", priority=3, created=4, pod_sets=[pods("main", 2, 4, 3)])
    owns = make_workload(
        "owns", "a", priority=1, created=3, pod_sets=[pods("driver", 1, 3), pods("workers", 1, 4)]
    )
    facts += [events.WorkloadSet(found) for found in (runs, borrows, owns)]
    Replay(facts, Settings()).rest()


def test_search_that_came_round_starts_over_with_the_first_flavor_after_a_loss() -> None:
    """Several pod sets are never through at the same time; the victim is found from the start."""
    quota: dict[str, Any] = {
        "a": {"one": {"gpu": 6}, "two": {"gpu": 3}},
        "b": {
            "one": {"gpu": {"nominal": 3, "borrowing": 2}},
            "two": {"gpu": {"nominal": 4, "lending": 1}},
        },
        "c": {"one": {"gpu": 5}, "two": {"gpu": 2}},
    }
    rights: dict[str, Any] = {"a": {}, "b": {}, "c": {"withinClusterQueue": "LowerPriority"}}
    strict = {
        "queueingStrategy": "StrictFIFO",
        "flavorFungibility": {
            "whenCanBorrow": "TryNextFlavor",
            "whenCanPreempt": "MayStopSearch",
            "preference": "PreemptionOverBorrowing",
        },
    }
    facts: list[events.Event] = [events.NamespaceSet("ns", {})]
    facts += [events.FlavorSet(make_flavor(pair.flavor)) for pair in PAIRS]
    for name in QUEUES:
        more: dict[str, Any] = strict if name == "c" else {}
        queue = make_cluster_queue(name, quota[name], cohort="x", preemption=rights[name], **more)
        facts += [events.ClusterQueueSet(queue), events.LocalQueueSet(make_local_queue(name, name))]
    for name, home, gpu, priority in (("r1", "c", 1, -1), ("r4", "b", 3, 0)):
        admission = {
            "clusterQueue": home,
            "podSetAssignments": [make_assignment({"gpu": gpu}, "one")],
        }
        runs = make_workload(
            name,
            home,
            {"gpu": gpu},
            priority=priority,
            created=8,
            conditions=[make_condition("QuotaReserved", at=1)],
            status={"admission": admission},
        )
        facts.append(events.WorkloadSet(runs))
    first = [make_pod_set({"gpu": 3}, "driver", 3, 1), make_pod_set({"gpu": 3}, "workers", 3, 1)]
    second = [make_pod_set({"gpu": 1}, "driver", 1), make_pod_set({"gpu": 2}, "workers", 2, 1)]
    waits = make_workload("p1", "a", priority=3, created=1, pod_sets=first)
    facts.append(events.WorkloadSet(waits))
    facts.append(events.WorkloadSet(make_workload("p2", "c", created=6, pod_sets=second)))
    replay = Replay(facts, Settings())
    replay.rest()
    preempting = [found.key.name for plan in replay.plans for found in plan.preemptions]
    assert preempting == ["p2"]


@given(facts=worlds(waiting=8))
@settings(max_examples=80, deadline=None)
def test_cycles_come_to_an_end_while_victims_take_their_time(facts: list[events.Event]) -> None:
    """Nobody is tried again and again because the room that it loses is not given away either."""
    engine = Engine()
    engine.observe_all(facts, 0)
    for _ in range(200):
        found = engine.next_cycle(10.0)
        if found is None:
            return
        engine.settle(decide(found, 10.0), 10.0)
    raise AssertionError("the engine does not come to rest")


@pytest.mark.parametrize("by_priority", [True, False], ids=["by priority", "by age"])
@given(facts=worlds(waiting=8, loners=True))
@settings(max_examples=100, deadline=None)
def test_nobody_who_could_run_alone_starves(facts: list[events.Event], by_priority: bool) -> None:
    """Behind one that can never run a StrictFIFO queue stands still; everybody else runs."""
    replay = Replay(facts, Settings(priority_sorting=by_priority))
    replay.rest()
    while replay.finish_one():
        replay.rest()
    for name in QUEUES:
        spec = replay.engine.cache.spec(name)
        assert spec is not None
        frozen = replay.engine.cache.freeze([name])
        snapshot = Snapshot(frozen)
        for info in replay.engine.pending(name):
            amount = replay.workloads[info.key].spec.pod_sets[0]
            wants = info.pod_sets[0].requests(amount.count, count_pods=False)["gpu"]
            room = max(snapshot.capacity(frozen.queues[name], pair) for pair in PAIRS)
            if wants > room:
                if spec.strict:
                    break
                continue
            raise AssertionError(f"{info.key} wants {wants} of {room} and starves")
