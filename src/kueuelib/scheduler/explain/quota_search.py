"""The smallest single change of quota that would admit a workload.

Sizes are searched where nobody else waits, which is fast, and then tried in the whole world; where
others get in the way there, the search is done again with them.
"""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.api.kueue import ClusterQueue
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.explain.changes import (
    BORROWING,
    LENDING,
    NOMINAL,
    More,
    RaiseQuota,
    amount_in,
    quotas_of,
)
from kueuelib.scheduler.explain.found import Found
from kueuelib.scheduler.explain.sizes import MOST, Sizes, grains_of, lowered
from kueuelib.scheduler.explain.trial import Trials
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.queue_spec import queue_spec


class QuotaSearch:
    """The changes of quota for one workload.

    Args:
        world: the facts; not changed.
        key: the workload.
        trials: in the whole world.
        alone: where nobody else waits.
    """

    def __init__(self, world: World, key: ObjectKey, trials: Trials, alone: Trials) -> None:
        self._world = world
        self._key = key
        self._trials = trials
        self._alone = alone
        self._grains = grains_of(trials.engine())

    def run(self, queue: ClusterQueue) -> Iterator[Found]:
        """All that were found, flavor by flavor.

        Args:
            queue: the ClusterQueue of the workload.
        """
        quotas = quotas_of(queue)
        others = sorted(self._world.scope_of(queue) - {queue.name})
        for flavor in queue_spec(queue).flavors:
            resources = [resource for name, resource in quotas if name == flavor]
            yield from self._raise(queue, flavor, NOMINAL, resources)
            if queue.spec.cohort_name:
                yield from self._raise(queue, flavor, BORROWING, resources)
            for name in others:
                other = self._world.cluster_queues[name]
                yield from self._raise(other, flavor, LENDING, resources)
                yield from self._raise(other, flavor, NOMINAL, resources)

    def _raise(
        self, queue: ClusterQueue, flavor: str, field: str, resources: list[str]
    ) -> Iterator[Found]:
        """Everything is raised as far as it goes, then one resource after the other lowered."""
        quotas = quotas_of(queue)
        before: Sizes = {}
        most: Sizes = {}
        for resource in resources:
            quota = quotas.get((flavor, resource))
            amount = None if quota is None else amount_in(quota, field)
            if quota is None or amount is None:
                continue
            nominal = amount_in(quota, NOMINAL) or 0
            limit = nominal - amount if field == LENDING else MOST
            if limit > 0:
                before[resource], most[resource] = amount, limit

        def change(sizes: Sizes) -> RaiseQuota:
            amounts = (More(name, before[name], size) for name, size in sizes.items() if size)
            return RaiseQuota(queue.name, flavor, field, tuple(amounts))

        def admits(sizes: Sizes) -> bool:
            return self._trials.with_change(change(sizes)).admits

        def admits_alone(sizes: Sizes) -> bool:
            return self._alone.with_change(change(sizes)).admits

        def is_least(by: Sizes) -> bool:
            return admits(by) and not any(
                admits({**by, name: size - 1}) for name, size in by.items() if size
            )

        if not most or not admits_alone(most):
            return
        by = lowered(most, self._grains, admits_alone)
        if not (any(by.values()) and is_least(by)):
            if not admits(most):
                return
            by = lowered(most, self._grains, admits)
            if not (any(by.values()) and is_least(by)):
                return
        yield Found(change(by), self._trials.with_change(change(by)))
