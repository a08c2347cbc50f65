"""The status of ClusterQueues, Cohorts and LocalQueues as raw objects.

Pure: takes numbers and activity from the engine, and returns the raw status. Fields and conditions
    of other writers are kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kueuelib.api.codec import encode
from kueuelib.api.conversion import convert
from kueuelib.api.kinds import LOCAL_QUEUES
from kueuelib.api.meta import Obj, find_condition, format_time
from kueuelib.api.names import (
    ACTIVE,
    REASON_CLUSTER_QUEUE_INACTIVE,
    REASON_NO_CLUSTER_QUEUE,
    REASON_READY,
    REASON_STOPPED,
)
from kueuelib.scheduler.quota.activity import Activity
from kueuelib.scheduler.status import LocalQueueNumbers, PastUse, QueueStatus

MESSAGE_LIMIT = 32768
LARGEST_SHARE = 2**63 - 1


def cluster_queue_status(
    queue: Mapping[str, Any], numbers: QueueStatus | None, activity: Activity, now: float
) -> Obj:
    """The status of a ClusterQueue; equal to the present one when nothing has changed.

    Args:
        queue: the raw ClusterQueue.
        numbers: counts and usage; None while the scheduler does not know the queue.
        activity: the Active condition.
        now: the transition time, seconds since the epoch.
    """
    status = dict(queue.get("status") or {})
    if numbers is not None:
        status |= {
            "pendingWorkloads": numbers.pending,
            "reservingWorkloads": numbers.reserving,
            "admittedWorkloads": numbers.admitted,
            "flavorsReservation": [encode(row) for row in numbers.reservation],
            "flavorsUsage": [encode(row) for row in numbers.usage],
            "fairSharing": _fair_sharing(status, numbers.share),
        }
    status["conditions"] = _with_active(queue, activity, now)
    return status


def cohort_status(cohort: Mapping[str, Any], share: float | None) -> Obj:
    """The status of a Cohort.

    Args:
        cohort: the raw Cohort.
        share: its share of borrowed quota; infinite for weight 0, None while fair sharing is off.
    """
    status = dict(cohort.get("status") or {})
    return {**status, "fairSharing": _fair_sharing(status, share)}


def local_queue_status(
    queue: Mapping[str, Any], numbers: LocalQueueNumbers | None, activity: Activity, now: float
) -> Obj:
    """The status of a LocalQueue, in its version; for the arguments see `cluster_queue_status`."""
    present = convert(dict(queue), LOCAL_QUEUES.version)
    status = dict(present.get("status") or {})
    if numbers is not None:
        status |= {
            "pendingWorkloads": numbers.pending,
            "reservingWorkloads": numbers.reserving,
            "admittedWorkloads": numbers.admitted,
            "flavorsReservation": [encode(row) for row in numbers.reservation],
            "flavorsUsage": [encode(row) for row in numbers.usage],
            "fairSharing": _past_usage(numbers.past),
        }
    status["conditions"] = _with_active(queue, activity, now)
    version = str(queue["apiVersion"]).rpartition("/")[2]
    converted: Obj = convert({**present, "status": status}, version)["status"]
    return converted


def local_activity(
    queue: Mapping[str, Any], cluster_queue: Mapping[str, Any] | None, activity: Activity
) -> Activity:
    """The Active condition of a LocalQueue.

    Args:
        queue: the raw LocalQueue.
        cluster_queue: the raw ClusterQueue that it names, if it exists.
        activity: the Active condition of that one.
    """
    name = queue["spec"].get("clusterQueue", "")
    if queue["spec"].get("stopPolicy") not in (None, "", "None"):
        text = "Can't submit new workloads: the LocalQueue is stopped"
        return Activity(active=False, reason=REASON_STOPPED, message=text)
    if cluster_queue is None:
        text = f"Can't submit new workloads: ClusterQueue {name} doesn't exist"
        return Activity(active=False, reason=REASON_NO_CLUSTER_QUEUE, message=text)
    if not activity.active:
        text = f"Can't submit new workloads: ClusterQueue {name} is inactive ({activity.reason})"
        return Activity(active=False, reason=REASON_CLUSTER_QUEUE_INACTIVE, message=text)
    text = f"Can submit new workloads to ClusterQueue {name}"
    return Activity(active=True, reason=REASON_READY, message=text)


def status_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> Obj:
    """The fields of a status that differ; empty when none does."""
    return {name: value for name, value in new.items() if old.get(name) != value}


def _fair_sharing(status: Mapping[str, Any], share: float | None) -> Obj | None:
    """The share as Kueue shows it: rounded up, the largest number when it is infinite."""
    if share is None:
        return None
    shown = LARGEST_SHARE if math.isinf(share) else math.ceil(share)
    return {**(status.get("fairSharing") or {}), "weightedShare": shown}


def _past_usage(past: PastUse | None) -> Obj | None:
    """Past usage as Kueue shows it; None if there is none, so that idle queues cost no writes."""
    if past is None or not past.consumed:
        return None
    consumed = {name: str(quantity) for name, quantity in past.consumed.items()}
    shown = {"consumedResources": consumed, "lastUpdate": format_time(past.sampled_at)}
    return {"weightedShare": 0, "admissionFairSharingStatus": shown}


def _with_active(queue: Mapping[str, Any], activity: Activity, now: float) -> list[Obj]:
    conditions = list((queue.get("status") or {}).get("conditions") or ())
    old = find_condition(conditions, ACTIVE)
    status = "True" if activity.active else "False"
    kept = old.get("lastTransitionTime") if old.get("status") == status else None
    new: Obj = {
        "type": ACTIVE,
        "status": status,
        "reason": activity.reason,
        "message": activity.message[:MESSAGE_LIMIT],
        "lastTransitionTime": kept or format_time(now),
    }
    generation = queue["metadata"].get("generation")
    if generation:
        new["observedGeneration"] = generation
    if not old:
        return [*conditions, new]
    return [new if entry["type"] == ACTIVE else entry for entry in conditions]
