"""The ClusterQueue reconciler: finalizer and status."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kueuelib.api.meta import ObjectKey
from kueuelib.controllers.finalizers import (
    CONFLICT_PAUSE,
    add_finalizer,
    drop_finalizer,
    has_finalizer,
)
from kueuelib.controllers.queue_metrics import OwnedSeries
from kueuelib.controllers.queue_status import cluster_queue_status
from kueuelib.controllers.queue_writer import QueueStatusWriter
from kueuelib.errors import Conflict
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import DONE, Result
from kueuelib.runtime.informer import Informer

if TYPE_CHECKING:
    from kueuelib.scheduler.engine import Engine


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
