"""Evicts the victims of a preemption: one patch per victim (KEP-83).

In the engine, a victim counts as leaving from the moment of the decision. This stays so while the
server does not answer, or answers with an error that a retry may cure. If the victim cannot be
evicted, the engine receives `EvictionFailed`, and the preemptor searches for other victims at once.
If the server refused the write, this victim is left out for a while.
"""

from __future__ import annotations

from kueuelib.api import names
from kueuelib.api.meta import Obj
from kueuelib.controllers.local_queue_metrics import counted
from kueuelib.controllers.order_writer import OrderWriter
from kueuelib.errors import ApiError, NotFound
from kueuelib.workload import states
from kueuelib.workload.orders import Eviction

PREEMPTION_FAILED = "PreemptionFailed"


class Evictor:
    """Carries out evictions.

    Args:
        orders: writes the statuses.
    """

    def __init__(self, orders: OrderWriter) -> None:
        self._orders = orders

    async def evict(self, order: Eviction) -> None:
        """Evicts one victim.

        Raises:
            IllegalTransition: it no longer holds quota.
            NotFound: it is gone.
            ApiError: the server refuses.
            TransportError: no answer.
        """
        wl = await self._tell(order)
        if wl is not None:
            self._report(order, wl)

    async def _tell(self, order: Eviction) -> Obj | None:
        """Writes the eviction on the newest object; None if it is being evicted already."""
        orders = self._orders
        wl = orders.writer.newest(order.key)
        if wl is None or not states.phase_of(wl).holds_quota:
            await orders.writer.read(order.key)
        message = order.preemption.message(order.victim)

        def preempted(wl: Obj) -> Obj:
            if wl["metadata"]["uid"] != order.uid:
                raise NotFound(f"workload {order.key} is gone")
            return states.preempt(wl, order.victim.path.value, message, orders.clock.now())

        return await orders.write(order.key, preempted, "preemption")

    def _report(self, order: Eviction, wl: Obj) -> None:
        victim, preemption, orders = order.victim, order.preemption, self._orders
        queue, path = victim.holder.cluster_queue, victim.path.value
        orders.metrics.wrote("preemption", "ok")
        first = states.is_first_eviction(wl)
        orders.metrics.evicted(counted(wl), names.REASON_PREEMPTED, first=first)
        orders.metrics.preempted(preemption.cluster_queue, path)
        message = preemption.message(victim)
        ranks = preemption.ranks(victim)
        orders.event(wl, "Normal", f"EvictedDueTo{names.REASON_PREEMPTED}", message)
        orders.event(wl, "Normal", names.PREEMPTED, f"{message}; {ranks}")
        preemptor = orders.writer.newest(preemption.key)
        if preemptor is not None:
            told = (
                f"Preempted workload {victim.key} (UID: {victim.holder.uid}) in ClusterQueue "
                f"{queue}; {ranks}"
            )
            orders.event(preemptor, "Normal", "PreemptedWorkload", told)

    def refused(self, order: Eviction, error: ApiError) -> None:
        """Reports on the preemptor that the server refuses the eviction of the victim."""
        preemptor = self._orders.writer.newest(order.preemption.key)
        if preemptor is not None:
            message = f"Workload {order.key} could not be evicted: {error.message}"
            self._orders.event(preemptor, "Warning", PREEMPTION_FAILED, message)
