"""Tells the victims of a preemption to leave: one patch per victim (spec/scheduling 6.5, 6.7).

A victim counts as leaving in the engine from the moment of the decision. It stays so while there is
no answer from the server, or only such that a retry may help. When it turns out that the victim
cannot be told, the engine hears `EvictionFailed`, and the preemptor looks at once who else could
leave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from kueuelib.api import names
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.controllers import workload_state as states
from kueuelib.controllers.metrics import SchedulerMetrics
from kueuelib.controllers.status_writer import write_status
from kueuelib.controllers.workload_state import IllegalTransition
from kueuelib.errors import ApiError, Conflict, NotFound
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import Clock
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.logs import get_logger
from kueuelib.scheduler.events import Event, EvictionFailed
from kueuelib.scheduler.preemption.victims import Preemption, Victim

if TYPE_CHECKING:
    from kueuelib.runtime.events import EventRecorder

COMPONENT = "kueue-admission"
CONFLICTS = 4
"""How often a patch is rebuilt on a newer object before the retry waits."""
REFUSALS = 5
"""After how many refusals by the server a victim stays."""


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
        client: writes.
        workloads: the informer of Workloads.
        recorder: for events about victims and preemptors.
        metrics: evictions and preemptions.
        observe: tells the engine of a victim that stays.
        newest: the newest known state of a Workload.
        clock: tells the time of transitions.
    """

    def __init__(
        self,
        client: Client,
        workloads: Informer,
        recorder: EventRecorder,
        metrics: SchedulerMetrics,
        observe: Callable[[Event], None],
        newest: Callable[[ObjectKey], Obj | None],
        clock: Clock,
    ) -> None:
        self._client = client
        self._workloads = workloads
        self._recorder = recorder
        self._metrics = metrics
        self._observe = observe
        self._newest = newest
        self._clock = clock
        self._refusals: dict[ObjectKey, int] = {}
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
            if isinstance(error, Conflict) or error.code == 429 or error.code >= 500:
                raise
            self._refused(order, error)
        else:
            self._refusals.pop(order.key, None)
            if wl is not None:
                self._report(order, wl)

    async def _tell(self, order: Eviction) -> Obj | None:
        """Writes the eviction, on the newest object; None when it is being evicted already."""
        wl = self._newest(order.key)
        if wl is None or not states.phase_of(wl).holds_quota:
            wl = await self._client.get(self._workloads.resource, order.key)
        message = order.preemption.message(order.victim)
        for _ in range(CONFLICTS):
            if wl["metadata"]["uid"] != order.victim.holder.uid:
                raise NotFound(f"workload {order.key} is gone")
            new = states.preempt(wl, order.victim.path.value, message, self._clock.now())
            if new is wl:
                return None
            try:
                return await write_status(self._client, wl, new)
            except Conflict:
                self._metrics.wrote("preemption", "conflict")
                wl = await self._client.get(self._workloads.resource, order.key)
        raise Conflict(f"workload {order.key} changes too fast to be preempted")

    def _report(self, order: Eviction, wl: Obj) -> None:
        victim, preemption = order.victim, order.preemption
        queue, path = victim.holder.cluster_queue, victim.path.value
        self._metrics.wrote("preemption", "ok")
        self._metrics.evicted(queue, names.REASON_PREEMPTED)
        self._metrics.preempted(preemption.cluster_queue, path)
        message = preemption.message(victim)
        ranks = preemption.ranks(victim)
        self._event(wl, "Normal", f"EvictedDueTo{names.REASON_PREEMPTED}", message)
        self._event(wl, "Normal", names.PREEMPTED, f"{message}; {ranks}")
        preemptor = self._newest(preemption.key)
        if preemptor is not None:
            told = (
                f"Preempted workload {victim.key} (UID: {victim.holder.uid}) in ClusterQueue "
                f"{queue}; {ranks}"
            )
            self._event(preemptor, "Normal", "PreemptedWorkload", told)

    def _refused(self, order: Eviction, error: ApiError) -> None:
        """Counts a refusal; the last one lets the victim stay, the others are raised again."""
        count = self._refusals.get(order.key, 0) + 1
        self._metrics.wrote("preemption", "refused")
        if count < REFUSALS:
            self._refusals[order.key] = count
            raise error
        preemptor = self._newest(order.preemption.key)
        if preemptor is not None:
            message = f"Workload {order.key} could not be told to leave: {error.message}"
            self._event(preemptor, "Warning", "PreemptionFailed", message)
        self._stays(order, "refused")

    def _stays(self, order: Eviction, result: str) -> None:
        self._metrics.wrote("preemption", result)
        self._refusals.pop(order.key, None)
        self._observe(EvictionFailed(order.key))

    def _event(self, wl: Obj, type: str, reason: str, message: str) -> None:
        self._recorder.event(wl, type, reason, message, component=COMPONENT)
