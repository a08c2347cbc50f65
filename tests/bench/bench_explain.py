"""`explain` in worlds of one cohort: processor time of an answer, and what its trials cost."""

from __future__ import annotations

import time

import attrs
import pytest
from figures import show

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.explain.answer import explain
from kueuelib.scheduler.explain.trial import Trials
from kueuelib.scheduler.explain.world import World
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)

QUEUES = 10
FLAVORS = ("one", "two")
PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def crowd(holders: int, waiting: int) -> tuple[World, ObjectKey]:
    """Ten full ClusterQueues with two flavors, and the last one that waits there."""
    base = World().with_namespace("ns", {})
    for flavor in FLAVORS:
        base = base.with_flavor(make_flavor(flavor))
    workloads: list[Workload] = []
    used = {(f"q{n}", flavor): 0 for n in range(QUEUES) for flavor in FLAVORS}
    for number in range(holders):
        name, flavor, cpu = f"q{number % QUEUES}", FLAVORS[number // QUEUES % 2], 1 + number % 8
        used[name, flavor] += cpu
        admission = {
            "clusterQueue": name,
            "podSetAssignments": [make_assignment({"cpu": cpu}, flavor)],
        }
        held = [make_condition("QuotaReserved"), make_condition("Admitted")]
        workloads.append(
            make_workload(
                f"h{number}",
                name,
                {"cpu": cpu},
                priority=number % 4,
                conditions=held,
                status={"admission": admission},
            )
        )
    for number in range(QUEUES):
        name = f"q{number}"
        quotas = {flavor: {"cpu": used[name, flavor]} for flavor in FLAVORS}
        queue = make_cluster_queue(name, quotas, cohort="c", preemption=PREEMPTION)
        base = base.with_cluster_queue(queue).with_local_queue(make_local_queue(name, name))
    workloads += [
        make_workload(f"w{n}", f"q{n % QUEUES}", {"cpu": 1 + n % 20}, count=4, created=2000 + n)
        for n in range(waiting)
    ]
    world = attrs.evolve(base, workloads={one.key: one for one in workloads})
    return world, ObjectKey("ns", f"w{waiting - 1}")


@pytest.mark.parametrize(("holders", "waiting"), [(10, 20), (100, 200), (1000, 2000)])
def test_an_answer_about_the_last_of_a_cohort(holders: int, waiting: int) -> None:
    world, key = crowd(holders, waiting)
    started = time.process_time()
    trials = Trials(world, key, 5000.0)
    told = time.process_time()
    trials.unchanged()
    base = time.process_time()
    answer = explain(world, key, 5000.0)
    ended = time.process_time()
    assert len(answer.ahead) == waiting // QUEUES - 1
    assert answer.changes
    show(
        f"explain, {holders:,} hold quota and {waiting:,} wait",
        [
            ("an engine is told", f"{told - started:.2f} s"),
            ("what happens unchanged", f"{base - told:.2f} s"),
            ("the whole answer", f"{ended - base:.2f} s"),
            ("changes found", str(len(answer.changes))),
            ("kinds tried to the end", str(len(answer.tried))),
            ("kinds cut short", str(len(answer.limits))),
        ],
    )
