"""The ClusterQueue reconciler: finalizer, status and gauges (spec/jobs 5.4)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.quantity import Quantity
from kueuelib.controllers.finalizers import (
    CONFLICT_PAUSE,
    add_finalizer,
    drop_finalizer,
    has_finalizer,
)
from kueuelib.controllers.queue_metrics import QueueMetrics, QuotaKey
from kueuelib.controllers.queue_status import cluster_queue_status
from kueuelib.controllers.queue_writer import QueueStatusWriter
from kueuelib.errors import Conflict
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import DONE, Result
from kueuelib.runtime.informer import Informer
from kueuelib.scheduler.quota.activity import Activity
from kueuelib.scheduler.status import QueueStatus

if TYPE_CHECKING:
    from kueuelib.scheduler.engine import Engine


class ClusterQueueReconciler:
    """Reports the state of a ClusterQueue, and keeps it while a workload holds its quota.

    Args:
        client: writes.
        informer: the ClusterQueues.
        engine: knows their numbers.
        metrics: their gauges.
        clock: stamps transitions and paces the writes.
    """

    def __init__(
        self,
        client: Client,
        informer: Informer,
        engine: Engine,
        metrics: QueueMetrics,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._informer = informer
        self._engine = engine
        self._metrics = metrics
        self._clock = clock
        self._writer = QueueStatusWriter(client, informer, clock)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Brings finalizer and status in line."""
        queue = self._informer.store.get(key)
        if queue is None:
            self._writer.forget(key)
            self._metrics.forget(key.name)
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
        self._report(key.name, queue, numbers, activity, deleted=deleted)
        status = cluster_queue_status(queue, numbers, activity, self._clock.now())
        return await self._writer.write(queue, status)

    def _report(
        self,
        name: str,
        queue: Obj,
        numbers: QueueStatus | None,
        activity: Activity,
        *,
        deleted: bool,
    ) -> None:
        alive = "active" if activity.active else "pending"
        self._metrics.status(name, "terminating" if deleted else alive)
        if numbers is None:
            return
        self._metrics.counts(
            name,
            active=numbers.active,
            inadmissible=numbers.inadmissible,
            reserving=numbers.reserving,
            admitted=numbers.admitted,
        )
        spec = queue.get("spec") or {}
        cohort = spec.get("cohortName") or spec.get("cohort") or ""
        self._metrics.place(name, cohort, (self._engine.cohorts(name) or ("",))[-1])
        self._metrics.share(name, cohort, numbers.share)
        if self._metrics.wants_resources:
            amounts = {**quotas_of(spec), **_usages(numbers)}
            self._metrics.amounts(name, cohort, amounts)


def _usages(numbers: QueueStatus) -> dict[str, dict[QuotaKey, float]]:
    return {
        kind: {
            (row.name, cell.name): float(cell.total.fraction())
            for row in rows
            for cell in row.resources
        }
        for kind, rows in (
            ("resource_reservation", numbers.reservation),
            ("resource_usage", numbers.usage),
        )
    }


def quotas_of(spec: Obj) -> dict[str, dict[QuotaKey, float]]:
    """The quotas of a raw ClusterQueue by gauge, flavor and resource."""
    cells = list(_cells(spec))
    return {
        kind: {key: _amount(cell.get(field), unset) for key, cell in cells}
        for kind, field, unset in (
            ("nominal_quota", "nominalQuota", 0.0),
            ("borrowing_limit", "borrowingLimit", math.inf),
            ("lending_limit", "lendingLimit", math.inf),
        )
    }


def _amount(quantity: Any, unset: float) -> float:
    return unset if quantity is None else float(Quantity.parse(quantity).fraction())


def _cells(spec: Obj) -> Iterator[tuple[QuotaKey, dict[str, Any]]]:
    for group in spec.get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for cell in flavor.get("resources") or ():
                yield (flavor["name"], cell["name"]), cell
