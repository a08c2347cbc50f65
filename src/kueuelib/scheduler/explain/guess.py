"""Guesses how much quota may be enough, from the arithmetic of the tree alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import attrs

from kueuelib.api.struct import frozen
from kueuelib.scheduler.explain.places import CLUSTER_QUEUE, Place
from kueuelib.scheduler.explain.sizes import bisect
from kueuelib.scheduler.explain.trial import Usage
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.quota.amounts import NO_LIMITS, FlavorResource, Limits
from kueuelib.scheduler.quota.node import cohort_key
from kueuelib.scheduler.quota.queue_spec import CohortQuotas, QueueSpec, cohort_spec, queue_spec

_Node = QueueSpec | CohortQuotas


class Tree:
    """The quota of everything that shares quota with one ClusterQueue.

    Args:
        world: the facts.
        queues: the names of the ClusterQueues that share quota.
    """

    def __init__(self, world: World, queues: frozenset[str]) -> None:
        self._nodes: dict[str, _Node] = {}
        self._above: dict[str, str] = {}
        for name in sorted(queues):
            queue = queue_spec(world.cluster_queues[name])
            self._nodes[name] = queue
            self._above[name] = cohort_key(queue.cohort) if queue.cohort else ""
        self.cohorts = world.cohorts_of(queues)
        for name in self.cohorts:
            declared = world.cohorts.get(name)
            cohort = CohortQuotas(name) if declared is None else cohort_spec(declared)
            self._nodes[cohort_key(name)] = cohort
            self._above[cohort_key(name)] = cohort_key(cohort.parent) if cohort.parent else ""
        self._upwards = sorted(self._nodes, key=lambda key: -len(self.path(key)))

    def path(self, key: str) -> list[str]:
        """The keys of a node and the cohorts above it; a cycle is followed once."""
        keys: list[str] = []
        while key and key not in keys:
            keys.append(key)
            key = self._above[key]
        return keys

    def carries(self, place: Place, field: str, pair: FlavorResource, usage: Usage) -> _Carries:
        """Whether some usage fits if a place gets more quota.

        Args:
            place: the ClusterQueue or Cohort to be raised.
            field: the field of `Limits` to be raised.
            pair: the flavor and resource.
            usage: by ClusterQueue.
        """
        key = place.name if place.kind == CLUSTER_QUEUE else cohort_key(place.name)
        path = self.path(key)
        lent: dict[str, int] = defaultdict(int)
        used: dict[str, int] = defaultdict(int)
        for name, amounts in usage.items():
            if name in self._nodes:
                used[name] = amounts.get(pair, 0)
        for each in self._upwards:
            above = self._above[each]
            if above and each not in path:
                limits = self._limits(each, pair, lent[each])
                lent[above] += limits.lendable
                used[above] += limits.beyond(used[each])
        steps = tuple((self._limits(each, pair, lent[each]), used[each]) for each in path)
        return _Carries(steps, field)

    def _limits(self, key: str, pair: FlavorResource, lent: int) -> Limits:
        own = self._nodes[key].limits.get(pair, NO_LIMITS)
        return attrs.evolve(own, nominal=own.nominal + lent)


@frozen
class _Carries:
    """Tests sizes.

    Attributes:
        steps: for the raised place and every cohort above it, quota and usage, without the usage
            from the step before.
        field: the field of `Limits` to be raised in the first step.
    """

    steps: tuple[tuple[Limits, int], ...]
    field: str

    def __call__(self, size: int) -> bool:
        lent = beyond = 0
        for number, (own, used) in enumerate(self.steps):
            limits = attrs.evolve(own, nominal=own.nominal + lent)
            if number == 0:
                limits = attrs.evolve(
                    limits, **{self.field: (getattr(limits, self.field) or 0) + size}
                )
            is_root = number == len(self.steps) - 1
            ceiling = limits.nominal if is_root else limits.ceiling
            if ceiling is not None and used + beyond > ceiling:
                return False
            lent, beyond = limits.lendable, limits.beyond(used + beyond)
        return True


@frozen(eq=False)
class Guess:
    """Guesses how much more quota would carry a usage.

    Attributes:
        tree: the quota as it is.
        place: the ClusterQueue or Cohort to be raised.
        flavor: the flavor.
        field: the field of `Limits` to be raised.
    """

    tree: Tree
    place: Place
    flavor: str
    field: str

    def __call__(
        self, resource: str, usage: Mapping[str, Mapping[FlavorResource, int]], most: int
    ) -> int:
        """The least amount that suffices, `most` if none below it does.

        Args:
            resource: the resource.
            usage: by ClusterQueue.
            most: a size that is known to suffice.
        """
        pair = FlavorResource(self.flavor, resource)
        return bisect(0, most, self.tree.carries(self.place, self.field, pair, usage))
