"""The reasons why a pod set cannot use a flavor of its ClusterQueue, with all their numbers.

The leaves of the reason tree (see `kueuelib.scheduler.reasons`) and the verdicts that rank them.
"""

from __future__ import annotations

from enum import IntEnum

from kueuelib.api.meta import ObjectKey
from kueuelib.api.quantity import format_amount
from kueuelib.scheduler.values import record


class Mode(IntEnum):
    """The result of trying a flavor, a pod set or a whole workload; larger is better."""

    NO_FIT = 0
    """It does not fit, whatever others give up."""
    NO_CANDIDATES = 10
    """The quota is large enough, but used by workloads that may not be preempted."""
    PREEMPT = 20
    """It fits if workloads of its own ClusterQueue leave, and perhaps others."""
    RECLAIM = 30
    """It fits if workloads of borrowing ClusterQueues leave."""
    FIT = 40
    """It fits now."""


NO_FIT, NO_CANDIDATES, FIT = Mode.NO_FIT, Mode.NO_CANDIDATES, Mode.FIT
"""For frequent use: Python 3.11 looks up enum members slowly."""


@record
class Outlook:
    """The result of preempting for one request.

    Attributes:
        candidates: how many workloads were considered as victims, in the widest round; 0 if the
            policies of the ClusterQueue protect all users of the flavor.
        victims: the workloads that would have to leave, sorted; empty if no victims suffice.
        lack: the amount that would still be missing without any of them.
        named: the first candidates, in the order they would leave, if all of them do not suffice.
        spared: how many more the policies allow but the shares do not.
        borrowing: whether the workload could borrow in the end; otherwise it has to stay within
            nominal quota.
    """

    candidates: int
    victims: tuple[ObjectKey, ...]
    lack: int
    named: tuple[ObjectKey, ...] = ()
    spared: int = 0
    borrowing: bool = True


@record
class Together:
    """The result of preempting for the whole request, although each pair of it could be freed.

    Attributes:
        candidates: how many workloads were considered as victims, in the widest round.
        named: the first candidates, in the order they would leave.
        borrowing: whether that round let the workload borrow in the end; a preemptor that reclaims
            one resource may have to stay within nominal quota for all.
        lacks: what would still be missing without any of them: flavor, resource, amount; empty if
            only room on nodes would be missing.
        spared: how many more the policies allow but the shares do not.
    """

    candidates: int
    named: tuple[ObjectKey, ...]
    borrowing: bool
    lacks: tuple[tuple[str, str, int], ...]
    spared: int = 0

    @property
    def text(self) -> str:
        """One sentence for people; it is not part of the condition message."""
        missing = ", ".join(
            f"{format_amount(resource, amount)} of {resource} in flavor {flavor}"
            for flavor, resource, amount in self.lacks
        )
        names = ", ".join(str(key) for key in self.named)
        if len(self.named) < self.candidates:
            names += f" and {self.candidates - len(self.named)} more"
        gone = f"With {names} gone" if self.candidates else "no Workload may be preempted, and"
        limit = " within nominal quota" if missing and not self.borrowing else ""
        missing = missing or "room on nodes for its pods"
        spared = f"; fair sharing protects {self.spared} more" if self.spared else ""
        return f"{gone} it would still lack {missing}{limit}{spared}"


class ReasonSeverity(IntEnum):
    """How much has to change for a reason to go away; larger is more."""

    NO_PLACES = 0
    QUOTA_IN_USE = 1
    EXCEEDS_QUOTA = 2
    NO_MATCH = 3


@record
class FlavorMissing:
    """The ClusterQueue names a ResourceFlavor that does not exist."""

    flavor: str

    severity = ReasonSeverity.NO_MATCH

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"flavor {self.flavor} not found"


@record
class UntoleratedTaint:
    """Neither the pods nor the flavor tolerate a taint of the flavor."""

    flavor: str
    key: str
    value: str
    effect: str

    severity = ReasonSeverity.NO_MATCH

    @property
    def text(self) -> str:
        """The words of the condition message."""
        taint = f"{{{self.key} {self.value} {self.effect} <nil>}}"
        return f"untolerated taint {taint} in flavor {self.flavor}"


@record
class AffinityMismatch:
    """Node selector or required node affinity exclude the flavor's node labels.

    Attributes:
        flavor: the flavor under test.
        label: the key of the first label that does not match.
        wanted: what the pods ask for.
        offered: its value on the nodes of the flavor.
    """

    flavor: str
    label: str = ""
    wanted: str = ""
    offered: str = ""

    severity = ReasonSeverity.NO_MATCH

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"flavor {self.flavor} doesn't match node affinity"

    @property
    def detail(self) -> str:
        """Which label differs; the condition message does not say."""
        return (
            f"the pods want {self.label} {self.wanted}, the nodes of flavor {self.flavor} have "
            f"{self.offered}"
        )


@record
class TopologyMismatch:
    """The flavor has no topology that the pods ask for, or one that they do not ask for.

    Attributes:
        flavor: the flavor under test.
        text: the words of the condition message.
        detail: more for people, which the condition message does not say; empty if there is none.
    """

    flavor: str
    text: str
    detail: str = ""

    severity = ReasonSeverity.NO_MATCH


@record
class NoPlaces:
    """Quota would do, but the nodes of the flavor have no places for all pods (KEP-2724).

    Attributes:
        flavor: the flavor.
        text: the words of the condition message; empty if that names the missing quota only.
    """

    flavor: str
    text: str

    severity = ReasonSeverity.NO_PLACES


@record
class ResourceUncovered:
    """No resource group of the ClusterQueue covers the resource."""

    resource: str

    severity = ReasonSeverity.NO_MATCH

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"resource {self.resource} unavailable in ClusterQueue"

    @property
    def detail(self) -> str:
        """The same in plain words."""
        return f"the queue has no quota for {self.resource}"


@record
class ExceedsCapacity:
    """The request is larger than everything the ClusterQueue could ever reach.

    Attributes:
        flavor: the flavor under test.
        resource: the resource.
        earlier: the requests of earlier pod sets of the workload in the same flavor.
        requested: the request of this pod set.
        capacity: nominal quota plus what may be borrowed when nothing runs.
    """

    flavor: str
    resource: str
    earlier: int
    requested: int
    capacity: int

    severity = ReasonSeverity.EXCEEDS_QUOTA

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


@record
class QuotaInUse:
    """The request would fit if others used less.

    Attributes:
        flavor: the flavor under test.
        resource: the resource.
        earlier: the requests of earlier pod sets of the workload in the same flavor.
        requested: the request of this pod set.
        used: what the ClusterQueue uses now.
        nominal: what it owns.
        borrowable: the most that it could borrow; None if only the cohort limits it.
        available: what it could get now, limits and lending included.
        reclaimable: whether preemption is possible at all; False if the request needs more than
            nominal quota and the ClusterQueue may not preempt while it borrows.
        outlook: the result of preemption; None if it is not possible.
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
    outlook: Outlook | None = None

    severity = ReasonSeverity.QUOTA_IN_USE

    @property
    def in_vain(self) -> Together | None:
        """The outlook, if preemption does not help; None if it helps, or was not examined."""
        outlook = self.outlook
        if outlook is None or outlook.victims or not (outlook.candidates or outlook.spared):
            return None
        lacks = ((self.flavor, self.resource, outlook.lack),)
        return Together(outlook.candidates, outlook.named, outlook.borrowing, lacks, outlook.spared)

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


FlavorReason = (
    FlavorMissing
    | UntoleratedTaint
    | AffinityMismatch
    | TopologyMismatch
    | NoPlaces
    | ResourceUncovered
    | ExceedsCapacity
    | QuotaInUse
)
"""Why one pod set cannot use one flavor."""


@record
class FlavorAttempt:
    """One flavor that was tried for one resource group of a pod set.

    Attributes:
        flavor: the flavor; empty when no group covers the resource.
        mode: the verdict.
        reasons: why it does not fit; empty if it does.
    """

    flavor: str
    mode: Mode
    reasons: tuple[FlavorReason, ...]

    @property
    def severity(self) -> ReasonSeverity:
        """The severity of the worst reason, because all of them have to go."""
        return max(reason.severity for reason in self.reasons)


@record
class GroupReason:
    """All flavors that were tried for one resource group, in the order of the trial."""

    attempts: tuple[FlavorAttempt, ...]

    @property
    def severity(self) -> ReasonSeverity:
        """The severity of the flavor closest to being usable; among equals, the first."""
        return min(attempt.severity for attempt in self.attempts)


@record
class PodSetReason:
    """All reasons why one pod set cannot start.

    Attributes:
        pod_set: its name.
        groups: the resource groups that do not fit.
    """

    pod_set: str
    groups: tuple[GroupReason, ...]

    @property
    def severity(self) -> ReasonSeverity:
        """The severity of the worst group, as all groups have to fit."""
        return max(group.severity for group in self.groups)

    @property
    def text(self) -> str:
        """The words of the condition message: sorted causes, so that retries repeat them."""
        causes = sorted(
            reason.text
            for group in self.groups
            for attempt in group.attempts
            for reason in attempt.reasons
            if reason.text
        )
        return f"couldn't assign flavors to pod set {self.pod_set}: {', '.join(causes)}"
