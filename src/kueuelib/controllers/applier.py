"""Carries out the plans of the scheduler: admissions, evictions, and reasons to wait.

`kueuelib.workload.orders` decides what is written, and what to report to the engine about other
orders; two orders of one workload never run at once. Waiting, retries and their growing pauses are
those of the `Controller` that runs this reconciler.

An admission was already charged in the cache when it comes here (*assumed*). While there is no
answer from the server the assumption stays: nothing else could be written either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from kueuelib.api import names
from kueuelib.api.codec import decode, encode
from kueuelib.api.conversion import convert
from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.kueue import Admission, Workload
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.names import ADMITTED, QUOTA_RESERVED
from kueuelib.controllers.metrics import SchedulerMetrics
from kueuelib.controllers.queue_metrics import counted
from kueuelib.controllers.workload import job_of
from kueuelib.controllers.workload_metrics import count_late_admission
from kueuelib.errors import ApiError, Conflict, NotConnected, NotFound, TooManyRequests
from kueuelib.machinery.recurrence import EventType, Recent
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import DONE, Controller, Result
from kueuelib.runtime.failures import is_refusal
from kueuelib.runtime.logs import get_logger
from kueuelib.scheduler.decide.cycle import Admit, Wait
from kueuelib.scheduler.decide.cycle_values import NewPlaces, NodeEviction
from kueuelib.scheduler.decide.preemption.guard import PolicyFault
from kueuelib.scheduler.events import Event
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.workload import states
from kueuelib.workload.node_failures import moves_text
from kueuelib.workload.orders import Edge, Eviction, OrderBook, OrderEnd, Outcome, What, foregone
from kueuelib.workload.states import IllegalTransition, Phase
from kueuelib.workload.writer import StatusWriter

if TYPE_CHECKING:
    from kueuelib.runtime.events import EventRecorder
    from kueuelib.scheduler.engine import Settled


# ---- writes the statuses for the scheduler's orders: admissions, evictions, reasons to wait ------

COMPONENT = "kueue-admission"


@attrs.frozen(eq=False)
class OrderWriter:
    """Writes the statuses of Workloads on behalf of the scheduler, and reports the result.

    Attributes:
        writer: writes.
        recorder: for events about Workloads.
        metrics: counts writes, reservations, admissions and evictions.
        observe: reports the result of a decision to the engine.
        clock: stamps transitions.
        foreign: learns that somebody else reserved the quota that a Workload was to get.
    """

    writer: StatusWriter
    recorder: EventRecorder
    metrics: SchedulerMetrics
    observe: Callable[[Event], None]
    clock: Clock = SYSTEM_CLOCK
    foreign: Callable[[Obj], None] = lambda _: None

    async def write(
        self, key: ObjectKey, change: Callable[[Obj], Obj | None], what: str
    ) -> Obj | None:
        """Write a status on the newest object, and count conflicts; see `StatusWriter.change`.

        Args:
            key: the workload.
            change: returns the state to write; None, or the same object, for nothing.
            what: the kind of order, for metrics.
        """
        return await self.writer.change(
            key, change, conflict=lambda: self.metrics.wrote(what, "conflict")
        )

    def event(self, about: Obj, type: EventType, reason: str, message: str) -> None:
        """Report something about a Workload, or its job."""
        self.recorder.event(about, type, reason, message, component=COMPONENT)


# ---- decides when the reason to wait is written to a Workload ------------------------------------
# Such a write changes nothing, and is useless if the Workload is admitted soon after. So a waiting
# Workload first joins a line of its ClusterQueue. When the ClusterQueue is at rest, the reasons of
# the whole line are written, quickly but not at once. While it admits others, only a trickle is
# written, one ClusterQueue after the other. An admission removes the Workload from its line.

PAUSE = 0.1
"""Seconds between two looks at the lines, and the shortest wait in one."""
REPORTED_AT_ONCE = 20
"""How many reasons are written per look, for ClusterQueues at rest."""
TRICKLE = 0.2
"""Seconds between two Workloads of ClusterQueues that are not at rest."""
REST = 30.0
"""Seconds without an admission after which a ClusterQueue is at rest: on a slow server, one that
will admit soon pauses for many seconds, and would get more of these writes the slower it is.
"""


@attrs.define
class _UnwrittenReasons:
    """The Workloads that wait in a ClusterQueue, each with the earliest time to write its reason.

    Attributes:
        members: in the order of their arrival.
        admitted_at: when the ClusterQueue last admitted.
    """

    members: dict[ObjectKey, float] = attrs.field(factory=dict)
    admitted_at: float = float("-inf")

    def take(self, now: float, most: int) -> list[ObjectKey]:
        """Removes and returns those at the front that are due."""
        taken: list[ObjectKey] = []
        for key, due in self.members.items():
            if due > now or len(taken) >= most:
                break
            taken.append(key)
        for key in taken:
            del self.members[key]
        return taken


class UnwrittenReasons:
    """The Workloads that still need their reason. Instants are seconds of one clock."""

    def __init__(self) -> None:
        self._lines: dict[str, _UnwrittenReasons] = {}
        self._home: dict[ObjectKey, str] = {}
        self._trickles_at = float("-inf")

    def __bool__(self) -> bool:
        """Whether there is anything to look at: a line, or a ClusterQueue that is not at rest."""
        return bool(self._lines)

    def admitted(self, key: ObjectKey, cluster_queue: str, now: float) -> None:
        """A Workload no longer waits, and its ClusterQueue is not at rest."""
        self._leave(key)
        self._lines.setdefault(cluster_queue, _UnwrittenReasons()).admitted_at = now

    def waits(self, key: ObjectKey, cluster_queue: str, due: float) -> None:
        """There is something to report about a Workload at `due`; the earlier time wins."""
        if self._home.get(key) != cluster_queue:
            self._leave(key)
            self._home[key] = cluster_queue
        members = self._lines.setdefault(cluster_queue, _UnwrittenReasons()).members
        members[key] = min(due, members.get(key, due))

    def take(self, now: float) -> tuple[ObjectKey, ...]:
        """Removes and returns those whose reason is due now, at most `REPORTED_AT_ONCE` + 1."""
        taken: list[ObjectKey] = []
        for name, line in tuple(self._lines.items()):
            if now - line.admitted_at >= REST:
                taken += line.take(now, REPORTED_AT_ONCE - len(taken))
                if not line.members:
                    del self._lines[name]
            elif now >= self._trickles_at and (first := line.take(now, 1)):
                taken += first
                self._trickles_at = now + TRICKLE
                self._lines[name] = self._lines.pop(name)  # the others come first next time
        for key in taken:
            del self._home[key]
        return tuple(taken)

    def _leave(self, key: ObjectKey) -> None:
        name = self._home.pop(key, None)
        if name is not None:
            del self._lines[name].members[key]


class PendingReasonWriter:
    """Writes the reasons that are due; a part of a `Manager`.

    Args:
        report: writes why some Workloads wait; must return at once.
        clock: monotonic time.
    """

    def __init__(
        self, report: Callable[[tuple[ObjectKey, ...]], None], *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._report = report
        self._clock = clock
        self._lines = UnwrittenReasons()
        self._something = asyncio.Event()

    def admitted(self, key: ObjectKey, cluster_queue: str) -> None:
        """See `UnwrittenReasons.admitted`."""
        self._lines.admitted(key, cluster_queue, self._clock.monotonic())
        self._something.set()

    def waits(self, key: ObjectKey, cluster_queue: str, after: float) -> None:
        """There is something to report about a Workload in `after` seconds."""
        self._lines.waits(key, cluster_queue, self._clock.monotonic() + after)
        self._something.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Work until cancelled."""
        ready()
        while True:
            await self._something.wait()
            while self._lines:
                await self._clock.sleep(PAUSE)
                if keys := self._lines.take(self._clock.monotonic()):
                    self._report(keys)
            self._something.clear()


# --------------------------------------------------------------------------------------------------

MESSAGE_PAUSE = 1.0
"""Seconds by which a new message with an unchanged reason is delayed, to merge several into one."""
ADMISSION_PRIORITY = 10
WAIT_PRIORITY = -10
"""The priority of reasons to wait, below that of a repeated write."""
EVICTION_DELAY = 0.2
"""Seconds until the eviction of a victim is written, from its own admission on if that is written
first. If its preemptor gets quota before, because others have ended, the victim stays and loses no
work.
"""
REPORTED_FAULTS = 100
"""Faults of a preemption policy that are remembered, so that each is logged only once."""
AT_ONCE = 0.001
"""Seconds until an order that waited for another one is carried out."""
PREEMPTION_FAILED = "PreemptionFailed"
EVICTION_FAILED = "EvictionFailed"
ADMISSION_FAILED = "AdmissionFailed"
UNPLACED = "SecondPassFailed"
NODE_REPLACED = "NodeReplaced"
ADMISSION_REFUSED = "The admission could not be written: "
"""How the Events of that reason begin."""
PURPOSES = {
    Admit: "admission",
    Eviction: "preemption",
    NodeEviction: "eviction",
    NewPlaces: "placement",
    Wait: "wait",
}
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
        self._log = get_logger("applier")
        self._reported_failures = Recent()
        self._reported: dict[PolicyFault, None] = {}
        self.book = OrderBook()

    def submit(
        self, settled: Settled, controller: Controller, pending_reasons: PendingReasonWriter
    ) -> None:
        """Takes the orders of a plan; returns at once.

        Args:
            settled: the decisions of a cycle that the engine has charged.
            controller: the controller that runs this reconciler.
            pending_reasons: enqueues the reasons to wait there when their time has come.
        """
        for admission in settled.admissions:
            self._passed(self.book.submit(admission))
            pending_reasons.admitted(admission.key, admission.cluster_queue)
            controller.enqueue(admission.key, priority=ADMISSION_PRIORITY)
        for wait in settled.waits:
            if wait.transient:
                continue
            self._passed(self.book.submit(wait))
            pending_reasons.waits(wait.key, wait.cluster_queue, self._pause(wait))
        for wait in settled.unplaced:
            wl = self._written.writer.newest(wait.key)
            if wl is not None:
                self._written.event(wl, "Warning", UNPLACED, wait.message)
        for preemption in settled.preemptions:
            for victim in preemption.victims:
                order = Eviction(victim, preemption)
                self._passed(self.book.submit(order))
                after = _delay(order)
                controller.enqueue(victim.key, after=after, priority=ADMISSION_PRIORITY)
        others: tuple[What, ...] = (*settled.placed, *settled.evictions)
        for other in others:
            self._passed(self.book.submit(other))
            controller.enqueue(other.key, priority=ADMISSION_PRIORITY)
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
        return Result(requeue_after=_delay(after) or AT_ONCE, priority=ADMISSION_PRIORITY)

    def _passed(self, edge: Edge) -> None:
        """Counts what ended without being written, and reports it to the engine."""
        for over in edge.ended:
            what = over.order.what
            if over.how not in (OrderEnd.STORED, OrderEnd.REFUSED) and not isinstance(what, Wait):
                self._written.metrics.wrote(PURPOSES[type(what)], over.how.value)
        for event in edge.events:
            self._written.observe(event)

    async def _carry_out(self, what: What) -> Outcome:
        known = self._foregone(what)
        if known is not None:
            return known
        match what:
            case Admit():
                await self._reserve(what)
            case NewPlaces():
                await self._place(what)
            case Eviction() | NodeEviction():
                await self._evict(what)
            case Wait():
                await self._wait(what)
        return Outcome.STORED

    def _foregone(self, what: What) -> Outcome | None:
        return None if self._holder is None else foregone(what, self._holder)

    def _check_exists(self, wl: Obj, order: Admit | NewPlaces) -> None:
        """Refuses to write to another Workload of that name, or to one that is known to be gone.

        Raises:
            NotFound: it is gone.
        """
        if wl["metadata"]["uid"] != order.uid or self._foregone(order) is Outcome.GONE:
            raise NotFound(f"workload {order.key} is gone")

    async def _reserve(self, order: Admit) -> None:
        refused = False

        def reserved(wl: Obj) -> Obj | None:
            nonlocal refused
            self._check_exists(wl, order)
            if _is_done(wl, order):
                if refused:  # so it was not this order that was stored
                    self._written.foreign(wl)
                return None
            if wl["metadata"].get("generation") != order.workload.metadata.generation:
                raise IllegalTransition(wl, "reserve quota", "its spec changed")
            refused = True  # if this is called again
            now = self._written.clock.now()
            admission = _raw(order.admission, wl)
            return states.reserve(wl, admission, order.required_checks, now)

        wl = await self._written.write(order.key, reserved, "admission")
        if wl is not None:  # it was not stored before
            self._report_reservation(order, wl)

    def _report_reservation(self, order: Admit, wl: Obj) -> None:
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

    # ---- gives pods of a Workload with quota other places (KEP-2724) ----------------------------

    async def _place(self, order: NewPlaces) -> None:
        written = self._written
        before, after = order.workload.status.admission, order.admission
        replaced = [node.name for node in order.workload.status.unhealthy_nodes]

        def placed(wl: Obj) -> Obj | None:
            self._check_exists(wl, order)
            known = decode(Workload, wl).status.admission
            kept = before == after and {*replaced} & {*states.unhealthy_nodes(wl)}
            if known == after and not kept:
                return None
            if known != before:
                raise IllegalTransition(wl, "give places", "its admission changed")
            return states.place(wl, _raw(after, wl), replaced, written.clock.now())

        old = written.writer.newest(order.key)
        wl = await written.write(order.key, placed, PURPOSES[NewPlaces])
        if wl is None:  # it was stored before
            return
        written.metrics.wrote(PURPOSES[NewPlaces], "ok")
        if replaced and before is not None and (moves := moves_text(before, after)):
            text = f"Node {', '.join(replaced)} failed: {moves}"
            for about in (wl, job_of(wl)):
                if about is not None:
                    written.event(about, "Normal", NODE_REPLACED, text)
        if old is not None and states.is_admitted(wl) and not states.is_admitted(old):
            checked = count_late_admission(written.metrics, wl, written.clock.now())
            text = (
                f"Admitted by ClusterQueue {order.cluster_queue}, "
                f"wait time since reservation was {checked:.0f}s"
            )
            written.event(wl, "Normal", ADMITTED, text)

    def _refused(self, what: What, error: ApiError) -> None:
        """Reports that an order is given up, or keeps failing; once a minute."""
        now = self._written.clock.monotonic()
        if not self._reported_failures.is_new((what.key, type(what)), error.message, now):
            return
        match what:
            case Admit():
                key, reason = what.key, ADMISSION_FAILED
                message = f"{ADMISSION_REFUSED}{error.message}"
            case NewPlaces():
                key, reason = what.key, ADMISSION_FAILED
                message = f"The topology assignment could not be written: {error.message}"
            case NodeEviction():
                key, reason = what.key, EVICTION_FAILED
                message = f"The eviction could not be written: {error.message}"
            case Eviction():
                key, reason = what.preemption.key, PREEMPTION_FAILED
                message = f"Workload {what.key} could not be evicted: {error.message}"
            case Wait():
                return
        wl = self._written.writer.newest(key)
        if wl is not None:
            self._written.event(wl, "Warning", reason, message)

    # ---- evicts the victims of a preemption: one patch per victim (KEP-83) ----------------------
    # In the engine, a victim counts as leaving from the moment of the decision. This stays so while
    # the server does not answer, or answers with an error that a retry may cure. If the victim
    # cannot be evicted, the engine receives `EvictionFailed`, and the preemptor searches for other
    # victims at once. If the server refused the write, this victim is left out for a while.

    async def _evict(self, order: Eviction | NodeEviction) -> None:
        writer, now = self._written.writer, self._written.clock.now
        wl = writer.newest(order.key)
        if wl is None or not states.phase_of(wl).holds_quota:
            await writer.read(order.key)

        def evicted(wl: Obj) -> Obj:
            if wl["metadata"]["uid"] != order.uid:
                raise NotFound(f"workload {order.key} is gone")
            if isinstance(order, NodeEviction):
                return states.evict(wl, names.REASON_NODE_FAILURES, order.message, now())
            message = order.preemption.message(order.victim)
            return states.preempt(wl, order.victim.path.value, message, now())

        wl = await self._written.write(order.key, evicted, PURPOSES[type(order)])
        if wl is None:  # it was being evicted before
            return
        if isinstance(order, Eviction):
            self._report_preemption(order, wl)
            return
        metrics, reason = self._written.metrics, names.REASON_NODE_FAILURES
        metrics.wrote(PURPOSES[NodeEviction], "ok")
        metrics.evicted(counted(wl), reason, first=states.is_first_eviction(wl))
        self._written.event(wl, "Normal", f"EvictedDueTo{reason}", order.message)

    def _report_preemption(self, order: Eviction, wl: Obj) -> None:
        victim, preemption, written = order.victim, order.preemption, self._written
        queue, path = victim.holder.cluster_queue, victim.path.value
        written.metrics.wrote("preemption", "ok")
        first = states.is_first_eviction(wl)
        written.metrics.evicted(counted(wl), names.REASON_PREEMPTED, first=first)
        written.metrics.preempted(preemption.cluster_queue, path)
        message = preemption.message(victim)
        ranks = preemption.ranks(victim)
        written.event(wl, "Normal", f"EvictedDueTo{names.REASON_PREEMPTED}", message)
        written.event(wl, "Normal", names.PREEMPTED, f"{message}; {ranks}")
        preemptor = written.writer.newest(preemption.key)
        if preemptor is not None:
            text = (
                f"Preempted workload {victim.key} (UID: {victim.holder.uid}) in ClusterQueue "
                f"{queue}; {ranks}"
            )
            written.event(preemptor, "Normal", "PreemptedWorkload", text)

    # ---- reasons to wait ------------------------------------------------------------------------

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


def _delay(order: What) -> float:
    """Seconds until an order is carried out."""
    is_delayed = isinstance(order, Eviction) and not order.preemption.reserved
    return EVICTION_DELAY if is_delayed else 0.0


def _raw(admission: Admission, wl: Obj) -> Obj:
    """An admission in the version of a raw Workload."""
    head = {"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind}
    whole = {**head, "status": {"admission": encode(admission)}}
    raw: Obj = convert(whole, wl["apiVersion"].rpartition("/")[2])["status"]["admission"]
    return raw


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
