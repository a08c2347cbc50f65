"""Why a workload is not tried: something about itself, or about an object that it depends on.

What trying it comes to is in `kueuelib.scheduler.reasons`.
"""

from __future__ import annotations

import attrs

from kueuelib.api.names import REASON_COHORT_CYCLE, REASON_STOPPED, REASON_TERMINATING
from kueuelib.api.words import NONE
from kueuelib.scheduler.condition_reasons import DEACTIVATED, MISCONFIGURED, PENDING, SUSPENDED


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


_SUSPENDING = (REASON_STOPPED, REASON_TERMINATING, REASON_COHORT_CYCLE)


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
        """`Suspended` when it is held or left out of its tree, else `Misconfigured`."""
        return SUSPENDED if self.why in _SUSPENDING else MISCONFIGURED


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


SHUT_OUT = (NamespaceMismatch, NamespaceUnknown)
"""Reasons that the labels of a namespace or the selector of a ClusterQueue end."""
ELSEWHERE = (*SHUT_OUT, ChecksFailed, InvalidResources, LimitRangeViolated, BackingOff)
"""Reasons that nothing ends that happens to quota."""

ObjectReason = (
    ChecksFailed
    | NamespaceUnknown
    | NamespaceMismatch
    | InvalidResources
    | LimitRangeViolated
    | LocalQueueMissing
    | LocalQueueStopped
    | ClusterQueueMissing
    | ClusterQueueInactive
    | Inactive
    | BackingOff
)
"""Why a workload is not tried."""


def queue_obstacle(
    local_queue: str, stop_policy: str | None, cluster_queue: str, *, known: bool
) -> ObjectReason | None:
    """What keeps a workload out of its queue, whatever state its ClusterQueue is in.

    Args:
        local_queue: the name that the workload gives.
        stop_policy: of the LocalQueue; empty or `None` if it is not stopped, None if it is missing.
        cluster_queue: the name that the LocalQueue gives.
        known: whether there is a ClusterQueue of that name.
    """
    if stop_policy is None:
        return LocalQueueMissing(local_queue)
    if stop_policy not in ("", NONE):
        return LocalQueueStopped(local_queue)
    return None if known else ClusterQueueMissing(cluster_queue)
