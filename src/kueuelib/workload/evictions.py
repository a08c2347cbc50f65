"""The reasons of evictions, and when a Workload returns to its queue after each.

A new reason needs a line of this table, and the step that evicts, in `next_step` or `life`.
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
PODS_MISSING: Final = names.REASON_PODS_MISSING
DEACTIVATED: Final = names.REASON_DEACTIVATED
DUE_TO: Final = f"{DEACTIVATED}DueTo"
"""Followed by the cause, if the manager deactivated the Workload."""

REACTIVATED: Final = "Reactivated"
WAIT_FOR_START: Final = "WaitForStart"
"""The reason of PodsReady=False until all pods are ready; the cause of an eviction for it."""
WAIT_FOR_RECOVERY: Final = "WaitForRecovery"
"""The same for pods that were ready and no longer are."""


@attrs.frozen
class Return:
    """How an evicted Workload returns to its queue.

    Attributes:
        reason: of the condition Requeued after its return; empty: the reason of the eviction.
        at_once: it returns when its job has stopped.
        with_queue: it returns when its queues admit again and its back-off is over.
    """

    reason: str = ""
    at_once: bool = False
    with_queue: bool = False


_RETURNS: Final[Mapping[str, Return]] = {
    PREEMPTED: Return(at_once=True),
    CHECK_FAILED: Return(at_once=True),
    QUEUE_STOPPED: Return("ClusterQueueRestarted", with_queue=True),
    LOCAL_QUEUE_STOPPED: Return("LocalQueueRestarted", with_queue=True),
    PODS_READY_TIMEOUT: Return("BackoffFinished", with_queue=True),
    PODS_MISSING: Return("PodsReplaced"),
    DEACTIVATED: Return(REACTIVATED),
}


def return_after(eviction: str) -> Return:
    """How a Workload returns after an eviction with this reason."""
    return _RETURNS.get(eviction, Return())
