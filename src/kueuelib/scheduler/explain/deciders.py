"""Finds the admission checks that still decide once a workload has quota (KEP-993)."""

from __future__ import annotations

from kueuelib.api.kueue import CHECK_READY, Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.explain.trial import TrialOutcome, Verdict
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.quota.check_rules import entries_of
from kueuelib.scheduler.quota.queue_spec import queue_spec


def deciders_of(world: World, key: ObjectKey, outcome: TrialOutcome) -> tuple[str, ...]:
    """The checks that decide after quota is reserved, in the order of the ClusterQueue.

    Before victims have left, the flavors of the workload are unknown; then all checks of its
    ClusterQueue count.

    Args:
        world: the facts of the outcome.
        key: the workload.
        outcome: its outcome.
    """
    workload = world.workloads[key]
    if outcome.admit is not None:
        return _not_ready(workload, () if outcome.admit.admitted else outcome.admit.required_checks)
    queue = world.cluster_queue_of(workload)
    if outcome.verdict is not Verdict.PREEMPTS or queue is None:
        return ()
    spec = queue_spec(queue)
    return _not_ready(workload, spec.checks_for(frozenset(spec.flavors)))


def _not_ready(workload: Workload, required: tuple[str, ...]) -> tuple[str, ...]:
    ready = {entry.name for entry in entries_of(workload) if entry.state == CHECK_READY}
    return tuple(name for name in required if name not in ready)
