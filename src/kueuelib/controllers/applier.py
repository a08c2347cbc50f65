"""Carries out the plans of the scheduler: one patch per admission.

The patches of victims are in `kueuelib.controllers.evictions`.

`kueuelib.workload.orders` decides what is written, and what to report to the engine about other
orders; two orders of one workload never run at once. Waiting, retries and their growing pauses are
those of the `Controller` that runs this reconciler.

An admission was already charged in the cache when it comes here (*assumed*). While there is no
answer from the server the assumption stays: nothing else could be written either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kueuelib.api.codec import encode
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.names import QUOTA_RESERVED
from kueuelib.controllers.evictions import Evictor
from kueuelib.controllers.local_queue_metrics import counted
from kueuelib.controllers.order_writer import OrderWriter
from kueuelib.errors import ApiError, Conflict, NotConnected, NotFound, TooManyRequests
from kueuelib.machinery.repetition import Recent
from kueuelib.runtime.controller import DONE, Controller, Result
from kueuelib.runtime.failures import is_refusal
from kueuelib.runtime.logs import get_logger
from kueuelib.scheduler.decide.cycle import Admit, Wait
from kueuelib.scheduler.decide.preemption.guard import PolicyFault
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.workload import states
from kueuelib.workload.orders import Edge, End, Eviction, OrderBook, Outcome, What, foregone
from kueuelib.workload.states import IllegalTransition, Phase

if TYPE_CHECKING:
    from kueuelib.controllers.teller import Teller
    from kueuelib.scheduler.engine import Settled

MESSAGE_PAUSE = 1.0
"""Seconds by which a new message with an unchanged reason is delayed, to merge several into one."""
ADMISSION_PRIORITY = 10
WAIT_PRIORITY = -10
"""The priority of reasons to wait, below that of a repeated write."""
REPORTED_FAULTS = 100
"""Faults of a preemption policy that are remembered, so that each is logged only once."""
AT_ONCE = 0.001
"""Seconds until an order that waited for another one is carried out."""
ADMISSION_FAILED = "AdmissionFailed"
ADMISSION_REFUSED = "The admission could not be written: "
"""How the Events of that reason begin."""
PURPOSES = {Admit: "admission", Eviction: "preemption", Wait: "wait"}
"""The names of the kinds of orders in metrics and logs."""


class Applier:
    """Writes admissions, evictions, and the reasons of waiting Workloads.

    Args:
        written: writes the statuses.
        holder: what the engine charges a workload, None for nothing.
    """

    def __init__(
        self, written: OrderWriter, holder: Callable[[ObjectKey], Holder | None] | None = None
    ) -> None:
        self._written = written
        self._holder = holder
        self._evictor = Evictor(written)
        self._log = get_logger("applier")
        self._told = Recent()
        self._reported: dict[PolicyFault, None] = {}
        self.book = OrderBook()

    def submit(self, settled: Settled, controller: Controller, teller: Teller) -> None:
        """Takes the orders of a plan; returns at once.

        Args:
            settled: the decisions of a cycle that the engine has charged.
            controller: the controller that runs this reconciler.
            teller: enqueues the reasons to wait there when their time has come.
        """
        for admission in settled.admissions:
            self._take(admission)
            teller.admitted(admission.key, admission.cluster_queue)
            controller.enqueue(admission.key, priority=ADMISSION_PRIORITY)
        for wait in settled.waits:
            if wait.transient:
                continue
            self._take(wait)
            teller.waits(wait.key, wait.cluster_queue, self._pause(wait))
        for preemption in settled.preemptions:
            for victim in preemption.victims:
                self._take(Eviction(victim, preemption))
                controller.enqueue(victim.key, priority=ADMISSION_PRIORITY)
        for fault in settled.faults:
            self._written.metrics.policy_failed(fault.policy)
            if fault not in self._reported:
                if len(self._reported) >= REPORTED_FAULTS:
                    self._reported.clear()
                self._reported[fault] = None
                self._log.error(
                    "the preemption policy failed, Kueue's own rules decide instead",
                    policy=fault.policy,
                    fault=fault.message,
                )

    async def reconcile(self, key: ObjectKey) -> Result:
        """Carries out the next order of one workload.

        Raises:
            ApiError: the server refuses; the order stays, and is tried again.
            TransportError: no answer; the same.
        """
        order = self.book.begin(key)
        if order is None:
            return DONE
        outcome, why = Outcome.UNKNOWN, ""
        try:
            outcome = await self._carry_out(order.what)
        except IllegalTransition as error:
            outcome = Outcome.VOID
            what = PURPOSES[type(order.what)]
            self._log.info(f"{what} is void", workload=str(key), why=error.problem)
        except NotFound:
            outcome = Outcome.GONE
        except NotConnected:
            outcome = Outcome.AGAIN
            raise
        except ApiError as error:
            outcome, why = _outcome_of(error), error.message
            if outcome is Outcome.UNKNOWN and is_refusal(error):
                self._refused(order.what, error)
            if outcome is Outcome.REFUSED:
                self._written.metrics.wrote(PURPOSES[type(order.what)], "refused")
            if outcome is not Outcome.REFUSED or not self.book.gives_up(order):
                raise
            self._refused(order.what, error)
        finally:  # also when it is cancelled or fails unexpectedly
            self._passed(self.book.end(order, outcome, why))
        after = self.book.waits(key)
        if after is None or isinstance(after, Wait):
            return DONE
        return Result(requeue_after=AT_ONCE, priority=ADMISSION_PRIORITY)

    def _take(self, what: What) -> None:
        self._passed(self.book.submit(what))

    def _passed(self, edge: Edge) -> None:
        """Counts what ended without being written, and reports it to the engine."""
        for over in edge.ended:
            what = over.order.what
            if over.how not in (End.STORED, End.REFUSED) and not isinstance(what, Wait):
                self._written.metrics.wrote(PURPOSES[type(what)], over.how.value)
        for event in edge.events:
            self._written.observe(event)

    async def _carry_out(self, what: What) -> Outcome:
        known = self._foregone(what)
        if known is not None:
            return known
        match what:
            case Admit():
                await self._admit(what)
            case Eviction():
                await self._evictor.evict(what)
            case Wait():
                await self._wait(what)
        return Outcome.STORED

    def _foregone(self, what: What) -> Outcome | None:
        return None if self._holder is None else foregone(what, self._holder(what.key))

    async def _admit(self, order: Admit) -> None:
        wl = await self._reserve(order)
        if wl is not None:
            self._report(order, wl)

    async def _reserve(self, order: Admit) -> Obj | None:
        """Writes the reservation on the newest object; None if it was stored before."""
        admission, refused = encode(order.admission), False

        def reserved(wl: Obj) -> Obj | None:
            nonlocal refused
            if wl["metadata"]["uid"] != order.uid or self._foregone(order) is Outcome.GONE:
                raise NotFound(f"workload {order.key} is gone")
            if _is_done(wl, order):
                if refused:  # so it was not this order that was stored
                    self._written.foreign(wl)
                return None
            if wl["metadata"].get("generation") != order.workload.metadata.generation:
                raise IllegalTransition(wl, "reserve quota", "its spec changed")
            refused = True  # if this is called again
            now = self._written.clock.now()
            return states.reserve(wl, admission, order.required_checks, now)

        return await self._written.write(order.key, reserved, "admission")

    def _report(self, order: Admit, wl: Obj) -> None:
        written, metrics = self._written, self._written.metrics
        metrics.wrote("admission", "ok")
        where = counted(wl)
        metrics.reserved(where, order.wait_seconds)
        written.event(
            wl,
            "Normal",
            QUOTA_RESERVED,
            f"Quota reserved in ClusterQueue {order.cluster_queue}, "
            f"wait time since queued was {order.wait_seconds:.0f}s",
        )
        if states.is_admitted(wl):
            metrics.admitted(where, order.wait_seconds, 0.0)
            written.event(
                wl,
                "Normal",
                "Admitted",
                f"Admitted by ClusterQueue {order.cluster_queue}, "
                "wait time since reservation was 0s",
            )

    def _refused(self, what: What, error: ApiError) -> None:
        """Reports that an order is given up, or keeps failing; once a minute."""
        now = self._written.clock.monotonic()
        if not self._told.is_new((what.key, type(what)), error.message, now):
            return
        if isinstance(what, Eviction):
            self._evictor.refused(what, error)
            return
        wl = self._written.writer.newest(what.key)
        if wl is not None and isinstance(what, Admit):
            message = f"{ADMISSION_REFUSED}{error.message}"
            self._written.event(wl, "Warning", ADMISSION_FAILED, message)

    async def _wait(self, order: Wait) -> None:
        written = self._written
        requests = [encode(request) for request in order.resource_requests] or None

        def waits(wl: Obj) -> Obj | None:
            if wl["metadata"]["uid"] != order.uid or not _may_wait(wl):
                return None
            now = written.clock.now()
            return states.wait(wl, order.condition_reason, order.message, now, requests)

        wl = await written.write(order.key, waits, "wait")
        if wl is not None:
            written.metrics.wrote("wait", "ok")
            written.event(wl, "Warning", order.condition_reason, order.message)

    def _pause(self, order: Wait) -> float:
        wl = self._written.writer.newest(order.key)
        known = states.condition(wl, QUOTA_RESERVED).get("reason") if wl is not None else None
        return MESSAGE_PAUSE if known == order.condition_reason else 0.0


def _outcome_of(error: ApiError) -> Outcome:
    """What the failure of a write means for the order."""
    if error.code >= 500:
        return Outcome.UNKNOWN
    if isinstance(error, Conflict | TooManyRequests):
        return Outcome.AGAIN
    return Outcome.REFUSED


def _is_done(wl: Obj, order: Admit) -> bool:
    """Whether an earlier try stored the reservation, and its answer was lost."""
    admission = states.status_of(wl).get("admission") or {}
    return (
        states.phase_of(wl) in (Phase.RESERVED, Phase.ADMITTED)
        and admission.get("clusterQueue") == order.cluster_queue
    )


def _may_wait(wl: Obj) -> bool:
    return (
        states.phase_of(wl) is Phase.PENDING and states.is_active(wl) and not states.is_deleted(wl)
    )
