"""Single changes of the world, each with its text and its application to a copy."""

from __future__ import annotations

from typing import Any, Protocol

import attrs

from kueuelib.api import kueue
from kueuelib.api.meta import ObjectKey
from kueuelib.api.quantity import amount_of, format_amount, quantity_of
from kueuelib.api.quotas import ResourceQuota
from kueuelib.api.struct import frozen
from kueuelib.scheduler.explain.places import Place
from kueuelib.scheduler.explain.world import World

NOMINAL = "nominalQuota"
BORROWING = "borrowingLimit"
LENDING = "lendingLimit"
_FIELDS: dict[str, str] = {
    NOMINAL: "nominal_quota",
    BORROWING: "borrowing_limit",
    LENDING: "lending_limit",
}


class Change(Protocol):
    """A possible change."""

    @property
    def kind(self) -> str:
        """The kind of change, as one word for programs."""

    @property
    def subject(self) -> str:
        """The object to be changed, as kind and name."""

    @property
    def text(self) -> str:
        """What to do, for people."""

    def apply(self, world: World) -> World:
        """The world with the change."""


class Whole:
    """A change without a size."""


@frozen
class More:
    """More of one resource.

    Attributes:
        resource: the resource.
        before: the present amount.
        by: how much more, above zero.
    """

    resource: str
    before: int
    by: int

    @property
    def text(self) -> str:
        """Resource, difference and the new amount."""
        by = format_amount(self.resource, self.by)
        return f"{self.resource} by {by} (to {format_amount(self.resource, self.before + self.by)})"


@frozen
class RaiseQuota:
    """More quota in one flavor of a ClusterQueue or Cohort.

    Attributes:
        place: the ClusterQueue or Cohort.
        flavor: the flavor.
        field: `nominalQuota`, `borrowingLimit` or `lendingLimit`.
        amounts: the increase of each resource; they belong together.
    """

    place: Place
    flavor: str
    field: str
    amounts: tuple[More, ...]

    kind = "quota"

    @property
    def subject(self) -> str:
        """The ClusterQueue or Cohort."""
        return str(self.place)

    @property
    def text(self) -> str:
        """What to raise."""
        parts = " and ".join(more.text for more in self.amounts)
        return f"raise {self.field} of flavor {self.flavor}: {parts}"

    def apply(self, world: World) -> World:
        """The world with that quota."""
        groups = tuple(
            attrs.evolve(
                group,
                flavors=tuple(
                    attrs.evolve(flavor, resources=tuple(map(self._raised, flavor.resources)))
                    if flavor.name == self.flavor
                    else flavor
                    for flavor in group.flavors
                ),
            )
            for group in self.place.spec(world).resource_groups
        )
        return self.place.changed(world, resource_groups=groups)

    def _raised(self, quota: ResourceQuota) -> ResourceQuota:
        for more in self.amounts:
            if more.resource == quota.name:
                amount = quantity_of(quota.name, more.before + more.by)
                changed: dict[str, Any] = {_FIELDS[self.field]: amount}
                return attrs.evolve(quota, **changed)
        return quota


def amount_in(quota: ResourceQuota, field: str) -> int | None:
    """The amount of a field of a quota; None if the field is absent."""
    value = getattr(quota, _FIELDS[field])
    return None if value is None else amount_of(quota.name, value)


@frozen
class Ends(Whole):
    """A workload that holds quota finishes."""

    key: ObjectKey

    kind = "workload-ends"

    @property
    def subject(self) -> str:
        """The workload."""
        return f"Workload {self.key}"

    @property
    def text(self) -> str:
        """What to do."""
        return f"Workload {self.key} finishes or is deleted"

    def apply(self, world: World) -> World:
        """The world without it."""
        return world.without_workloads(self.key)


@frozen
class Withdraws(Whole):
    """Another waiting workload is withdrawn."""

    key: ObjectKey

    kind = "workload-withdrawn"

    @property
    def subject(self) -> str:
        """The workload."""
        return f"Workload {self.key}"

    @property
    def text(self) -> str:
        """What to do."""
        return f"Workload {self.key}, which waits too, is deleted or deactivated"

    def apply(self, world: World) -> World:
        """The world without it."""
        return world.without_workloads(self.key)


@frozen
class SetPolicy(Whole):
    """Another policy of a ClusterQueue.

    Attributes:
        cluster_queue: the ClusterQueue.
        path: the field below `spec`, spelled as in YAML.
        before: its present value.
        to: its new value.
    """

    cluster_queue: str
    path: str
    before: str
    to: str

    kind = "policy"

    @property
    def subject(self) -> str:
        """The ClusterQueue."""
        return f"ClusterQueue {self.cluster_queue}"

    @property
    def text(self) -> str:
        """What to set."""
        return f"set spec.{self.path}: {self.to} instead of {self.before}"

    def apply(self, world: World) -> World:
        """The world with that policy."""
        queue = world.cluster_queues[self.cluster_queue]
        spec = queue.spec
        match self.path:
            case "queueingStrategy":
                spec = attrs.evolve(spec, queueing_strategy=self.to)
            case "stopPolicy":
                spec = attrs.evolve(spec, stop_policy=self.to)
            case "preemption.withinClusterQueue":
                policy = attrs.evolve(spec.preemption, within_cluster_queue=self.to)
                spec = attrs.evolve(spec, preemption=policy)
            case "preemption.reclaimWithinCohort":
                policy = attrs.evolve(spec.preemption, reclaim_within_cohort=self.to)
                spec = attrs.evolve(spec, preemption=policy)
            case "preemption.borrowWithinCohort.policy":
                borrow = attrs.evolve(spec.preemption.borrow_within_cohort, policy=self.to)
                policy = attrs.evolve(spec.preemption, borrow_within_cohort=borrow)
                spec = attrs.evolve(spec, preemption=policy)
            case "flavorFungibility.whenCanPreempt":
                fungible = attrs.evolve(spec.flavor_fungibility, when_can_preempt=self.to)
                spec = attrs.evolve(spec, flavor_fungibility=fungible)
            case _:
                raise ValueError(self.path)
        return world.with_cluster_queue(attrs.evolve(queue, spec=spec))


@frozen
class RaiseThreshold:
    """A borrower may preempt workloads of higher priorities than before.

    Attributes:
        cluster_queue: the ClusterQueue of the borrower.
        before: the present threshold.
        to: the new one, higher.
    """

    cluster_queue: str
    before: int
    to: int

    kind = "policy"

    @property
    def subject(self) -> str:
        """The ClusterQueue."""
        return f"ClusterQueue {self.cluster_queue}"

    @property
    def text(self) -> str:
        """What to set."""
        path = "spec.preemption.borrowWithinCohort.maxPriorityThreshold"
        return f"set {path}: {self.to} instead of {self.before}"

    def apply(self, world: World) -> World:
        """The world with that threshold."""
        queue = world.cluster_queues[self.cluster_queue]
        preemption = queue.spec.preemption
        borrow = attrs.evolve(preemption.borrow_within_cohort, max_priority_threshold=self.to)
        policy = attrs.evolve(preemption, borrow_within_cohort=borrow)
        return world.with_cluster_queue(
            attrs.evolve(queue, spec=attrs.evolve(queue.spec, preemption=policy))
        )


@frozen
class StartLocalQueue(Whole):
    """A stopped LocalQueue is started."""

    key: ObjectKey
    before: str

    kind = "policy"

    @property
    def subject(self) -> str:
        """The LocalQueue."""
        return f"LocalQueue {self.key}"

    @property
    def text(self) -> str:
        """What to set."""
        return f"set spec.stopPolicy: {kueue.NONE} instead of {self.before}"

    def apply(self, world: World) -> World:
        """The world with it started."""
        local_queue = world.local_queues[self.key]
        spec = attrs.evolve(local_queue.spec, stop_policy=kueue.NONE)
        return world.with_local_queue(attrs.evolve(local_queue, spec=spec))
