"""Tells the victims of a preemption to leave: one patch per victim (spec/scheduling 6.5, 6.7).

A victim counts as leaving in the engine from the moment of the decision. It stays so while there is
no answer from the server, or only such that a retry may help. When it turns out that the victim
cannot be told, the engine hears `EvictionFailed`, and the preemptor looks at once who else could
leave.
"""

from __future__ import annotations

import attrs

from kueuelib.api import names
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.controllers.orders import Orders, Refusals
from kueuelib.errors import ApiError, NotFound
from kueuelib.runtime.logs import get_logger
from kueuelib.scheduler.events import EvictionFailed
from kueuelib.scheduler.preemption.victims import Preemption, Victim
from kueuelib.workload import states
from kueuelib.workload.states import IllegalTransition


@attrs.frozen(eq=False)
class Eviction:
    """The order to tell one victim to leave.

    Attributes:
        victim: who.
        preemption: for whom.
    """

    victim: Victim
    preemption: Preemption

    @property
    def key(self) -> ObjectKey:
        """The victim."""
        return self.victim.key


class Evictor:
    """Carries out evictions.

    Args:
        orders: what they are carried out with.
    """

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._refusals = Refusals("preemption", orders.metrics)
        self._log = get_logger("evictor")

    async def evict(self, order: Eviction) -> None:
        """Tells one victim to leave.

        Raises:
            ApiError: the server refuses, and may agree later.
            TransportError: no answer.
        """
        try:
            wl = await self._tell(order)
        except IllegalTransition as error:
            self._log.info("eviction is void", workload=str(order.key), why=error.problem)
            self._stays(order, "void")
        except NotFound:
            self._stays(order, "gone")
        except ApiError as error:
            self._refused(order, error)
        else:
            self._refusals.forget(order.key)
            if wl is not None:
                self._report(order, wl)

    async def _tell(self, order: Eviction) -> Obj | None:
        """Writes the eviction, on the newest object; None when it is being evicted already."""
        orders = self._orders
        wl = orders.newest(order.key)
        if wl is None or not states.phase_of(wl).holds_quota:
            wl = await orders.read(order.key)
        message = order.preemption.message(order.victim)

        def preempted(wl: Obj) -> Obj:
            if wl["metadata"]["uid"] != order.victim.holder.uid:
                raise NotFound(f"workload {order.key} is gone")
            return states.preempt(wl, order.victim.path.value, message, orders.clock.now())

        return await orders.write(order.key, wl, preempted, "preemption")

    def _report(self, order: Eviction, wl: Obj) -> None:
        victim, preemption, orders = order.victim, order.preemption, self._orders
        queue, path = victim.holder.cluster_queue, victim.path.value
        orders.metrics.wrote("preemption", "ok")
        orders.metrics.evicted(queue, names.REASON_PREEMPTED)
        orders.metrics.preempted(preemption.cluster_queue, path)
        message = preemption.message(victim)
        ranks = preemption.ranks(victim)
        orders.event(wl, "Normal", f"EvictedDueTo{names.REASON_PREEMPTED}", message)
        orders.event(wl, "Normal", names.PREEMPTED, f"{message}; {ranks}")
        preemptor = orders.newest(preemption.key)
        if preemptor is not None:
            told = (
                f"Preempted workload {victim.key} (UID: {victim.holder.uid}) in ClusterQueue "
                f"{queue}; {ranks}"
            )
            orders.event(preemptor, "Normal", "PreemptedWorkload", told)

    def _refused(self, order: Eviction, error: ApiError) -> None:
        """Counts a refusal; the last one lets the victim stay, the others are raised again."""
        self._refusals.add(order.key, error)
        preemptor = self._orders.newest(order.preemption.key)
        if preemptor is not None:
            message = f"Workload {order.key} could not be told to leave: {error.message}"
            self._orders.event(preemptor, "Warning", "PreemptionFailed", message)
        self._stays(order, "refused")

    def _stays(self, order: Eviction, result: str) -> None:
        self._orders.metrics.wrote("preemption", result)
        self._refusals.forget(order.key)
        self._orders.observe(EvictionFailed(order.key))
