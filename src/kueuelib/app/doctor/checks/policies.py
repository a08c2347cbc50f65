"""Policies of ClusterQueues that can never act."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.api.kueue import (
    MAY_STOP_SEARCH,
    NEVER,
    TRY_NEXT_FLAVOR,
    ClusterQueue,
)
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check
from kueuelib.app.doctor.snapshot import COHORTS, Snapshot
from kueuelib.scheduler.explain.places import CLUSTER_QUEUE, COHORT, Place
from kueuelib.scheduler.explain.world import World


@check("policy-idle", "ClusterQueue", COHORTS)
def idle(snapshot: Snapshot) -> Iterator[Finding]:
    """Policies that are set but cannot act in this cluster."""
    world = snapshot.world
    for name, queue in sorted(world.cluster_queues.items()):
        shares = snapshot.world.settings.fair_sharing is not None
        for field, why in _idle(world, queue, shares=shares):
            problem = f"spec.{field} never acts: {why}"
            fix = f"kubectl edit clusterqueue {name}"
            yield Finding(Severity.HINT, Subject("ClusterQueue", name), problem, fix)


def _idle(world: World, queue: ClusterQueue, *, shares: bool) -> Iterator[tuple[str, str]]:
    spec, preemption = queue.spec, queue.spec.preemption
    quotas = Place(CLUSTER_QUEUE, queue.name).quotas(world).values()
    others = world.scope_of(queue) - {queue.name}
    why = ""
    if not spec.cohort_name:
        why = "the ClusterQueue is in no cohort"
    elif not others:
        why = f"no other ClusterQueue is in the tree of cohort {spec.cohort_name}"
    if preemption.reclaim_within_cohort != NEVER:
        if why:
            yield "preemption.reclaimWithinCohort", why
        elif not shares and not _owns(world, queue):
            side = "nothing on its side of the tree owns quota that others could use"
            yield "preemption.reclaimWithinCohort", side
    if preemption.borrow_within_cohort.policy != NEVER:
        limited = bool(quotas) and all(
            one.borrowing_limit is not None and not one.borrowing_limit for one in quotas
        )
        if why:
            yield "preemption.borrowWithinCohort", why
        elif limited:
            yield "preemption.borrowWithinCohort", "every borrowingLimit is 0"
        elif shares:
            yield "preemption.borrowWithinCohort", "fair sharing is on, which ignores it"
    lends = [one for one in quotas if one.lending_limit is not None]
    if lends and why:
        yield "resourceGroups[].flavors[].resources[].lendingLimit", why
    several = any(len(group.flavors) > 1 for group in spec.resource_groups)
    if not several:
        fungibility = spec.flavor_fungibility
        if fungibility.when_can_borrow == TRY_NEXT_FLAVOR:
            yield "flavorFungibility.whenCanBorrow", "there is no next flavor to try"
        if fungibility.when_can_preempt == MAY_STOP_SEARCH:
            yield "flavorFungibility.whenCanPreempt", "there is no next flavor to leave out"


def _owns(world: World, queue: ClusterQueue) -> bool:
    """Whether quota is owned by a ClusterQueue or on its side of the tree.

    Its side is everything below the root's child that it is in. Quota of the root itself belongs to
    all sides alike.
    """
    above = world.above(queue.spec.cohort_name)
    side = {queue.name}, set[str]()
    if len(above) > 1:
        side = world.below(above[-2])
    places = [Place(CLUSTER_QUEUE, name) for name in side[0]]
    places += [Place(COHORT, name) for name in side[1] & world.cohorts.keys()]
    return any(one.nominal_quota for place in places for one in place.quotas(world).values())
