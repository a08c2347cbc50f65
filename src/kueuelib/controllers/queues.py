"""The reconcilers of ClusterQueues, Cohorts and LocalQueues: finalizer, status, metrics.

The functions of a status are pure: they take numbers and activity from the engine, and return the
raw status. Fields and conditions of other writers are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kueuelib.api.codec import encode
from kueuelib.api.conversion import convert
from kueuelib.api.kinds import COHORTS, LOCAL_QUEUES
from kueuelib.api.meta import Obj, ObjectKey, Resource, format_time, key_of, with_raw_condition
from kueuelib.api.names import (
    ACTIVE,
    REASON_CLUSTER_QUEUE_INACTIVE,
    REASON_COHORT_CYCLE,
    REASON_NO_CLUSTER_QUEUE,
    REASON_READY,
    REASON_STOPPED,
)
from kueuelib.api.quantity import quantity_of
from kueuelib.controllers.finalizers import (
    CONFLICT_PAUSE,
    add_finalizer,
    drop_finalizer,
    has_finalizer,
)
from kueuelib.controllers.queue_metrics import (
    CohortMetrics,
    LocalQueueMetrics,
    OwnedSeries,
    QuotaKey,
)
from kueuelib.errors import Conflict, NotFound
from kueuelib.machinery.store import Delta
from kueuelib.runtime.cache import OptionalInformer
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import DONE, Controller, Result
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.predicates import generation_changed
from kueuelib.runtime.queries import PatchType
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.knowledge import LocalQueueNumbers, PastUse, QueueStatus
from kueuelib.scheduler.quota.amounts import Amounts
from kueuelib.scheduler.quota.queue_spec import Activity

if TYPE_CHECKING:
    from kueuelib.runtime.events import EventRecorder


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
        status |= _counts(numbers)
        status["fairSharing"] = _fair_sharing(status, numbers.share)
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
        status |= _counts(numbers)
        status["fairSharing"] = _past_usage(numbers.past)
    status["conditions"] = _with_active(queue, activity, now)
    version = str(queue["apiVersion"]).rpartition("/")[2]
    converted: Obj = convert({**present, "status": status}, version)["status"]
    return converted


def _counts(numbers: QueueStatus | LocalQueueNumbers) -> Obj:
    """What the statuses of both kinds of queues have."""
    return {
        "pendingWorkloads": numbers.pending,
        "reservingWorkloads": numbers.reserving,
        "admittedWorkloads": numbers.admitted,
        "flavorsReservation": [encode(row) for row in numbers.reservation],
        "flavorsUsage": [encode(row) for row in numbers.usage],
    }


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


# ---- the Cohort reconciler: status, gauges, and events about cycles (KEP-79) ---------------------

COMPONENT = "kueue-cohort-controller"


class CohortReconciler:
    """Reports the quota and usage of a cohort and everything below it.

    A name that ClusterQueues or Cohorts use is a cohort, too: it has gauges, but no status.

    Args:
        client: writes.
        informer: the Cohorts.
        engine: knows the trees.
        metrics: the gauges.
        recorder: for events about Cohorts.
        clock: paces the writes.
        busy: whether admissions are being written.
    """

    def __init__(
        self,
        client: Client,
        informer: OptionalInformer,
        engine: Engine,
        metrics: CohortMetrics,
        recorder: EventRecorder,
        *,
        clock: Clock = SYSTEM_CLOCK,
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._informer = informer
        self._engine = engine
        self._metrics = metrics
        self._recorder = recorder
        self._writer = QueueStatusWriter(client, informer, clock, busy)
        self._cycles: dict[str, tuple[str, ...]] = {}

    async def reconcile(self, key: ObjectKey) -> Result:
        """Brings gauges and status in line."""
        name = key.name
        numbers = self._engine.cohort_status(name)
        if numbers is None:
            self._metrics.forget(name)
        else:
            self._metrics.place(name, numbers.parent, numbers.root)
            self._metrics.share(name, numbers.share)
            self._metrics.subtree(
                name, _shown(numbers.quota), _shown(numbers.reserved), numbers.admitted
            )
        cohort = self._informer.store.get(key)
        if cohort is None or numbers is None:
            self._writer.forget(key)
            self._cycles.pop(name, None)
            return DONE
        if numbers.cycle != self._cycles.get(name, ()):
            self._cycles[name] = numbers.cycle
            if numbers.cycle:
                way = " -> ".join((*numbers.cycle, numbers.cycle[0]))
                message = (
                    f"The parents form a cycle: {way}. Nothing below these Cohorts is admitted "
                    "until the parentName of one of them changes"
                )
                self._recorder.event(
                    cohort, "Warning", REASON_COHORT_CYCLE, message, component=COMPONENT
                )
        return await self._writer.write(cohort, cohort_status(cohort, numbers.share))


def _shown(amounts: Amounts) -> Mapping[QuotaKey, float]:
    """The amounts above zero, in base units, as the metrics have them."""
    return {
        (pair.flavor, pair.resource): float(quantity_of(pair.resource, amount).fraction())
        for pair, amount in amounts.items()
        if amount > 0
    }


# ---- the LocalQueue reconciler: status and metrics (KEP-1833, KEP-4136) --------------------------

LEAST_WAIT = 0.01
"""The shortest wait for a sample, in seconds."""


class LocalQueueReconciler:
    """Reports the state of a LocalQueue, and whether its ClusterQueue can admit.

    Args:
        client: writes.
        local_queues: the LocalQueues.
        cluster_queues: the ClusterQueues.
        engine: knows their numbers.
        metrics: their gauges.
        clock: stamps transitions and samples, and paces the writes.
        busy: whether admissions are being written.
    """

    def __init__(
        self,
        client: Client,
        local_queues: Informer,
        cluster_queues: Informer,
        engine: Engine,
        metrics: LocalQueueMetrics,
        *,
        clock: Clock = SYSTEM_CLOCK,
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._local_queues = local_queues
        self._cluster_queues = cluster_queues
        self._engine = engine
        self._metrics = metrics
        self._clock = clock
        self._writer = QueueStatusWriter(client, local_queues, clock, busy)

    def not_before(self, key: ObjectKey) -> float:
        """Until when a change of the numbers makes nothing to do, in monotonic seconds."""
        return self._writer.not_before(key)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Brings the status in line."""
        queue = self._local_queues.store.get(key)
        if queue is None:
            self._writer.forget(key)
            self._metrics.forget(key)
            return DONE
        if queue["metadata"].get("deletionTimestamp"):
            return DONE
        name = queue["spec"].get("clusterQueue", "")
        cluster_queue = self._cluster_queues.store.get(ObjectKey("", name))
        activity = local_activity(queue, cluster_queue, self._engine.activity(name))
        now = self._clock.now()
        self._engine.advance(now)
        numbers = self._engine.local_queue_status(key)
        past = None if numbers is None else numbers.past
        self._metrics.show(queue, numbers, activity, name)
        status = local_queue_status(queue, numbers, activity, now)
        result = await self._writer.write(queue, status)
        if result != DONE or past is None or past.next_sample is None:
            return result
        return Result(requeue_after=max(past.next_sample - now, LEAST_WAIT))


# ---- finds the ClusterQueues and cohorts of a tree that a change of one object affects -----------

DELAY = 1.0
"""Seconds within which several changes in a tree lead to one reconciliation of each member."""


def above(engine: Engine, delta: Delta[Obj]) -> Iterator[ObjectKey]:
    """A changed Cohort, and the cohorts that are or were above it or above a ClusterQueue."""
    for name in _named(delta):
        for cohort in engine.cache.forest.path(name):
            yield ObjectKey("", cohort)


class TreeWatch:
    """Reconciles all members of a tree when their reported values may have changed.

    A share depends on all quota in the tree, and every cohort reports the root.

    Args:
        engine: knows the trees.
        cohorts: the controller of cohorts.
        queues: the controller of ClusterQueues.
    """

    def __init__(self, engine: Engine, cohorts: Controller, queues: Controller) -> None:
        self._engine = engine
        self._cohorts = cohorts
        self._queues = queues

    def quota_changed(self, delta: Delta[Obj]) -> None:
        """Receives every delta of Cohorts and ClusterQueues, after the engine."""
        if delta.initial or not generation_changed(delta):
            return
        forest = self._engine.cache.forest
        for root in {forest.root_of(name): None for name in _named(delta)}:
            _look_later(self._cohorts, forest.cohorts_below(root))
            if self._engine.shares_fairly:
                _look_later(self._queues, forest.below(root))

    def usage_changed(self, queues: tuple[str, ...]) -> None:
        """The usage or the number of workloads of these ClusterQueues may have changed."""
        cohorts = (cohort for name in queues for cohort in self._engine.cohorts(name))
        _look_later(self._cohorts, dict.fromkeys(cohorts))


def _look_later(controller: Controller, names: Iterable[str]) -> None:
    """Enqueue later; a controller that does not listen yet reconciles everything at its start."""
    if controller.listening:
        controller.queue.add_later((ObjectKey("", name) for name in names), DELAY)


def _named(delta: Delta[Obj]) -> Iterator[str]:
    """The Cohort itself, and the cohorts that an object names, or named before."""
    for obj in (delta.old, delta.new):
        if obj is None:
            continue
        if obj.get("kind") == COHORTS.kind:
            yield delta.key.name
        spec = obj.get("spec") or {}
        parent = spec.get("parentName") or spec.get("cohortName") or spec.get("cohort")
        if parent:
            yield parent


# --------------------------------------------------------------------------------------------------


class ClusterQueueReconciler:
    """Reports the state of a ClusterQueue, and keeps it while a workload holds its quota.

    Args:
        client: writes.
        informer: the ClusterQueues.
        engine: knows their numbers.
        series: those that are removed with a ClusterQueue.
        clock: stamps transitions and paces the writes.
        busy: whether admissions are being written.
    """

    def __init__(
        self,
        client: Client,
        informer: Informer,
        engine: Engine,
        series: OwnedSeries,
        *,
        clock: Clock = SYSTEM_CLOCK,
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._client = client
        self._informer = informer
        self._engine = engine
        self._series = series
        self._clock = clock
        self._writer = QueueStatusWriter(client, informer, clock, busy)

    def not_before(self, key: ObjectKey) -> float:
        """Until when a change of the numbers makes nothing to do, in monotonic seconds."""
        queue = self._informer.store.get(key)
        if queue is None or queue["metadata"].get("deletionTimestamp"):
            return 0.0  # The finalizer goes with the last Workload.
        return self._writer.not_before(key)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Brings finalizer and status in line."""
        queue = self._informer.store.get(key)
        if queue is None:
            self._writer.forget(key)
            self._series.forget(key.name)
            return DONE
        deleted = bool(queue["metadata"].get("deletionTimestamp"))
        try:
            if not deleted:
                await add_finalizer(self._client, self._informer, queue)
            elif not self._engine.cache.reserving(key.name):
                if has_finalizer(queue):
                    await drop_finalizer(self._client, self._informer, queue)
                return DONE
        except Conflict:
            return Result(requeue_after=CONFLICT_PAUSE)
        numbers = self._engine.cluster_queue_status(key.name)
        activity = self._engine.activity(key.name)
        status = cluster_queue_status(queue, numbers, activity, self._clock.now())
        return await self._writer.write(queue, status)
