"""The Cohort reconciler: status, gauges, and events about cycles (KEP-79)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kueuelib.api.meta import ObjectKey
from kueuelib.api.names import REASON_COHORT_CYCLE
from kueuelib.api.quantity import quantity_of
from kueuelib.controllers.queue_metrics import CohortMetrics, QuotaKey
from kueuelib.controllers.queue_status import cohort_status
from kueuelib.controllers.queue_writer import QueueStatusWriter
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import DONE, Result
from kueuelib.runtime.optional import OptionalInformer
from kueuelib.scheduler.quota.amounts import Amounts

if TYPE_CHECKING:
    from kueuelib.runtime.events import EventRecorder
    from kueuelib.scheduler.engine import Engine

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
