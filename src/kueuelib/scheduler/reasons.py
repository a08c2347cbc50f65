"""Why a workload has no quota: a typed tree, and its renderings.

A refusal is never only a text. It is a `Reason` with every number and name that led to it;
condition messages, condition reasons, events, logs and `explain` are derived from it. The wording
is that which clients of Kueue know; the condition reasons are the granular ones of today's Kueue.
"""

from __future__ import annotations

from kueuelib.api.meta import ObjectKey
from kueuelib.api.quantity import format_amount
from kueuelib.api.struct import frozen
from kueuelib.scheduler.flavor_reasons import (
    FlavorReason,
    Mode,
    NoPlaces,
    PodSetReason,
    ReasonSeverity,
    Together,
)
from kueuelib.scheduler.object_reasons import (
    EXCEEDS_MAX_QUOTA,
    NO_MATCHING_FLAVOR,
    PENDING,
    PENDING_EVALUATION,
    PLACEMENT_FAILED,
    VERDICTS,
    WAITING_FOR_PODS_READY,
    WAITING_FOR_PREEMPTED,
    WAITING_FOR_QUOTA,
    ObjectReason,
)
from kueuelib.scheduler.policy import Protected, Unevictable
from kueuelib.scheduler.quota.queue_spec import QueuePreemption
from kueuelib.scheduler.values import record

__all__ = [
    "EXCEEDS_MAX_QUOTA",
    "NO_MATCHING_FLAVOR",
    "PENDING",
    "PENDING_EVALUATION",
    "VERDICTS",
    "WAITING_FOR_PODS_READY",
    "WAITING_FOR_PREEMPTED",
    "WAITING_FOR_QUOTA",
    "BehindHead",
    "FitsAfterPreemptions",
    "FlavorWithdrawn",
    "MakingRoom",
    "NoFlavors",
    "NoLongerFits",
    "NotEvaluated",
    "PodsNotReady",
    "Preempting",
    "QuotaWithdrawn",
    "Reason",
    "condition_reason",
    "render",
    "waits_alone",
]

_CONDITION_REASONS = {
    ReasonSeverity.NO_PLACES: PLACEMENT_FAILED,
    ReasonSeverity.QUOTA_IN_USE: WAITING_FOR_QUOTA,
    ReasonSeverity.EXCEEDS_QUOTA: EXCEEDS_MAX_QUOTA,
    ReasonSeverity.NO_MATCH: NO_MATCHING_FLAVOR,
}


@record
class NoFlavors:
    """No assignment of flavors fits now.

    Attributes:
        pod_sets: the pod sets that are blocked, in the order of the workload.
        mode: the verdict.
        together: why no victims suffice for the whole request, if each single pair of flavor and
            resource could be freed.
        in_vain: the number of its preemptions without success, if it used up all of them and waits
            for an outside change of quota; otherwise 0.
        protected: the workloads that the preemption policy protected, or None.
        unevictable: those whose eviction the API server refused, or None.
        room: how many pods the nodes have room for, and where (KEP-2724); empty if quota is all
            that is missing.
    """

    pod_sets: tuple[PodSetReason, ...]
    mode: Mode
    together: Together | None = None
    in_vain: int = 0
    protected: Protected | None = None
    unevictable: Unevictable | None = None
    room: str = ""

    @property
    def needs_preemption(self) -> bool:
        """Whether others would have to release quota; False if even that would not help."""
        return self.mode is not Mode.NO_FIT

    def keeps_quota(self, policy: QueuePreemption) -> bool:
        """Whether the refused workload withholds the free part of its quota from later heads.

        It need not if it can reclaim that at any time.

        Args:
            policy: of its ClusterQueue.
        """
        return self.needs_preemption and not policy.always_reclaims

    @property
    def flavor_reasons(self) -> tuple[tuple[str, FlavorReason], ...]:
        """Why pod sets cannot use flavors, with the name of the pod set."""
        return tuple(
            (blocked.pod_set, reason)
            for blocked in self.pod_sets
            for group in blocked.groups
            for attempt in group.attempts
            for reason in attempt.reasons
        )

    @property
    def wants_room(self) -> bool:
        """Whether more room on nodes may help (KEP-2724): by itself, or once others have left."""
        return self.mode > Mode.NO_CANDIDATES or self.in_vain > 0 or self._lacks_places

    @property
    def exceeds_nodes(self) -> bool:
        """Whether the nodes lack places even without other Workloads (KEP-2724)."""
        return self.mode is Mode.NO_FIT and (bool(self.room) or self._lacks_places)

    @property
    def _lacks_places(self) -> bool:
        return any(isinstance(reason, NoPlaces) for _, reason in self.flavor_reasons)

    @property
    def lasting(self) -> dict[tuple[str, str], tuple[FlavorReason, ...]]:
        """The lasting part: the reasons of each tried pod set and flavor that no change of
        usage ends.
        """
        return {
            (blocked.pod_set, attempt.flavor): tuple(
                reason
                for reason in attempt.reasons
                if reason.severity > ReasonSeverity.QUOTA_IN_USE
            )
            for blocked in self.pod_sets
            for group in blocked.groups
            for attempt in group.attempts
        }

    @property
    def text(self) -> str:
        """The words of the condition message."""
        text = "; ".join(blocked.text for blocked in self.pod_sets)
        if self.in_vain:
            text += (
                f". It preempted others {self.in_vain} times and lost what they left; it does not "
                "preempt again until quotas change or other workloads end"
            )
        if self.protected is not None:
            text += f". {self.protected.text}"
        if self.unevictable is not None:
            text += f". {self.unevictable.text}"
        return text

    @property
    def condition_reason(self) -> str:
        """The reason of the worst pod set, because all pod sets have to fit."""
        if self.needs_preemption:
            return WAITING_FOR_QUOTA
        return _CONDITION_REASONS[max(blocked.severity for blocked in self.pod_sets)]


@record
class NoLongerFits:
    """Another head of the cohort took the quota in the same cycle."""

    cohort: str

    condition_reason = WAITING_FOR_QUOTA
    text = "Workload no longer fits after processing another workload"


@record
class Preempting:
    """Others are being preempted; the workload fits once they are gone.

    Attributes:
        blocked: why it does not fit before.
        victims: the workloads that must leave, sorted.
    """

    blocked: NoFlavors
    victims: tuple[ObjectKey, ...]

    condition_reason = WAITING_FOR_PREEMPTED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"{self.blocked.text}. Pending the preemption of {len(self.victims)} workload(s)"


@record
class FitsAfterPreemptions:
    """The victims of other heads in the same cycle also make room for this workload (4.3).

    Attributes:
        victims: the workloads that leave for others, sorted.
    """

    victims: tuple[ObjectKey, ...]

    condition_reason = WAITING_FOR_PREEMPTED
    text = (
        "Workload has overlapping preemption targets with another workload, "
        "but will fit after these preemptions complete"
    )


@frozen
class PodsNotReady:
    """Admission waits until every admitted workload has its pods ready."""

    condition_reason = WAITING_FOR_PODS_READY
    text = "waiting for all admitted workloads to be in PodsReady condition"


@frozen
class FlavorWithdrawn:
    """A reservation names a flavor that the ClusterQueue no longer offers (KEP-993).

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
            f"The reservation is void: ClusterQueue {self.cluster_queue} no longer has quota for "
            f"{self.resource} in flavor {self.flavor}"
        )


@frozen
class MakingRoom:
    """A reservation assumed that others will leave, and now they have to (KEP-993).

    Attributes:
        victims: the workloads that must leave, sorted.
    """

    victims: tuple[ObjectKey, ...]

    condition_reason = WAITING_FOR_PREEMPTED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"Pending the preemption of {len(self.victims)} workload(s)"


@frozen
class QuotaWithdrawn:
    """A reservation whose checks have passed no longer fits the quota (KEP-993).

    Attributes:
        cluster_queue: the queue.
        flavor: the flavor that is short.
        resource: the resource that is short.
        amount: what the reservation needs of it.
        available: what is left of it for this reservation.
        again: when candidates for preemption that are left out now may be chosen, or None.
    """

    cluster_queue: str
    flavor: str
    resource: str
    amount: int
    available: int
    again: float | None = None

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


@frozen
class NotEvaluated:
    """The workload is queued but has not been a head yet."""

    condition_reason = PENDING_EVALUATION
    text = "Workload is pending evaluation in the scheduling queue"


@frozen
class BehindHead:
    """The workload was not a head yet, because another one is ahead of it and blocked.

    Attributes:
        head: the first workload of the ClusterQueue at that time.
        cluster_queue: the ClusterQueue in which both wait.
        used_less: the LocalQueue of the head, if it comes first because it used less (KEP-4136).
    """

    head: ObjectKey
    cluster_queue: str
    used_less: ObjectKey | None = None

    condition_reason = PENDING_EVALUATION

    @property
    def text(self) -> str:
        """The words of the condition message."""
        why = f"; LocalQueue {self.used_less} used less" if self.used_less else ""
        return (
            f"Not evaluated yet: workload {self.head} was the head of ClusterQueue "
            f"{self.cluster_queue} when this one came to rest behind it{why}"
        )


Reason = (
    ObjectReason
    | NoFlavors
    | NoLongerFits
    | Preempting
    | FitsAfterPreemptions
    | PodsNotReady
    | FlavorWithdrawn
    | QuotaWithdrawn
    | MakingRoom
    | NotEvaluated
    | BehindHead
)
"""Why a workload has no quota."""


def waits_alone(reason: Reason) -> bool:
    """Whether a refusal holds only for one workload, not for its whole shape."""
    return not isinstance(reason, NoFlavors) or reason.in_vain > 0


def render(reason: Reason) -> str:
    """The message of `QuotaReserved=False` and of the event, without a limit of length."""
    if isinstance(reason, NoFlavors) and reason.room:
        return f"{reason.text}. {reason.room}"
    return reason.text


def condition_reason(reason: Reason) -> str:
    """The reason of `QuotaReserved=False` and of the event."""
    return reason.condition_reason
