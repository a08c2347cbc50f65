"""Repeats on jobs why their Workloads wait; `kueuelib.workload.job_events` decides."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.controllers.workload import COMPONENT, Informers, owners_of
from kueuelib.machinery.store import Delta
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import DONE, Result
from kueuelib.workload import states
from kueuelib.workload.job_events import HOLD, SaidReason, next_event, reason_of

if TYPE_CHECKING:
    from kueuelib.runtime.events import EventSink

KNOWN_FOR: Final = HOLD
"""Seconds for which the places in a ClusterQueue are not computed again. What an Event is about has
waited longer, so it is among them.
"""
MOST: Final = 2000
"""Workloads in a ClusterQueue for which places are computed: sorting more holds up admissions."""


class Standings(Protocol):
    """What the decision engine knows about the Workloads that wait."""

    def waits_in(self, name: str) -> int:
        """How many wait in a ClusterQueue."""
        ...

    def places(self, name: str) -> Mapping[ObjectKey, object]:
        """Those that wait in a ClusterQueue, in its order."""
        ...


class CachedPlaces:
    """The places of Workloads in their ClusterQueues, up to `KNOWN_FOR` seconds old.

    Args:
        engine: knows the order.
    """

    def __init__(self, engine: Standings) -> None:
        self._engine = engine
        self._computed: dict[str, dict[ObjectKey, int]] = {}

    def of(self, key: ObjectKey, cluster_queue: str) -> int | None:
        """The place of a Workload, from 1; None if it has none, or if too many wait."""
        if self._engine.waits_in(cluster_queue) > MOST:
            return None
        places = self._computed.get(cluster_queue)
        if places is None:
            places = {each: at for at, each in enumerate(self._engine.places(cluster_queue), 1)}
            self._computed[cluster_queue] = places
            asyncio.get_running_loop().call_later(
                KNOWN_FOR, self._computed.pop, cluster_queue, None
            )
        return places.get(key)


class JobEventReconciler:
    """Records the Events of the job of one Workload; writes nothing itself.

    Args:
        informers: the informers of the queueing objects.
        recorder: records them, with the Events of Workloads and after other writes.
        places: of Workloads in their ClusterQueues.
        clock: monotonic time.
    """

    def __init__(
        self,
        informers: Informers,
        recorder: EventSink,
        places: CachedPlaces,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._informers = informers
        self._recorder = recorder
        self._places = places
        self._clock = clock
        self._said: dict[ObjectKey, SaidReason] = {}

    async def reconcile(self, key: ObjectKey) -> Result:
        """Record what is due, and come back when more is."""
        wl, now = self._informers.workloads.store.get(key), self._clock.monotonic()
        place = None if wl is None else self._place(key, wl)
        step = next_event(self._said.get(key), wl, place, now)
        if step.said is None:
            self._said.pop(key, None)
        else:
            self._said[key] = step.said
            if wl is not None and (note := step.note) is not None:
                about = next(each for each in owners_of(wl) if each["uid"] == step.said.uid)
                self._recorder.event(
                    about, note.type, note.reason, note.message, component=COMPONENT
                )
        if step.look_again is None:
            return DONE
        return Result(requeue_after=max(step.look_again - now, 0.001))

    def _place(self, key: ObjectKey, wl: Obj) -> int | None:
        if states.has_quota(wl):
            return None
        queue = ObjectKey(key.namespace, wl["spec"].get("queueName") or "")
        return self._places.of(key, self._informers.cluster_queue_of(queue))

    def is_news(self, delta: Delta[Obj]) -> bool:
        """Whether a change of a Workload may lead to an Event.

        What an earlier leader found is not said again.
        """
        old, new = delta.old, delta.new
        if new is None:
            return delta.key in self._said
        return not delta.initial and _gist(new) != (None if old is None else _gist(old))


def _gist(wl: Obj) -> tuple[str, str] | None:
    reason = reason_of(wl)
    return None if reason is None else (reason.uid, reason.cause)
