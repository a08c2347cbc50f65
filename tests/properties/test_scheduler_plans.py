"""Laws of one plan: it depends on nothing but its input, and a snapshot forgets what it tried."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kueuelib.api.preemption_policies import RECLAIM_WITHIN_COHORT
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.decide.nomination import search
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.pending.workload_info import PodSetNeeds
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.snapshot import Snapshot
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)

QUEUES = ("a", "b", "c", "d")
TABLES = sorted((Path(__file__).parents[1] / "scenarios").glob("*.yaml"))

amounts = st.integers(0, 5)


@st.composite
def quotas(draw: st.DrawFn, lone: bool) -> Any:
    nominal = draw(amounts)
    found = {"nominal": nominal}
    if not lone and draw(st.booleans()):
        found["borrowing"] = draw(amounts)
    if not lone and draw(st.booleans()):
        found["lending"] = draw(st.integers(0, nominal))
    return found


@st.composite
def worlds(draw: st.DrawFn) -> list[events.Event]:
    """Facts in an order in which each makes sense."""
    found: list[events.Event] = [events.NamespaceSet("ns", {})]
    found += [events.FlavorSet(make_flavor(name)) for name in ("one", "two")]
    for name in QUEUES:
        cohort = draw(st.sampled_from(["", "x", "y"]))
        flavors = draw(st.permutations(["one", "two"]))
        group = {flavor: {"gpu": draw(quotas(not cohort))} for flavor in flavors}
        borrow = draw(st.sampled_from(["MayStopSearch", "TryNextFlavor"]))
        strategy = draw(st.sampled_from(["StrictFIFO", "BestEffortFIFO"]))
        queue = make_cluster_queue(
            name,
            group,
            cohort=cohort,
            queueingStrategy=strategy,
            flavorFungibility={"whenCanBorrow": borrow},
            preemption={
                "withinClusterQueue": draw(st.sampled_from(["Never", "LowerPriority"])),
                "reclaimWithinCohort": draw(st.sampled_from(RECLAIM_WITHIN_COHORT)),
            },
        )
        found.append(events.ClusterQueueSet(queue))
        found.append(events.LocalQueueSet(make_local_queue(name, name)))
    for number in range(draw(st.integers(0, 12))):
        name, queue = f"w{number}", draw(st.sampled_from(QUEUES))
        gpu = draw(amounts)
        status: dict[str, Any] = {}
        conditions = []
        if draw(st.integers(0, 3)) == 0:
            flavor = draw(st.sampled_from(["one", "two"]))
            assignment = make_assignment({"gpu": gpu}, flavor)
            status = {"admission": {"clusterQueue": queue, "podSetAssignments": [assignment]}}
            conditions = [make_condition("QuotaReserved")]
        workload = make_workload(
            name,
            queue,
            {"gpu": gpu},
            priority=draw(st.integers(0, 1)),
            created=draw(st.integers(0, 1)),
            conditions=conditions,
            status=status,
        )
        found.append(events.WorkloadSet(workload))
    return found


def history(facts: list[events.Event]) -> list[str]:
    """Every plan until nothing is left to decide, as text."""
    engine = Engine()
    engine.observe_all(facts, 0)
    plans = []
    for _ in range(100):
        found = engine.next_cycle(0)
        if found is None:
            return plans
        plan = decide(found, 0)
        assert repr(decide(found, 0)) == repr(plan)
        plans.append(repr(plan))
        engine.settle(plan, 0)
    raise AssertionError("the engine does not come to rest")


@given(facts=worlds(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_plans_do_not_depend_on_the_order_of_the_facts(
    facts: list[events.Event], data: st.DataObject
) -> None:
    assert history(data.draw(st.permutations(facts))) == history(facts)


@given(facts=worlds(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_snapshot_forgets_what_is_undone(facts: list[events.Event], data: st.DataObject) -> None:
    engine = Engine()
    engine.observe_all(facts, 0)
    snapshot = Snapshot(engine.cache.freeze(QUEUES))
    queues = [queue for queue in map(snapshot.queue, QUEUES) if queue is not None]
    pairs = [FlavorResource(flavor, "gpu") for flavor in ("one", "two", "three")]

    def view() -> list[tuple[int, int, int]]:
        return [
            (
                snapshot.usage(queue, pair),
                snapshot.available(queue, pair),
                snapshot.capacity(queue, pair),
            )
            for queue in queues
            for pair in pairs
        ]

    states = [(snapshot.mark(), view())]
    changes = st.tuples(
        st.sampled_from([snapshot.add, snapshot.remove]),
        st.sampled_from(queues),
        st.dictionaries(st.sampled_from(pairs), amounts),
    )
    for change, queue, used in data.draw(st.lists(changes, max_size=8)):
        change(queue, used)
        states.append((snapshot.mark(), view()))
    for mark, before in reversed(states):
        snapshot.undo(mark)
        assert view() == before


@given(facts=worlds(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_added_usage_counts_like_usage_that_was_there(
    facts: list[events.Event], data: st.DataObject
) -> None:
    """An overlay equals a snapshot of a cache that holds the same workloads."""
    running = [
        fact
        for fact in facts
        if isinstance(fact, events.WorkloadSet) and fact.workload.status.admission is not None
    ]
    others = [fact for fact in facts if fact not in running]
    full, empty = Engine(), Engine()
    full.observe_all(facts, 0)
    empty.observe_all(others, 0)
    overlay = Snapshot(empty.cache.freeze(QUEUES))
    for holder in data.draw(st.permutations(sorted(full.cache.holders.items()))):
        queue = overlay.queue(holder[1].cluster_queue)
        assert queue is not None
        overlay.add(queue, holder[1].usage)
    rebuilt = Snapshot(full.cache.freeze(QUEUES))
    for name in QUEUES:
        mine, other = overlay.queue(name), rebuilt.queue(name)
        assert mine is not None
        assert other is not None
        for flavor in ("one", "two"):
            pair = FlavorResource(flavor, "gpu")
            assert overlay.usage(mine, pair) == rebuilt.usage(other, pair)
            assert overlay.available(mine, pair) == rebuilt.available(other, pair)


@given(
    counts=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4),
    quota=st.integers(0, 30),
)
def test_partial_admission_finds_the_smallest_reduction(
    counts: list[tuple[int, int]], quota: int
) -> None:
    pod_sets = tuple(
        PodSetNeeds(f"p{index}", count, count - min(count, spare), {}, None)  # type: ignore[arg-type]
        for index, (count, spare) in enumerate(counts)
    )
    slack = [min(spare, count) for count, spare in counts]
    spread = sum(slack)
    if not spread:
        return
    tried = [
        tuple(count - spare * k // spread for (count, _), spare in zip(counts, slack, strict=True))
        for k in range(spread + 1)
    ]
    want = next((found for found in tried if sum(found) <= quota), None)
    assert search(pod_sets, lambda found: found if sum(found) <= quota else None) == want


@pytest.mark.parametrize("seed", ["1", "4711"])
def test_plans_do_not_depend_on_the_hash_seed(seed: str) -> None:
    scenarios = [
        {**scenario, "cycles": 3}
        for table in TABLES
        for scenario in yaml.load(table.read_text(), yaml.CSafeLoader)
    ]
    program = (
        "import json, sys\n"
        "from kueuelib.testing.scenarios import run\n"
        "print(json.dumps([run(one) for one in json.load(sys.stdin)]))\n"
    )

    def output(hash_seed: str) -> bytes:
        import json

        return subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(scenarios).encode(),
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout

    found = output("0")
    assert len(found) > 1000
    assert output(seed) == found
