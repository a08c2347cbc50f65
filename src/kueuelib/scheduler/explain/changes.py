"""Single changes of the world, each with its text and its application to a copy."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Protocol

import attrs

from kueuelib.api import kueue, names
from kueuelib.api.codec import decode
from kueuelib.api.kinds import KUEUE, V1BETA2
from kueuelib.api.kueue import AdmissionCheck, FairSharing, LocalQueue, ResourceFlavor
from kueuelib.api.meta import Condition, ObjectKey
from kueuelib.api.quantity import Quantity, amount_of, format_amount, quantity_of
from kueuelib.api.queues import ResourceQuota
from kueuelib.api.struct import frozen
from kueuelib.scheduler.explain.world import QuotaOwner, World

NOMINAL = "nominalQuota"
BORROWING = "borrowingLimit"
LENDING = "lendingLimit"
_FIELDS: dict[str, str] = {
    NOMINAL: "nominal_quota",
    BORROWING: "borrowing_limit",
    LENDING: "lending_limit",
}


class CandidateChange(Protocol):
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


class UnsizedChange:
    """A change without a size."""


@frozen
class OfWorkload:
    """A change of a workload."""

    key: ObjectKey

    @property
    def subject(self) -> str:
        """The workload."""
        return f"Workload {self.key}"


@frozen
class OfClusterQueue:
    """A change of a ClusterQueue."""

    cluster_queue: str

    @property
    def subject(self) -> str:
        """The ClusterQueue."""
        return f"ClusterQueue {self.cluster_queue}"


@frozen
class OfLocalQueue:
    """A change of a LocalQueue."""

    key: ObjectKey

    @property
    def subject(self) -> str:
        """The LocalQueue."""
        return f"LocalQueue {self.key}"


@frozen
class OfPlace:
    """A change of a ClusterQueue or Cohort."""

    place: QuotaOwner

    @property
    def subject(self) -> str:
        """The ClusterQueue or Cohort."""
        return str(self.place)


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
class RaiseQuota(OfPlace):
    """More quota in one flavor of a ClusterQueue or Cohort.

    Attributes:
        flavor: the flavor.
        field: `nominalQuota`, `borrowingLimit` or `lendingLimit`.
        amounts: the increase of each resource; they belong together.
    """

    flavor: str
    field: str
    amounts: tuple[More, ...]

    kind = "quota"

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
class Ends(OfWorkload, UnsizedChange):
    """A workload that holds quota finishes."""

    kind = "workload-ends"

    @property
    def text(self) -> str:
        """What to do."""
        return f"Workload {self.key} finishes or is deleted"

    def apply(self, world: World) -> World:
        """The world without it."""
        return world.without_workloads(self.key)


@frozen
class Withdraws(OfWorkload, UnsizedChange):
    """Another waiting workload is withdrawn."""

    kind = "workload-withdrawn"

    @property
    def text(self) -> str:
        """What to do."""
        return f"Workload {self.key}, which waits too, is deleted or deactivated"

    def apply(self, world: World) -> World:
        """The world without it."""
        return world.without_workloads(self.key)


@frozen
class SetPolicy(OfClusterQueue, UnsizedChange):
    """Another policy of a ClusterQueue.

    Attributes:
        path: the field below `spec`, spelled as in YAML.
        before: its present value.
        to: its new value.
    """

    path: str
    before: str
    to: str

    kind = "policy"

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
class RaiseThreshold(OfClusterQueue):
    """A borrower may preempt workloads of higher priorities than before.

    Attributes:
        before: the present threshold.
        to: the new one, higher.
    """

    before: int
    to: int

    kind = "policy"

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
class StartLocalQueue(OfLocalQueue, UnsizedChange):
    """A stopped LocalQueue is started."""

    before: str

    kind = "policy"

    @property
    def text(self) -> str:
        """What to set."""
        return f"set spec.stopPolicy: {kueue.NONE} instead of {self.before}"

    def apply(self, world: World) -> World:
        """The world with it started."""
        local_queue = world.local_queues[self.key]
        spec = attrs.evolve(local_queue.spec, stop_policy=kueue.NONE)
        return world.with_local_queue(attrs.evolve(local_queue, spec=spec))


# ---- changes that create a missing object or label -----------------------------------------------


@frozen
class CreateFlavor(UnsizedChange):
    """Create a missing ResourceFlavor, for any nodes."""

    name: str

    kind = "create"

    @property
    def subject(self) -> str:
        """The flavor."""
        return f"ResourceFlavor {self.name}"

    @property
    def text(self) -> str:
        """What to do."""
        return f"create ResourceFlavor {self.name}"

    def apply(self, world: World) -> World:
        """The world with it."""
        raw = {"apiVersion": f"{KUEUE}/{V1BETA2}", "kind": "ResourceFlavor"}
        return world.with_flavor(decode(ResourceFlavor, {**raw, "metadata": {"name": self.name}}))


@frozen
class ServeCheck(UnsizedChange):
    """Run the controller of an AdmissionCheck, and create the check if it is missing.

    Attributes:
        name: the check.
        exists: whether it exists, and only its controller is missing.
    """

    name: str
    exists: bool

    kind = "create"

    @property
    def subject(self) -> str:
        """The check."""
        return f"AdmissionCheck {self.name}"

    @property
    def text(self) -> str:
        """What to do."""
        if self.exists:
            return f"run the controller of AdmissionCheck {self.name}, so that it becomes Active"
        return f"create AdmissionCheck {self.name}, and run its controller"

    def apply(self, world: World) -> World:
        """The world with it."""
        raw = {"apiVersion": f"{KUEUE}/{V1BETA2}", "kind": "AdmissionCheck"}
        check = world.checks.get(self.name)
        if check is None:
            check = decode(AdmissionCheck, {**raw, "metadata": {"name": self.name}, "spec": {}})
        others = tuple(one for one in check.status.conditions if one.type != names.ACTIVE)
        active = Condition(type=names.ACTIVE, status="True", reason="Active", message="")
        status = attrs.evolve(check.status, conditions=(*others, active))
        return world.with_check(attrs.evolve(check, status=status))


@frozen
class CreateLocalQueue(OfLocalQueue, UnsizedChange):
    """Create a missing LocalQueue."""

    cluster_queue: str

    kind = "create"

    @property
    def text(self) -> str:
        """What to do."""
        return f"create LocalQueue {self.key} with spec.clusterQueue: {self.cluster_queue}"

    def apply(self, world: World) -> World:
        """The world with it."""
        raw = {
            "apiVersion": f"{KUEUE}/{V1BETA2}",
            "kind": "LocalQueue",
            "metadata": {"name": self.key.name, "namespace": self.key.namespace},
            "spec": {"clusterQueue": self.cluster_queue},
        }
        return world.with_local_queue(decode(LocalQueue, raw))


@frozen
class LabelNamespace(UnsizedChange):
    """Add the labels that a ClusterQueue requires to the namespace."""

    namespace: str
    labels: tuple[tuple[str, str], ...]

    kind = "namespace"

    @property
    def subject(self) -> str:
        """The namespace."""
        return f"Namespace {self.namespace}"

    @property
    def text(self) -> str:
        """What to do."""
        wanted = ", ".join(f"{key}={value}" for key, value in self.labels)
        return f"label namespace {self.namespace} with {wanted}"

    def apply(self, world: World) -> World:
        """The world with the labels."""
        before = world.namespaces.get(self.namespace, {})
        return world.with_namespace(self.namespace, {**before, **dict(self.labels)})


# ---- changes of a tree of cohorts: weights and parents -------------------------------------------

MOST_WEIGHT = 2**20
"""The maximum number of steps by which a weight is raised."""
_ONE = Quantity.of(1).nanos


@frozen
class RaiseWeight(OfPlace):
    """A larger weight, in steps of the last decimal place of the present one.

    Attributes:
        before: its present weight, in units of 10^-9.
        steps: how many steps more, above zero.
    """

    before: int
    steps: int

    kind = "weight"

    @property
    def text(self) -> str:
        """What to set."""
        return f"set spec.fairSharing.weight: {_decimal(self._to)} instead of " + (
            _decimal(Quantity(self.before))
        )

    @property
    def _to(self) -> Quantity:
        step = _ONE
        while self.before % step:
            step //= 10
        return Quantity(self.before + self.steps * step)

    def apply(self, world: World) -> World:
        """The world with that weight."""
        sharing = self.place.spec(world).fair_sharing or FairSharing()
        return self.place.changed(world, fair_sharing=attrs.evolve(sharing, weight=self._to))


def _decimal(weight: Quantity) -> str:
    return f"{Decimal(weight.nanos).scaleb(-9).normalize():f}"


@frozen
class SetParent(OfPlace, UnsizedChange):
    """Another cohort above a ClusterQueue or a Cohort.

    Attributes:
        before: the present cohort above, empty for none.
        to: the new one, empty for none.
    """

    before: str
    to: str

    kind = "parent"

    @property
    def text(self) -> str:
        """What to set."""
        return self.said_of(self.choice)

    @property
    def choice(self) -> str:
        """The new cohort above."""
        return self.to

    def said_of(self, choice: str) -> str:
        """What to set if there is a choice."""
        field = f"spec.{self.place.parent_field}"
        if not choice:
            return f"remove {field}: {self.before}"
        return f"set {field}: {choice}" + (f" instead of {self.before}" if self.before else "")

    def apply(self, world: World) -> World:
        """The world with that parent."""
        return self.place.below(world, self.to)
