"""However large or odd the world: `explain` tries no more heads than it says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import attrs
import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import CycleInput
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.answer import Explanation, explain
from kueuelib.scheduler.explain.trial import (
    OutOfStepsError,
    SearchBudget,
    TrialResult,
    Trials,
    most_steps,
)
from kueuelib.scheduler.explain.world import World
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)

NOW = 1000.0
KEY = ObjectKey("ns", "job")


class Count:
    """How many heads engines gave to be tried."""

    def __init__(self) -> None:
        self.heads = 0
        self.changes = 0

    @contextmanager
    def patched(self, *, again: bool = False) -> Iterator[None]:
        """Counts; with `again`, no engine ever comes to rest."""
        real, rests, count = Engine.next_cycle, Engine.rests, self

        def next_cycle(engine: Engine, now: float) -> CycleInput | None:
            found = real(engine, now)
            if found is None and again:
                count.changes += 1
                quota = {"f": {"cpu": 4 - count.changes % 2}}
                queue = make_cluster_queue("q0", quota, cohort="c")
                engine.observe(events.ClusterQueueSet(queue), now)
                found = real(engine, now)
            count.heads += 0 if found is None else len(found.heads)
            return found

        def rests_never(engine: Engine, key: ObjectKey) -> bool:
            return not again and rests(engine, key)

        with patch.multiple(Engine, next_cycle=next_cycle, rests=rests_never):
            yield


def crowd(waiting: int, queues: int = 4) -> World:
    """Full queues of one cohort, and many that wait ahead, each of another shape."""
    found = World().with_namespace("ns", {}).with_flavor(make_flavor("f"))
    workloads = []
    for number in range(queues):
        name = f"q{number}"
        found = found.with_cluster_queue(make_cluster_queue(name, {"f": {"cpu": 4}}, cohort="c"))
        found = found.with_local_queue(make_local_queue(name, name))
        admission = {
            "clusterQueue": name,
            "podSetAssignments": [make_assignment({"cpu": 4}, "f")],
        }
        workloads.append(
            make_workload(
                f"h{number}",
                name,
                {"cpu": 4},
                conditions=[make_condition("QuotaReserved"), make_condition("Admitted")],
                status={"admission": admission},
            )
        )
    workloads += [
        make_workload(f"w{n}", f"q{n % queues}", {"cpu": 1 + n % 40}, created=n)
        for n in range(waiting)
    ]
    workloads.append(make_workload("job", "q0", {"cpu": 3}, created=waiting))
    return attrs.evolve(found, workloads={one.key: one for one in workloads})


def explained(world: World, count: Count, *, again: bool = False) -> Explanation:
    with count.patched(again=again):
        return explain(world, KEY, NOW)


def test_the_heads_that_are_tried_are_counted_and_what_is_left_out_is_said() -> None:
    world, count = crowd(600), Count()
    with patch.object(SearchBudget.__init__, "__defaults__", (3_000,)):
        found = explained(world, count)
    assert found.verdict is TrialResult.WAITS
    assert count.heads <= 3_000 + most_steps(len(world.workloads))
    assert any("was tried: no more than" in limit for limit in found.limits)
    left_out = {limit.split(" among ")[1].split(" was tried")[0] for limit in found.limits}
    assert left_out.isdisjoint(found.tried)
    assert len(left_out) + len(found.tried) == 8


def test_a_world_that_never_comes_to_rest_is_given_up_and_said_to_be() -> None:
    world, count = crowd(10), Count()
    found = explained(world, count, again=True)
    (limit,) = found.limits
    assert "did not come to rest" in limit
    assert (found.changes, found.tried) == ((), ())
    assert found.outcome.unsettled
    assert found.reason is not None
    assert 0 < count.heads <= most_steps(len(world.workloads))


def test_pod_sets_that_take_turns_with_two_flavors_are_answered() -> None:
    """Neither search for flavors ends at the same time as the other one."""
    world = World().with_namespace("ns", {})
    world = world.with_flavor(make_flavor("small")).with_flavor(make_flavor("big"))
    quotas = {"small": {"cpu": 2}, "big": {"cpu": 8}}
    world = world.with_cluster_queue(make_cluster_queue("cq", quotas))
    world = world.with_local_queue(make_local_queue("lq", "cq"))
    admission = {
        "clusterQueue": "cq",
        "podSetAssignments": [make_assignment({"cpu": 8}, "big")],
    }
    world = world.with_workload(
        make_workload(
            "h",
            "lq",
            {"cpu": 8},
            conditions=[make_condition("QuotaReserved"), make_condition("Admitted")],
            status={"admission": admission},
        )
    )
    pod_sets = [
        make_pod_set({"cpu": 1}, count=2, name="driver"),
        make_pod_set({"cpu": 1}, count=1, name="workers"),
    ]
    world = world.with_workload(make_workload("job", "lq", pod_sets=pod_sets))
    count = Count()
    found = explained(world, count)
    assert found.verdict is TrialResult.WAITS
    assert "raise nominalQuota of flavor small: cpu by 1 (to 3)" in [
        one.change.text for one in found.changes
    ]
    assert count.heads < 1_000
    assert found.limits == ()


def test_a_trial_without_steps_is_no_answer() -> None:
    world = crowd(20)
    trials = Trials(world, KEY, NOW, SearchBudget(5))
    with pytest.raises(OutOfStepsError):
        trials.within(world)
    assert trials.unchanged().verdict is TrialResult.WAITS
