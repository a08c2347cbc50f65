"""The status of ClusterQueues, Cohorts and LocalQueues, and its writer.

Pure: takes numbers and activity from the engine, and returns the raw status. Fields and conditions
    of other writers are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kueuelib.api.codec import encode
from kueuelib.api.conversion import convert
from kueuelib.api.kinds import LOCAL_QUEUES
from kueuelib.api.meta import Obj, ObjectKey, Resource, format_time, key_of, with_raw_condition
from kueuelib.api.names import (
    ACTIVE,
    REASON_CLUSTER_QUEUE_INACTIVE,
    REASON_NO_CLUSTER_QUEUE,
    REASON_READY,
    REASON_STOPPED,
)
from kueuelib.errors import NotFound
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import Clock
from kueuelib.runtime.controller import DONE, Result
from kueuelib.runtime.queries import PatchType
from kueuelib.scheduler.knowledge import LocalQueueNumbers, PastUse, QueueStatus
from kueuelib.scheduler.quota.queue_spec import Activity

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
    return with_raw_condition(
        (queue.get("status") or {}).get("conditions") or (),
        ACTIVE,
        activity.active,
        activity.reason,
        activity.message,
        now=now,
        generation=queue["metadata"].get("generation"),
    )


# ---- writes the status of queues: each at most once a second, and only changed fields ------------
# While admissions are written, the pause is longer, the longer the last write took.

PAUSE = 1.0
"""Seconds between two writes of one queue's status, at least."""
PAUSE_FACTOR = 50.0
"""The pause while admissions are written, as a multiple of what the last write took."""
LONGEST_PAUSE = 10.0
"""Seconds that it takes at most."""


class OwnWritesCache(Protocol):
    """The part of an informer that a writer needs."""

    @property
    def resource(self) -> Resource:
        """What it follows."""
        ...

    def learn(self, answer: Obj) -> None:
        """Store the answer to a write."""
        ...


class QueueStatusWriter:
    """The shared half of the reconcilers of ClusterQueues, Cohorts and LocalQueues.

    The first change is written at once; later changes within the pause are written together at its
    end.

    Args:
        client: writes.
        informer: learns the answers.
        clock: paces the writes.
        busy: whether admissions are being written.
    """

    def __init__(
        self, client: Client, informer: OwnWritesCache, clock: Clock, busy: Callable[[], bool]
    ) -> None:
        self._client = client
        self._informer = informer
        self._clock = clock
        self._busy = busy
        self._written: dict[ObjectKey, tuple[float, float]] = {}  # when, and how long it took

    async def write(self, queue: Obj, status: Obj) -> Result:
        """Stores the given status now, or if it is too early, requests another reconciliation.

        Raises:
            ApiError: the server refuses.
            TransportError: no answer.
        """
        patch = status_patch(queue.get("status") or {}, status)
        if not patch:
            return DONE
        key, began = key_of(queue), self._clock.monotonic()
        pause = self.not_before(key) - began
        if pause > 0:
            return Result(requeue_after=pause)
        body = {"metadata": {"uid": queue["metadata"]["uid"]}, "status": patch}
        self._written[key] = began, 0.0
        try:
            answer = await self._client.patch(
                self._informer.resource, key, body, PatchType.MERGE, subresource="status"
            )
        except NotFound:
            self.forget(key)
            return DONE
        finally:
            if key in self._written:
                ended = self._clock.monotonic()
                self._written[key] = ended, ended - began
        self._informer.learn(answer)
        return DONE

    def not_before(self, key: ObjectKey) -> float:
        """From when on the status of a queue may be written, in monotonic seconds of the clock."""
        written = self._written.get(key)
        if written is None:
            return 0.0
        ended, took = written
        longer = min(PAUSE_FACTOR * took, LONGEST_PAUSE) if self._busy() else 0.0
        return ended + max(PAUSE, longer)

    def forget(self, key: ObjectKey) -> None:
        """Forget a deleted queue."""
        self._written.pop(key, None)
