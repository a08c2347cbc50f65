"""Why a workload has no quota: a typed tree, and its renderings.

A "no" is never a text. It is a `Reason` with every number and name that led to it; condition
messages, condition reasons, events, logs and `explain` are read off it. The words are those that
clients of Kueue know (spec/scheduling 1.7, 4.1, 5.7; spec/scenarios for the quota texts), the
condition reasons are the granular ones of today's Kueue (spec/api 7.4).
"""

from __future__ import annotations

from enum import IntEnum

import attrs

from kueuelib.api.quantity import format_amount

WAITING_FOR_QUOTA = "WaitingForQuota"
EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
NO_MATCHING_FLAVOR = "NoMatchingFlavor"
MISCONFIGURED = "Misconfigured"
SUSPENDED = "Suspended"
DEACTIVATED = "Deactivated"
WAITING_FOR_PODS_READY = "WaitingForPodsReady"
PENDING_EVALUATION = "PendingEvaluation"
PENDING = "Pending"


class Mode(IntEnum):
    """What trying a flavor, a pod set or a whole workload came to; larger is better.

    Preemption, when it is decided, adds its ranks between `NO_CANDIDATES` and `FIT`.
    """

    NO_FIT = 0
    """Nothing that others could give up would help."""
    NO_CANDIDATES = 10
    """The quota is large enough, but in use by workloads that may not be preempted."""
    FIT = 40
    """It fits now."""


class Severity(IntEnum):
    """How far a blocker is from going away; the larger, the more has to change."""

    QUOTA_IN_USE = 1
    EXCEEDS_QUOTA = 2
    NO_MATCH = 3


_CONDITION_REASONS = {
    Severity.QUOTA_IN_USE: WAITING_FOR_QUOTA,
    Severity.EXCEEDS_QUOTA: EXCEEDS_MAX_QUOTA,
    Severity.NO_MATCH: NO_MATCHING_FLAVOR,
}


# --- what can stand between a pod set and a flavor


@attrs.frozen
class FlavorMissing:
    """The ClusterQueue names a ResourceFlavor that does not exist."""

    flavor: str

    severity = Severity.NO_MATCH

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"flavor {self.flavor} not found"


@attrs.frozen
class UntoleratedTaint:
    """Neither the pods nor the flavor tolerate a taint of the flavor."""

    flavor: str
    key: str
    value: str
    effect: str

    severity = Severity.NO_MATCH

    @property
    def text(self) -> str:
        """The words of the condition message."""
        taint = f"{{{self.key} {self.value} {self.effect} <nil>}}"
        return f"untolerated taint {taint} in flavor {self.flavor}"


@attrs.frozen
class AffinityMismatch:
    """Node selector or required node affinity exclude the flavor's node labels."""

    flavor: str

    severity = Severity.NO_MATCH

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"flavor {self.flavor} doesn't match node affinity"


@attrs.frozen
class ResourceUncovered:
    """No resource group of the ClusterQueue covers the resource."""

    resource: str

    severity = Severity.NO_MATCH

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"resource {self.resource} unavailable in ClusterQueue"


@attrs.frozen
class ExceedsCapacity:
    """The request is larger than everything the ClusterQueue could ever reach.

    Attributes:
        flavor: the flavor under test.
        resource: the resource.
        earlier: what earlier pod sets of the workload take of the same flavor.
        requested: what this pod set asks for.
        capacity: nominal quota plus what may be borrowed when nothing runs.
    """

    flavor: str
    resource: str
    earlier: int
    requested: int
    capacity: int

    severity = Severity.EXCEEDS_QUOTA

    @property
    def text(self) -> str:
        """The words of the condition message."""
        earlier, requested, capacity = (
            format_amount(self.resource, amount)
            for amount in (self.earlier, self.requested, self.capacity)
        )
        return (
            f"insufficient quota for {self.resource} in flavor {self.flavor}, "
            f"previously considered podsets requests ({earlier}) + "
            f"current podset request ({requested}) > maximum capacity ({capacity})"
        )


@attrs.frozen
class QuotaInUse:
    """The request would fit if others used less.

    Attributes:
        flavor: the flavor under test.
        resource: the resource.
        earlier: what earlier pod sets of the workload take of the same flavor.
        requested: what this pod set asks for.
        used: what the ClusterQueue uses now.
        nominal: what it owns.
        borrowable: what it could borrow at most, None when only the cohort limits it.
        available: what it could get now, limits and lending included.
        reclaimable: whether preemption could be asked for at all; False when the request needs
            more than nominal quota and the ClusterQueue may not preempt while it borrows.
    """

    flavor: str
    resource: str
    earlier: int
    requested: int
    used: int
    nominal: int
    borrowable: int | None
    available: int
    reclaimable: bool

    severity = Severity.QUOTA_IN_USE

    @property
    def lack(self) -> int:
        """How much has to become free."""
        return self.earlier + self.requested - self.available

    @property
    def text(self) -> str:
        """The words of the condition message."""
        lack = format_amount(self.resource, self.lack)
        return (
            f"insufficient unused quota for {self.resource} in flavor {self.flavor}, "
            f"{lack} more needed"
        )


Blocker = (
    FlavorMissing
    | UntoleratedTaint
    | AffinityMismatch
    | ResourceUncovered
    | ExceedsCapacity
    | QuotaInUse
)
"""What can stand between one pod set and one flavor."""


@attrs.frozen
class FlavorAttempt:
    """One flavor that was tried for one resource group of a pod set.

    Attributes:
        flavor: the flavor; empty when no group covers the resource.
        mode: the verdict.
        blockers: what was in the way, empty when it fits.
    """

    flavor: str
    mode: Mode
    blockers: tuple[Blocker, ...]

    @property
    def severity(self) -> Severity:
        """The worst blocker: all of them have to go before this flavor can be used."""
        return max(blocker.severity for blocker in self.blockers)


@attrs.frozen
class GroupBlocked:
    """All flavors that were tried for one resource group, in the order of the trial."""

    attempts: tuple[FlavorAttempt, ...]

    @property
    def severity(self) -> Severity:
        """The severity of the flavor closest to being usable, the first one among equals."""
        return min(attempt.severity for attempt in self.attempts)


@attrs.frozen
class PodSetBlocked:
    """All that stands in the way of one pod set.

    Attributes:
        pod_set: its name.
        groups: the resource groups that do not fit.
    """

    pod_set: str
    groups: tuple[GroupBlocked, ...]

    @property
    def severity(self) -> Severity:
        """The severity of the worst group, as all groups have to fit."""
        return max(group.severity for group in self.groups)

    @property
    def text(self) -> str:
        """The words of the condition message: sorted causes, so that retries repeat them."""
        causes = sorted(
            blocker.text
            for group in self.groups
            for attempt in group.attempts
            for blocker in attempt.blockers
        )
        return f"couldn't assign flavors to pod set {self.pod_set}: {', '.join(causes)}"


# --- what can keep a whole workload from being admitted


@attrs.frozen
class NoFlavors:
    """No assignment of flavors fits now (spec/scheduling 5.7).

    Attributes:
        pod_sets: the pod sets that are blocked, in the order of the workload.
        mode: the verdict.
    """

    pod_sets: tuple[PodSetBlocked, ...]
    mode: Mode

    @property
    def needs_preemption(self) -> bool:
        """Whether others would have to give up quota; False when even that could not help."""
        return self.mode is not Mode.NO_FIT

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return "; ".join(blocked.text for blocked in self.pod_sets)

    @property
    def condition_reason(self) -> str:
        """The worst pod set decides, as all pod sets have to fit."""
        return _CONDITION_REASONS[max(blocked.severity for blocked in self.pod_sets)]


@attrs.frozen
class NoLongerFits:
    """Another head of the cohort took the quota in the same cycle."""

    cohort: str

    condition_reason = WAITING_FOR_QUOTA

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return "Workload no longer fits after processing another workload"


@attrs.frozen
class PodsNotReady:
    """Admission waits until every admitted workload has its pods ready (spec/scheduling 4.5)."""

    condition_reason = WAITING_FOR_PODS_READY

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return "waiting for all admitted workloads to be in PodsReady condition"


@attrs.frozen
class ChecksFailed:
    """An admission check of the workload is in state Retry or Rejected."""

    checks: tuple[str, ...]

    condition_reason = PENDING

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return "The workload has failed admission checks"


@attrs.frozen
class NamespaceUnknown:
    """The namespace is not known (yet): a passing state that is not worth a status write."""

    namespace: str

    condition_reason = PENDING

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f'Could not obtain workload namespace: namespaces "{self.namespace}" not found'


@attrs.frozen
class NamespaceMismatch:
    """The ClusterQueue does not accept workloads of the namespace."""

    cluster_queue: str
    namespace: str

    condition_reason = MISCONFIGURED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return "workload namespace doesn't match ClusterQueue selector"


@attrs.frozen
class InvalidResources:
    """Containers request more than their limits (spec/scheduling 1.7)."""

    items: tuple[str, ...]

    condition_reason = MISCONFIGURED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"resource validation failed: {'; '.join(self.items)}"


@attrs.frozen
class LimitRangeViolated:
    """The namespace's LimitRanges forbid the pods (spec/scheduling 1.7)."""

    items: tuple[str, ...]

    condition_reason = MISCONFIGURED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"didn't satisfy LimitRange constraints: {'; '.join(self.items)}"


@attrs.frozen
class LocalQueueMissing:
    """The LocalQueue that the workload names does not exist."""

    name: str

    condition_reason = MISCONFIGURED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"LocalQueue {self.name} doesn't exist"


@attrs.frozen
class LocalQueueStopped:
    """The LocalQueue's stopPolicy holds new workloads back."""

    name: str

    condition_reason = SUSPENDED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"LocalQueue {self.name} is stopped"


@attrs.frozen
class ClusterQueueMissing:
    """The ClusterQueue that the LocalQueue names does not exist."""

    name: str

    condition_reason = MISCONFIGURED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"ClusterQueue {self.name} doesn't exist"


@attrs.frozen
class ClusterQueueInactive:
    """The ClusterQueue can't admit anything.

    Attributes:
        name: the queue.
        why: the reason of its Active condition, for example `Stopped` or `FlavorNotFound`.
    """

    name: str
    why: str

    @property
    def text(self) -> str:
        """The words of the condition message."""
        if self.why == "Stopped":
            return f"ClusterQueue {self.name} is stopped"
        if self.why == "Terminating":
            return f"ClusterQueue {self.name} is terminating"
        return f"ClusterQueue {self.name} is inactive"

    @property
    def condition_reason(self) -> str:
        """`Suspended` when somebody holds it on purpose, else `Misconfigured`."""
        return SUSPENDED if self.why in ("Stopped", "Terminating") else MISCONFIGURED


@attrs.frozen
class FlavorWithdrawn:
    """A reservation names a flavor that the ClusterQueue does not offer any more (KEP-993).

    Attributes:
        cluster_queue: the queue.
        flavor: the flavor.
        resource: what it was assigned for.
    """

    cluster_queue: str
    flavor: str
    resource: str

    condition_reason = PENDING

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return (
            f"The reservation is void: ClusterQueue {self.cluster_queue} has no quota for "
            f"{self.resource} in flavor {self.flavor} any more"
        )


@attrs.frozen
class QuotaWithdrawn:
    """A reservation does not fit the quota any more, when its checks have passed (KEP-993).

    Attributes:
        cluster_queue: the queue.
        flavor: the flavor that is short.
        resource: the resource that is short.
        amount: what the reservation needs of it.
        available: what is left of it for this reservation.
    """

    cluster_queue: str
    flavor: str
    resource: str
    amount: int
    available: int

    condition_reason = PENDING

    @property
    def text(self) -> str:
        """The words of the condition message."""
        needed = format_amount(self.resource, self.amount)
        left = format_amount(self.resource, self.available)
        return (
            f"The reservation is void: ClusterQueue {self.cluster_queue} has {left} of "
            f"{self.resource} in flavor {self.flavor} left, {needed} are needed"
        )


@attrs.frozen
class Inactive:
    """`spec.active` is false."""

    condition_reason = DEACTIVATED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return "The workload is deactivated"


@attrs.frozen
class BackingOff:
    """The workload was evicted and waits before it is queued again (spec/scheduling 3.7).

    Attributes:
        until: seconds since the epoch.
    """

    until: float

    condition_reason = PENDING

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return "The workload waits for its back-off after an eviction"


@attrs.frozen
class NotEvaluated:
    """The workload is queued and was not a head yet."""

    condition_reason = PENDING_EVALUATION

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return "Workload is pending evaluation in the scheduling queue"


Reason = (
    NoFlavors
    | NoLongerFits
    | PodsNotReady
    | ChecksFailed
    | NamespaceUnknown
    | NamespaceMismatch
    | InvalidResources
    | LimitRangeViolated
    | LocalQueueMissing
    | LocalQueueStopped
    | ClusterQueueMissing
    | ClusterQueueInactive
    | FlavorWithdrawn
    | QuotaWithdrawn
    | Inactive
    | BackingOff
    | NotEvaluated
)
"""Why a workload has no quota."""


def render(reason: Reason) -> str:
    """The message of `QuotaReserved=False` and of the event, without a limit of length."""
    return reason.text


def condition_reason(reason: Reason) -> str:
    """The reason of `QuotaReserved=False` and of the event."""
    return reason.condition_reason
