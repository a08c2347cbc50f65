"""Finds values of policies, and tolerations, that would help a workload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kueuelib.api import kueue
from kueuelib.api.core import Taint
from kueuelib.api.kueue import ClusterQueue, ClusterQueueSpec
from kueuelib.api.preemption_policies import (
    BORROW_WITHIN_COHORT,
    RECLAIM_WITHIN_COHORT,
    WITHIN_CLUSTER_QUEUE,
)
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.quota.queue_spec import queue_spec


def wider_policies(spec: ClusterQueueSpec) -> Iterator[tuple[str, str, Sequence[str]]]:
    """The path of each policy, its value, and the values that allow more, the nearest first."""
    policies = (
        (
            "preemption.withinClusterQueue",
            spec.preemption.within_cluster_queue,
            WITHIN_CLUSTER_QUEUE,
        ),
        (
            "preemption.reclaimWithinCohort",
            spec.preemption.reclaim_within_cohort,
            RECLAIM_WITHIN_COHORT,
        ),
        (
            "preemption.borrowWithinCohort.policy",
            spec.preemption.borrow_within_cohort.policy,
            BORROW_WITHIN_COHORT,
        ),
        (
            "flavorFungibility.whenCanPreempt",
            spec.flavor_fungibility.when_can_preempt,
            (kueue.MAY_STOP_SEARCH, kueue.TRY_NEXT_FLAVOR),
        ),
    )
    for path, before, scale in policies:
        at = scale.index(before) if before in scale else 0
        yield path, before, scale[at + 1 :]


def tolerable(world: World, queue: ClusterQueue | None) -> list[tuple[str, Taint]]:
    """The taints that keep pods off the flavors of a queue, each with its flavor."""
    if queue is None:
        return []
    return [
        (name, taint)
        for name in queue_spec(queue).flavors
        if name in world.flavors
        for taint in world.flavors[name].spec.node_taints
        if taint.effect in ("NoSchedule", "NoExecute")
    ]
