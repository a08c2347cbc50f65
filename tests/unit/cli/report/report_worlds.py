"""Facts for pages."""

from __future__ import annotations

from typing import Any

import attrs

from kueuelib.api.kueue import Workload
from kueuelib.app.explaining.gather import ClusterData
from kueuelib.app.overview.gathering import ListedFacts
from kueuelib.jobs.reconcile.priority import PriorityClasses
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.settings import DEFAULTS
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_cohort,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)

NOW = 1_000_000.0


def world(waiting: int = 3, running: int = 2) -> World:
    """Two ClusterQueues in a tree and one alone, with Workloads that wait, run and were evicted."""
    made = World().with_namespace("ns", {}).with_flavor(make_flavor("f"))
    made = made.with_cohort(make_cohort("company"))
    policy = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    for name, cohort in (("a", "company"), ("b", "company"), ("c", "")):
        queue = make_cluster_queue(name, {"f": {"cpu": 4}}, cohort=cohort, preemption=policy)
        made = made.with_cluster_queue(queue)
        made = made.with_local_queue(make_local_queue(name, name))
    for number in range(running):
        made = made.with_workload(runs(f"run-{number}", "a"))
    for number in range(waiting):
        made = made.with_workload(waits(f"wait-{number}", "ab"[number % 2], created=number))
    return made


def waits(name: str, to: str, cpu: int = 9, **fields: Any) -> Workload:
    return make_workload(name, to, {"cpu": cpu}, **fields)


def runs(name: str, to: str, cpu: int = 3) -> Workload:
    assigned = [make_assignment({"cpu": cpu}, "f")]
    conditions = [make_condition(kind, at=NOW - 60) for kind in ("QuotaReserved", "Admitted")]
    conditions.append({**make_condition("Evicted", False, "Preempted", NOW - 60), "message": "why"})
    status = {"admission": {"clusterQueue": to, "podSetAssignments": assigned}}
    return waits(name, to, cpu, conditions=conditions, status=status)


def facts(own_world: World | None = None, *notes: str) -> ListedFacts:
    cluster = ClusterData(own_world or world(), (), PriorityClasses({}, {}), notes)
    return ListedFacts(cluster, "", DEFAULTS, NOW)


def named(workload: Workload, name: str, namespace: str = "ns") -> Workload:
    """The same with a name that no API server would let in."""
    metadata = attrs.evolve(workload.metadata, name=name, namespace=namespace)
    return attrs.evolve(workload, metadata=metadata)
