"""Changes that create a missing object or label."""

from __future__ import annotations

import attrs

from kueuelib.api import names
from kueuelib.api.codec import decode
from kueuelib.api.kinds import KUEUE, V1BETA2
from kueuelib.api.kueue import AdmissionCheck, LocalQueue, ResourceFlavor
from kueuelib.api.meta import Condition, ObjectKey
from kueuelib.api.struct import frozen
from kueuelib.scheduler.explain.changes import Whole
from kueuelib.scheduler.explain.world import World


@frozen
class CreateFlavor(Whole):
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
class ServeCheck(Whole):
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
class CreateLocalQueue(Whole):
    """Create a missing LocalQueue."""

    key: ObjectKey
    cluster_queue: str

    kind = "create"

    @property
    def subject(self) -> str:
        """The LocalQueue."""
        return f"LocalQueue {self.key}"

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
class LabelNamespace(Whole):
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
