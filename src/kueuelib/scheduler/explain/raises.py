"""Where a workload might get more quota, each with the largest raise that makes sense."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.api.kueue import ClusterQueue
from kueuelib.scheduler.explain.changes import (
    BORROWING,
    LENDING,
    NOMINAL,
    More,
    RaiseQuota,
    amount_in,
)
from kueuelib.scheduler.explain.places import CLUSTER_QUEUE, COHORT, Place
from kueuelib.scheduler.explain.sizes import MOST
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.quota.queue_spec import queue_spec

LIMITS = {LENDING: "lending", NOMINAL: "nominal", BORROWING: "borrowing"}
"""The fields of quotas, each with the field of `Limits` that it becomes."""


def own_raises(world: World, queue: ClusterQueue) -> Iterator[RaiseQuota]:
    """Quotas of a ClusterQueue, flavor by flavor.

    Args:
        world: the facts.
        queue: the ClusterQueue of the workload.
    """
    place = Place(CLUSTER_QUEUE, queue.name)
    for flavor in queue_spec(queue).flavors:
        for field in LIMITS:
            yield from _raise(world, queue, place, flavor, field)


def cohort_raises(world: World, queue: ClusterQueue) -> Iterator[RaiseQuota]:
    """Quotas and limits of the Cohorts of its tree, those above it first.

    Args:
        world: the facts.
        queue: the ClusterQueue of the workload.
    """
    above = world.above(queue.spec.cohort_name)
    others = [name for name in world.cohorts_of(world.scope_of(queue)) if name not in above]
    for names in (above, others):
        for flavor in queue_spec(queue).flavors:
            for name in names:
                for field in LIMITS if name in world.cohorts else ():
                    yield from _raise(world, queue, Place(COHORT, name), flavor, field)


def other_raises(world: World, queue: ClusterQueue) -> Iterator[RaiseQuota]:
    """Quotas of the other ClusterQueues of its tree, flavor by flavor.

    Args:
        world: the facts.
        queue: the ClusterQueue of the workload.
    """
    others = sorted(world.scope_of(queue) - {queue.name})
    for field in LIMITS:
        for flavor in queue_spec(queue).flavors:
            for name in others:
                yield from _raise(world, queue, Place(CLUSTER_QUEUE, name), flavor, field)


def _raise(
    world: World, queue: ClusterQueue, place: Place, flavor: str, field: str
) -> Iterator[RaiseQuota]:
    """The raise of everything that the ClusterQueue offers, as far as possible; none if nothing
    can be raised.
    """
    quotas = place.quotas(world)
    amounts = []
    for name, resource in Place(CLUSTER_QUEUE, queue.name).quotas(world):
        quota = quotas.get((flavor, resource))
        amount = None if quota is None or name != flavor else amount_in(quota, field)
        if quota is None or amount is None:
            continue
        # A Cohort may lend more than its own: what its members lend it.
        full = field == LENDING and place.kind == CLUSTER_QUEUE
        limit = (amount_in(quota, NOMINAL) or 0) - amount if full else MOST
        if limit > 0:
            amounts.append(More(resource, amount, limit))
    if amounts:
        yield RaiseQuota(place, flavor, field, tuple(amounts))
