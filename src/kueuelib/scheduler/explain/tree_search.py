"""Possible changes in the tree of cohorts of a ClusterQueue."""

from __future__ import annotations

from kueuelib.api.kueue import ClusterQueue
from kueuelib.api.quotas import ONE
from kueuelib.scheduler.explain.places import CLUSTER_QUEUE, COHORT, Place
from kueuelib.scheduler.explain.tree_changes import SetParent
from kueuelib.scheduler.explain.world import World


class TreeSearch:
    """The candidates, in a fixed order.

    Args:
        world: the facts; not changed.
        queue: the ClusterQueue.
    """

    def __init__(self, world: World, queue: ClusterQueue) -> None:
        self._world = world
        self._queue = queue
        above = world.above(queue.spec.cohort_name)
        self._places = [
            Place(CLUSTER_QUEUE, queue.name),
            *(Place(COHORT, name) for name in above if name in world.cohorts),
        ]

    def has_cohorts(self) -> bool:
        """Whether its tree has a Cohort with an object."""
        return any(
            name in self._world.cohorts for name in self._world.cohorts_of([self._queue.name])
        )

    def weighted(self) -> list[tuple[Place, int]]:
        """The places whose weights count for it, from the ClusterQueue up, with weights in 10^-9.

        None if shares do not decide; a root has no share.
        """
        if self._world.settings.fair_sharing is None:
            return []
        weights = []
        for place in self._places:
            if place.parent(self._world):
                sharing = place.spec(self._world).fair_sharing
                weights.append((place, (ONE if sharing is None else sharing.weight).nanos))
        return weights

    def cuts(self) -> list[SetParent]:
        """The places where a cycle of parents could be opened."""
        cycle = self._world.cycle_above(self._queue.spec.cohort_name)
        places = (Place(COHORT, name) for name in cycle)
        return [self._leaves(place) for place in places if self._may_leave(place)]

    def moves(self) -> list[SetParent]:
        """Other parents in its tree for it or for a Cohort above it, without cycles, beginning with
        no parent; `cuts` excepted. What another tree owns is not its own to take.
        """
        tree = self._world.cohorts_of([self._queue.name])
        cohorts = {name: self._world.above(name) for name in tree}
        cuts = self.cuts()
        leaves = [self._leaves(place) for place in self._places if self._may_leave(place)]
        return [one for one in leaves if one not in cuts] + [
            SetParent(place, before, name)
            for place in self._places
            for before in (place.parent(self._world),)
            for name, above in cohorts.items()
            if name != before
            and not self._world.cycle_above(name)
            and not (place.kind == COHORT and place.name in above)
        ]

    def _leaves(self, place: Place) -> SetParent:
        return SetParent(place, place.parent(self._world), "")

    def _may_leave(self, place: Place) -> bool:
        """Whether a place may lose its parent: limits need a parent."""
        return bool(place.parent(self._world)) and not any(
            quota.borrowing_limit is not None or quota.lending_limit is not None
            for quota in place.quotas(self._world).values()
        )
