"""The reasons of evictions, and what brings a Workload back to its queue after each.

A new reason is a line of this table, and the step that evicts, in `next_step` or `life`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from kueuelib.api import names

PREEMPTED: Final = names.REASON_PREEMPTED
CHECK_FAILED: Final = names.REASON_ADMISSION_CHECK
QUEUE_STOPPED: Final = names.REASON_CLUSTER_QUEUE_STOPPED
LOCAL_QUEUE_STOPPED: Final = "LocalQueueStopped"
PODS_READY_TIMEOUT: Final = names.REASON_PODS_READY_TIMEOUT
PODS_MISSING: Final = "WaitingForReplacementPods"
DEACTIVATED: Final = names.REASON_DEACTIVATED
DUE_TO: Final = f"{DEACTIVATED}DueTo"
"""Followed by the cause, if it was us who deactivated the Workload."""

REACTIVATED: Final = "Reactivated"
WAIT_FOR_START: Final = "WaitForStart"
"""The reason of PodsReady=False until all pods are ready; the cause of an eviction for it."""
WAIT_FOR_RECOVERY: Final = "WaitForRecovery"
"""The same for pods that were ready and no longer are."""


@attrs.frozen
class Return:
    """How an evicted Workload comes back to its queue.

    Attributes:
        reason: of the condition Requeued when it is back; empty: the reason of the eviction.
        at_once: without waiting for anything.
        with_queue: as soon as its queues admit again.
    """

    reason: str = ""
    at_once: bool = False
    with_queue: bool = False


_RETURNS: Final[Mapping[str, Return]] = {
    PREEMPTED: Return(at_once=True),
    CHECK_FAILED: Return(at_once=True),
    QUEUE_STOPPED: Return("ClusterQueueRestarted", with_queue=True),
    LOCAL_QUEUE_STOPPED: Return("LocalQueueRestarted", with_queue=True),
    PODS_READY_TIMEOUT: Return("BackoffFinished"),
    PODS_MISSING: Return("PodsReplaced"),
    DEACTIVATED: Return(REACTIVATED),
}


def return_after(eviction: str) -> Return:
    """How a Workload comes back after an eviction with this reason."""
    return _RETURNS.get(eviction, Return())
