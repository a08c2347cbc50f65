"""Why a workload is not tried, because of an object; the reasons of `QuotaReserved=False`.

The results of tries are in `kueuelib.scheduler.reasons`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kueuelib.api import names
from kueuelib.api.kueue import LocalQueue
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.missing_features import TOPOLOGY, MissingFeature, sentence
from kueuelib.api.names import REASON_COHORT_CYCLE, REASON_STOPPED, REASON_TERMINATING
from kueuelib.api.patterns import NONE
from kueuelib.api.struct import frozen

# The reasons of `QuotaReserved=False`: the meaning of each one for a Workload, and its short form.
# The classes in `object_reasons` and `reasons` name one of them each. A new one is a line of this
# table.

WAITING_FOR_QUOTA: Final = "WaitingForQuota"
EXCEEDS_MAX_QUOTA: Final = "ExceedsMaxQuota"
NO_MATCHING_FLAVOR: Final = "NoMatchingFlavor"
PLACEMENT_FAILED: Final = "TopologyPlacementFailed"
WAITING_FOR_PODS_READY: Final = "WaitingForPodsReady"
WAITING_FOR_PREEMPTED: Final = "WaitingForPreemptedWorkloads"
PENDING_EVALUATION: Final = "PendingEvaluation"
MISCONFIGURED: Final = "Misconfigured"
SUSPENDED: Final = "Suspended"
ADMISSION_GATED: Final = "AdmissionGated"
INADMISSIBLE: Final = names.REASON_INADMISSIBLE
DEACTIVATED: Final = names.REASON_DEACTIVATED
PENDING: Final = names.REASON_PENDING
PODS_MISSING: Final = names.REASON_PODS_MISSING
"""It is not written to that condition: Requeued=False says so."""


@frozen
class Meaning:
    """The meaning of a condition reason.

    Attributes:
        short: the words of tables; empty: the reason itself.
        verdict: whether it is the result of a try, and not why a Workload is kept out of its queue.
        lasting: whether it holds until something changes, so that it explains a wait.
    """

    short: str = ""
    verdict: bool = False
    lasting: bool = True


MEANINGS: Final[Mapping[str, Meaning]] = {
    WAITING_FOR_QUOTA: Meaning("quota in use", verdict=True),
    EXCEEDS_MAX_QUOTA: Meaning("exceeds quota", verdict=True),
    NO_MATCHING_FLAVOR: Meaning("no flavor matches", verdict=True),
    PLACEMENT_FAILED: Meaning("no places", verdict=True),
    WAITING_FOR_PODS_READY: Meaning("waits for pods", verdict=True),
    WAITING_FOR_PREEMPTED: Meaning("preempts", verdict=True),
    PENDING_EVALUATION: Meaning("behind others", verdict=True),
    MISCONFIGURED: Meaning("misconfigured"),
    SUSPENDED: Meaning("queue stopped"),
    ADMISSION_GATED: Meaning("gated"),
    INADMISSIBLE: Meaning(),
    DEACTIVATED: Meaning("deactivated", lasting=False),
    PENDING: Meaning(lasting=False),
    PODS_MISSING: Meaning("pods missing", lasting=False),
}

VERDICTS: Final = frozenset(reason for reason, one in MEANINGS.items() if one.verdict)
"""Condition reasons that are results of tries, and do not keep a Workload out of its queue."""
REPORTED: Final = frozenset(reason for reason, one in MEANINGS.items() if one.lasting)
"""Condition reasons that say why a Workload waits, in its queue or out of it."""


# --------------------------------------------------------------------------------------------------


@frozen
class ChecksFailed:
    """An admission check of the workload is in state Retry or Rejected."""

    checks: tuple[str, ...]

    condition_reason = PENDING

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return "The workload has failed admission checks"


@frozen
class NamespaceUnknown:
    """The namespace is not known (yet): a temporary state, not worth a status write."""

    namespace: str

    condition_reason = PENDING

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f'Could not obtain workload namespace: namespaces "{self.namespace}" not found'


@frozen
class NamespaceMismatch:
    """The ClusterQueue does not accept workloads of the namespace."""

    cluster_queue: str
    namespace: str

    condition_reason = MISCONFIGURED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return "workload namespace doesn't match ClusterQueue selector"


@frozen
class FeaturesMissing:
    """The workload asks for features that this version does not have.

    Attributes:
        asked: its requests; at least one.
    """

    asked: tuple[MissingFeature, ...]

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return sentence(self.asked)

    @property
    def condition_reason(self) -> str:
        """`NoMatchingFlavor` if it asks for a topology only, as no flavor has one."""
        only_topology = all(one.feature == TOPOLOGY for one in self.asked)
        return NO_MATCHING_FLAVOR if only_topology else MISCONFIGURED


@frozen
class GivenValue:
    """A value that a LimitRange or RuntimeClass gives to pods.

    Attributes:
        kind: its kind.
        key: the object.
        field: the path of the value, for example `spec.limits[0].default[cpu]`.
        value: the amount, as it is written.
    """

    kind: str
    key: ObjectKey
    field: str
    value: str

    def __str__(self) -> str:
        return f"{self.kind} {self.key}: {self.field} is {self.value}"


@frozen
class ResourceProblem:
    """Why no pod can be created with such requests and limits.

    Attributes:
        broken: the broken rule, in the words of Kueue.
        values: what it depends on besides the pods.
    """

    broken: str
    values: tuple[GivenValue, ...] = ()

    def __str__(self) -> str:
        return f"{self.broken} ({', '.join(map(str, self.values))})" if self.values else self.broken


@frozen
class InvalidResources:
    """Containers request more than their limits."""

    items: tuple[ResourceProblem, ...]

    condition_reason = MISCONFIGURED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"resource validation failed: {'; '.join(map(str, self.items))}"


@frozen
class LimitRangeViolated:
    """The namespace's LimitRanges forbid the pods."""

    items: tuple[ResourceProblem, ...]

    condition_reason = MISCONFIGURED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"didn't satisfy LimitRange constraints: {'; '.join(map(str, self.items))}"


@frozen
class LocalQueueMissing:
    """The LocalQueue that the workload names does not exist."""

    name: str

    condition_reason = MISCONFIGURED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"LocalQueue {self.name} doesn't exist"


@frozen
class LocalQueueStopped:
    """The LocalQueue's stopPolicy holds new workloads back."""

    name: str

    condition_reason = SUSPENDED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"LocalQueue {self.name} is stopped"


@frozen
class ClusterQueueMissing:
    """The ClusterQueue that the LocalQueue names does not exist."""

    name: str

    condition_reason = MISCONFIGURED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"ClusterQueue {self.name} doesn't exist"


_SUSPENDING = (REASON_STOPPED, REASON_TERMINATING, REASON_COHORT_CYCLE)


@frozen
class ClusterQueueInactive:
    """The ClusterQueue cannot admit anything.

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
        """`Suspended` if it is held or cut off from its tree, otherwise `Misconfigured`."""
        return SUSPENDED if self.why in _SUSPENDING else MISCONFIGURED


@frozen
class Inactive:
    """`spec.active` is false."""

    condition_reason = DEACTIVATED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return "The workload is deactivated"


@frozen
class AdmissionGated:
    """The workload stays out of its queue until others have removed its gates (KEP-6915)."""

    gates: tuple[str, ...]

    condition_reason = ADMISSION_GATED

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return f"Admission is gated by: {','.join(self.gates)}"


@frozen
class PodsMissing:
    """The workload stays out of its queue until its pods exist again.

    Attributes:
        text: which ones, in the words of its condition.
    """

    text: str

    condition_reason = PODS_MISSING


@frozen
class BackingOff:
    """The workload was evicted and waits before it is queued again.

    Attributes:
        until: seconds since the epoch.
    """

    until: float

    condition_reason = PENDING

    @property
    def text(self) -> str:
        """The words of the condition message."""
        return "The workload waits for its back-off after an eviction"


SHUT_OUT = (NamespaceMismatch, NamespaceUnknown)
"""Reasons that end with a change of namespace labels or of a ClusterQueue's selector."""
ELSEWHERE = (
    *(*SHUT_OUT, ChecksFailed, FeaturesMissing, InvalidResources, LimitRangeViolated),
    *(BackingOff, PodsMissing, AdmissionGated),
)
"""Reasons that no change of quota ends."""
OUT_OF_QUEUE = (Inactive, AdmissionGated, PodsMissing)
"""Reasons of the workload itself, which has no place in its queue."""

START = "set spec.stopPolicy to None"
"""What starts a stopped queue."""

ObjectReason = (
    ChecksFailed
    | NamespaceUnknown
    | NamespaceMismatch
    | FeaturesMissing
    | InvalidResources
    | LimitRangeViolated
    | LocalQueueMissing
    | LocalQueueStopped
    | ClusterQueueMissing
    | ClusterQueueInactive
    | Inactive
    | AdmissionGated
    | PodsMissing
    | BackingOff
)
"""Why a workload is not tried."""


@frozen
class LocalQueueFacts:
    """The parts of a LocalQueue that decide whether its workloads wait in a ClusterQueue.

    The engine moves them whenever these facts change. The engine, conditions and `explain` all use
    `reason`.

    Attributes:
        name: its name.
        cluster_queue: the ClusterQueue that it names.
        stop_policy: None, Hold or HoldAndDrain.
    """

    name: str
    cluster_queue: str
    stop_policy: str = NONE

    @classmethod
    def of(cls, local_queue: LocalQueue) -> LocalQueueFacts:
        """The facts of a LocalQueue."""
        return cls(
            local_queue.name, local_queue.spec.cluster_queue, local_queue.spec.stop_policy or NONE
        )

    @classmethod
    def of_raw(cls, obj: Obj) -> LocalQueueFacts:
        """The facts of a raw LocalQueue."""
        name, spec = obj["metadata"]["name"], obj.get("spec") or {}
        return cls(name, spec.get("clusterQueue") or "", spec.get("stopPolicy") or NONE)

    @property
    def reason(self) -> LocalQueueStopped | None:
        """Why its workloads are held back; None if they are not."""
        return None if self.stop_policy == NONE else LocalQueueStopped(self.name)


def local_queue_reason(
    name: str, facts: LocalQueueFacts | None, *, known: bool
) -> ObjectReason | None:
    """Why a workload is kept out of its queue, apart from the state of its ClusterQueue.

    Args:
        name: the LocalQueue that the workload names.
        facts: of the LocalQueue; None if it does not exist.
        known: whether the ClusterQueue that it names exists.
    """
    if facts is None:
        return LocalQueueMissing(name)
    if known or facts.reason is not None:
        return facts.reason
    return ClusterQueueMissing(facts.cluster_queue)
