"""ClusterQueues and Cohorts as places in a tree, with their common properties."""

from __future__ import annotations

from typing import Any, Final

import attrs

from kueuelib.api.kueue import ClusterQueueSpec, CohortSpec, ResourceQuota
from kueuelib.api.struct import frozen
from kueuelib.scheduler.explain.world import World

CLUSTER_QUEUE: Final = "ClusterQueue"
COHORT: Final = "Cohort"


@frozen
class Place:
    """A ClusterQueue or a Cohort that exists as an object.

    Attributes:
        kind: `ClusterQueue` or `Cohort`.
        name: its name.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def parent_field(self) -> str:
        """The field of its spec that names the cohort above, spelled as in YAML."""
        return "cohortName" if self.kind == CLUSTER_QUEUE else "parentName"

    def spec(self, world: World) -> ClusterQueueSpec | CohortSpec:
        """Its spec."""
        if self.kind == CLUSTER_QUEUE:
            return world.cluster_queues[self.name].spec
        return world.cohorts[self.name].spec

    def parent(self, world: World) -> str:
        """The cohort above, empty for none."""
        spec = self.spec(world)
        return spec.cohort_name if isinstance(spec, ClusterQueueSpec) else spec.parent_name

    def quotas(self, world: World) -> dict[tuple[str, str], ResourceQuota]:
        """Its quotas by flavor and resource."""
        return {
            (flavor.name, quota.name): quota
            for group in self.spec(world).resource_groups
            for flavor in group.flavors
            for quota in flavor.resources
        }

    def below(self, world: World, parent: str) -> World:
        """The world in which it is below another cohort, or below none."""
        field = "cohort_name" if self.kind == CLUSTER_QUEUE else "parent_name"
        return self.changed(world, **{field: parent})

    def changed(self, world: World, **fields: Any) -> World:
        """The world in which fields of its spec are different."""
        if self.kind == CLUSTER_QUEUE:
            queue = world.cluster_queues[self.name]
            spec = attrs.evolve(queue.spec, **fields)
            return world.with_cluster_queue(attrs.evolve(queue, spec=spec))
        cohort = world.cohorts[self.name]
        return world.with_cohort(attrs.evolve(cohort, spec=attrs.evolve(cohort.spec, **fields)))
