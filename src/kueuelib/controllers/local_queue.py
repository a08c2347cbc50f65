"""The LocalQueue reconciler: status and metrics (KEP-1833, KEP-4136)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kueuelib.api.meta import ObjectKey
from kueuelib.controllers.local_queue_metrics import LocalQueueMetrics
from kueuelib.controllers.queue_status import local_activity, local_queue_status
from kueuelib.controllers.queue_writer import QueueStatusWriter
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import DONE, Result
from kueuelib.runtime.informer import Informer

if TYPE_CHECKING:
    from kueuelib.scheduler.engine import Engine


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
