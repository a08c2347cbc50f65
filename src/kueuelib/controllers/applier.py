"""Carries out the plans of the scheduler: one patch per admission (spec/scheduling 4.4, 4.6), and
one per victim of a preemption (`kueuelib.controllers.evictions`).

The newest order of a workload counts; two orders of one workload never run at once. Waiting,
retries and their growing pauses are those of the `Controller` that runs this reconciler.

An admission was already charged in the cache when it comes here (*assumed*). It ends in one of
three ways: the patch is stored, and its delta confirms the assumption; the workload has changed so
that the plan is void; or the server refuses it repeatedly. In the last two cases the assumption is
taken back (`Forgotten`), which queues the workload again. While there is no answer from the server
the assumption stays: nothing else could be written either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kueuelib.api.codec import encode
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.names import QUOTA_RESERVED
from kueuelib.controllers.evictions import Eviction, Evictor
from kueuelib.controllers.orders import Orders, Refusals
from kueuelib.errors import ApiError, NotFound
from kueuelib.runtime.controller import DONE, Controller, Result
from kueuelib.runtime.logs import get_logger
from kueuelib.scheduler.cycle import Admit, Wait
from kueuelib.scheduler.events import Confirmed, Forgotten
from kueuelib.workload import states
from kueuelib.workload.states import IllegalTransition, Phase

if TYPE_CHECKING:
    from kueuelib.scheduler.engine import Settled

MESSAGE_PAUSE = 1.0
"""Seconds by which a new message with an old reason is delayed, so that several become one."""
ADMISSION_PRIORITY = 10


class Applier:
    """Writes admissions and the reasons of those that wait.

    Args:
        written: what orders are carried out with.
    """

    def __init__(self, written: Orders) -> None:
        self._written = written
        self._orders: dict[ObjectKey, Admit | Wait | Eviction] = {}
        self._under_way: set[ObjectKey] = set()
        self._evictor = Evictor(written)
        self._refusals = Refusals("admission", written.metrics)
        self._log = get_logger("applier")

    def submit(self, settled: Settled, controller: Controller) -> None:
        """Takes the orders of a plan; returns at once.

        Args:
            settled: what a cycle decided and the engine charged.
            controller: the controller that runs this reconciler.
        """
        for admission in settled.admissions:
            self._orders[admission.key] = admission
            controller.enqueue(admission.key, priority=ADMISSION_PRIORITY)
        for wait in settled.waits:
            if wait.transient:
                continue
            self._orders[wait.key] = wait
            controller.enqueue(wait.key, after=self._pause(wait))
        for preemption in settled.preemptions:
            for victim in preemption.victims:
                self._preempt(Eviction(victim, preemption), controller)

    def _preempt(self, eviction: Eviction, controller: Controller) -> None:
        """Takes the order to evict; an admission that nobody began to write is just forgotten."""
        key = eviction.key
        before = self._orders.get(key)
        if isinstance(before, Admit) and key not in self._under_way:
            self._take_back(before, "preempted")
            return
        self._orders[key] = eviction
        controller.enqueue(key, priority=ADMISSION_PRIORITY)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Carries out the newest order of one workload.

        Raises:
            ApiError: the server refuses; the order stays, and is tried again.
            TransportError: no answer; the same.
        """
        order = self._orders.get(key)
        if order is None:
            return DONE
        self._under_way.add(key)
        try:
            if isinstance(order, Admit):
                await self._admit(order)
            elif isinstance(order, Eviction):
                await self._evictor.evict(order)
            else:
                await self._wait(order)
        finally:
            self._under_way.discard(key)
        if self._orders.get(key) is order:
            del self._orders[key]
        return DONE

    async def _admit(self, order: Admit) -> None:
        try:
            wl = await self._reserve(order)
        except IllegalTransition as error:
            self._log.info("admission is void", workload=str(order.key), why=error.problem)
            self._take_back(order, "void")
            return
        except NotFound:
            self._take_back(order, "gone")
            return
        except ApiError as error:
            self._refused(order, error)
            return
        self._refusals.forget(order.key)
        if wl is not None:
            confirmed = Confirmed(order.key, wl["metadata"]["resourceVersion"])
            self._written.observe(confirmed)
            self._report(order, wl)

    async def _reserve(self, order: Admit) -> Obj | None:
        """Writes the reservation, on the newest object; None when it was stored before."""
        admission = encode(order.admission)

        def reserved(wl: Obj) -> Obj | None:
            if wl["metadata"]["uid"] != order.uid:
                raise NotFound(f"workload {order.key} is gone")
            if _is_done(wl, order):
                return None
            if wl["metadata"].get("generation") != order.workload.metadata.generation:
                raise IllegalTransition(wl, "reserve quota", "its spec changed")
            now = self._written.clock.now()
            return states.reserve(wl, admission, order.required_checks, now)

        newest = self._written.newest(order.key)
        return await self._written.write(order.key, newest, reserved, "admission")

    def _report(self, order: Admit, wl: Obj) -> None:
        written, metrics = self._written, self._written.metrics
        metrics.wrote("admission", "ok")
        metrics.reserved(order.cluster_queue, order.wait_seconds)
        written.event(
            wl,
            "Normal",
            QUOTA_RESERVED,
            f"Quota reserved in ClusterQueue {order.cluster_queue}, "
            f"wait time since queued was {order.wait_seconds:.0f}s",
        )
        if states.is_admitted(wl):
            metrics.admitted(order.cluster_queue, order.wait_seconds, 0.0)
            written.event(
                wl,
                "Normal",
                "Admitted",
                f"Admitted by ClusterQueue {order.cluster_queue}, "
                "wait time since reservation was 0s",
            )

    def _refused(self, order: Admit, error: ApiError) -> None:
        """Counts a refusal; the last one takes the assumption back, the others are raised again."""
        self._refusals.add(order.key, error)
        wl = self._written.workloads.store.get(order.key)
        if wl is not None:
            message = f"The admission could not be written: {error.message}"
            self._written.event(wl, "Warning", "AdmissionFailed", message)
        self._take_back(order, "refused")

    def _take_back(self, order: Admit, result: str) -> None:
        self._written.metrics.wrote("admission", result)
        self._refusals.forget(order.key)
        if self._orders.get(order.key) is order:
            del self._orders[order.key]
        self._written.observe(Forgotten(order.key))

    async def _wait(self, order: Wait) -> None:
        written = self._written

        def waits(wl: Obj) -> Obj | None:
            if wl["metadata"]["uid"] != order.uid or not _may_wait(wl):
                return None
            return states.wait(wl, order.condition_reason, order.message, written.clock.now())

        try:
            wl = await written.write(order.key, written.newest(order.key), waits, "wait")
        except NotFound:
            return
        if wl is not None:
            written.remember(order.key, wl)
            written.metrics.wrote("wait", "ok")
            written.event(wl, "Warning", order.condition_reason, order.message)

    def _pause(self, order: Wait) -> float:
        wl = self._written.newest(order.key)
        known = states.condition(wl, QUOTA_RESERVED).get("reason") if wl is not None else None
        return MESSAGE_PAUSE if known == order.condition_reason else 0.0


def _is_done(wl: Obj, order: Admit) -> bool:
    """Whether the reservation was stored by an earlier try whose answer was lost."""
    admission = states.status_of(wl).get("admission") or {}
    return (
        states.phase_of(wl) in (Phase.RESERVED, Phase.ADMITTED)
        and admission.get("clusterQueue") == order.cluster_queue
    )


def _may_wait(wl: Obj) -> bool:
    return (
        states.phase_of(wl) is Phase.PENDING and states.is_active(wl) and not states.is_deleted(wl)
    )
