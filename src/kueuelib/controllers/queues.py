"""The reconcilers of ClusterQueues, Cohorts and LocalQueues: finalizer, status, metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kueuelib.api.kinds import COHORTS
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.names import REASON_COHORT_CYCLE
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
from kueuelib.controllers.queue_status import (
    QueueStatusWriter,
    cluster_queue_status,
    cohort_status,
    local_activity,
    local_queue_status,
)
from kueuelib.errors import Conflict
from kueuelib.machinery.store import Delta
from kueuelib.runtime.cache import OptionalInformer
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import DONE, Controller, Result
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.predicates import generation_changed
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.quota.amounts import Amounts

if TYPE_CHECKING:
    from kueuelib.runtime.events import EventRecorder


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
