"""How much work a decision is, counted in calls of Python functions instead of seconds.

The numbers are those of Python 3.11 plus five per cent; later versions need fewer calls. A change
that needs more has to say so here.

The first decision about a shape in a ClusterQueue also prepares what that offers to the shape.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import pytest

from kueuelib.api.kueue import Workload
from kueuelib.api.names import ADMITTED, QUOTA_RESERVED
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import CycleInput, Plan, decide
from kueuelib.scheduler.decide.preemption import search
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.settings import DEFAULTS, FairSharingRules, Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_cohort,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)

T = TypeVar("T")
PREEMPTION = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}


def counted(run: Callable[[], T]) -> tuple[T, int]:
    """What a function returns, and how many functions were called for it.

    The garbage collector waits, because other programs may ask to be called when it runs.
    """
    calls = 0

    def note(_frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(note)
    try:
        found = run()
    finally:
        sys.setprofile(before)
        gc.enable()
    return found, calls


def engine_with(
    queues: int,
    cohorts: int,
    *,
    tree: bool = False,
    cpu: int = 10,
    settings: Settings = DEFAULTS,
) -> Engine:
    """ClusterQueues of one flavor and resource that may borrow and preempt."""
    engine = Engine(settings)
    engine.observe(events.NamespaceSet("ns", {}), 0.0)
    engine.observe(events.FlavorSet(make_flavor("f")), 0.0)
    for number in range(queues):
        name, cohort = f"q{number:03}", f"c{number % cohorts}"
        quota = {"f": {"cpu": {"nominal": cpu, "borrowing": cpu}}}
        queue = make_cluster_queue(name, quota, cohort=cohort, preemption=PREEMPTION)
        engine.observe(events.ClusterQueueSet(queue), 0.0)
        engine.observe(events.LocalQueueSet(make_local_queue(name, name)), 0.0)
        if tree:
            engine.observe(events.CohortChanged(make_cohort(cohort, parent="root")), 0.0)
    return engine


def waits(engine: Engine, name: str, queue: str, cpu: int, priority: int = 0) -> None:
    found = make_workload(name, queue, {"cpu": cpu}, priority=priority)
    engine.observe(events.WorkloadSet(found), 1.0)


def runs(name: str, queue: str, cpu: int) -> Workload:
    admission = {
        "clusterQueue": queue,
        "podSetAssignments": [make_assignment({"cpu": cpu}, "f")],
    }
    held = tuple(make_condition(kind, at=1.0) for kind in (QUOTA_RESERVED, ADMITTED))
    status = {"admission": admission}
    return make_workload(name, queue, {"cpu": cpu}, conditions=held, status=status)


def found_by(engine: Engine) -> CycleInput:
    found = engine.next_cycle(2.0)
    assert found is not None
    return found


def decided(engine: Engine) -> tuple[Plan, int, int]:
    """The plan of the next cycle, and the calls of deciding and of settling it."""
    found = found_by(engine)
    plan, deciding = counted(lambda: decide(found, 2.0))
    _, settling = counted(lambda: engine.settle(plan, 2.0))
    return plan, deciding, settling


def warm(*running: int) -> Engine:
    """An engine of 30 ClusterQueues that decided about every one of them before.

    Args:
        running: how much runs in each of them.
    """
    engine = engine_with(30, 5)
    for number in range(30):
        for cpu in running:
            engine.observe(events.WorkloadSet(runs(f"r{number}", f"q{number:03}", cpu)), 1.0)
        waits(engine, f"w{number}", f"q{number:03}", 1, priority=9)
    decided(engine)
    return engine


@pytest.mark.parametrize(("priority", "most"), [(0, 64.0), (9, 39.0)])
def test_calls_for_an_admission(priority: int, most: float) -> None:
    """Those with priority 9 have the shape of others that were admitted before."""
    engine = warm()
    for number in range(30):
        waits(engine, f"x{number}", f"q{number:03}", 1, priority)
    plan, deciding, settling = decided(engine)
    assert len(plan.admissions) == 30
    assert deciding / 30 <= most
    assert settling / 30 <= 47.5


def test_calls_for_a_head_that_waits() -> None:
    engine = warm(9)
    for number in range(30):
        waits(engine, f"x{number}", f"q{number:03}", 5)
    plan, deciding, _ = decided(engine)
    assert len(plan.waits) == 30
    assert not plan.preemptions
    assert deciding / 30 <= 113.0


def test_calls_for_a_preemption() -> None:
    engine = warm(9)
    for number in range(30):
        waits(engine, f"x{number}", f"q{number:03}", 5, priority=1)
    plan, deciding, _ = decided(engine)
    assert len(plan.preemptions) == 20, "the victims of two leave room for a third"
    assert deciding / 30 <= 286.8


def test_victims_are_searched_once_when_all_flavors_ask_for_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = engine_with(1, 1)
    engine.observe(events.WorkloadSet(runs("r", "q000", 10)), 1.0)
    waits(engine, "w", "q000", 5, priority=1)
    asked = []

    def ask(*args: Any) -> search.Search:
        asked.append(args)
        return find_victims(*args)

    find_victims = search.find_victims
    monkeypatch.setattr(search, "find_victims", ask)
    plan = decide(found_by(engine), 2.0)
    assert [len(one.victims) for one in plan.preemptions] == [1]
    assert len(asked) == 1


@pytest.mark.parametrize("tree", [False, True])
def test_deciding_after_a_change_costs_the_same_among_many_siblings(tree: bool) -> None:
    calls = []
    for queues in (20, 20, 200):  # the first one makes the quantities
        engine = engine_with(queues, queues // 10 if tree else 1, tree=tree)
        for number in range(queues):
            engine.observe(events.WorkloadSet(runs(f"r{number}", f"q{number:03}", 10)), 1.0)
        waits(engine, "w", "q000", 5)
        decided(engine)
        engine.observe(events.WorkloadGone(runs("r0", "q000", 10).key), 1.0)
        plan, deciding, _ = decided(engine)
        assert len(plan.admissions) == 1
        calls.append(deciding)
    assert calls[1] == calls[2]


@pytest.mark.parametrize("settings", [DEFAULTS, Settings(fair_sharing=FairSharingRules())])
@pytest.mark.parametrize("tree", [False, True])
def test_heads_that_preempt_cost_the_same_among_many_borrowers(
    tree: bool, settings: Settings
) -> None:
    """A search costs what the candidates do that it looks at, however many there are."""
    calls = []
    for queues in (20, 20, 200):  # the first one makes the quantities
        engine = engine_with(queues, 2 if tree else 1, tree=tree, settings=settings)
        for number in range(queues):
            for one in range(12 if number % 4 < 2 else 8):
                running = runs(f"r{number}-{one}", f"q{number:03}", 1)
                engine.observe(events.WorkloadSet(running), 1.0)
        heads = [number for number in range(queues) if number % 4 >= 2]
        for number in heads:
            waits(engine, f"w{number}", f"q{number:03}", 1)
        plan, deciding, _ = decided(engine)
        assert len(plan.preemptions) == len(heads)
        calls.append(deciding / len(heads))
    assert calls[2] <= 1.1 * calls[1]
