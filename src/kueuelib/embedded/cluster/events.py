"""The events of the simulated cluster: written in the background, a few per second, dropped
under load.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from functools import partialmethod
from typing import Any

from kueuelib.api.kinds import EVENTS
from kueuelib.api.meta import Obj
from kueuelib.embedded.cluster.clock import Clock
from kueuelib.embedded.cluster.contract import CONTROLLERS, DEFAULT_SCHEDULER, KUBELET, SCHEDULER
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.verbs import WriteOptions
from kueuelib.errors import ApiError, NotFound
from kueuelib.machinery.event_series import (
    CreateEvent,
    EventFacts,
    EventSeries,
    EventType,
    PatchEvent,
)
from kueuelib.machinery.rate_limits import TokenBucket

BACKLOG = 256
_PER_SECOND = 200.0
_BURST = 50
_REMEMBERED = 512
_PROGRAMS = {KUBELET: KUBELET, DEFAULT_SCHEDULER: SCHEDULER}
_REFERENCE = ("kind", "apiVersion")
_IDENTITY = ("namespace", "name", "uid", "resourceVersion")


def reference_to(obj: Mapping[str, Any]) -> Obj:
    """The reference of an event to its object."""
    meta = obj["metadata"]
    reference = {key: obj[key] for key in _REFERENCE if obj.get(key)}
    return reference | {key: meta[key] for key in _IDENTITY if meta.get(key)}


class Events:
    """Writes events one after the other; excess events are dropped."""

    def __init__(self, service: ApiService, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._series = EventSeries(remembered=_REMEMBERED)
        self._bucket = TokenBucket(_PER_SECOND, _BURST)
        self._backlog: deque[EventFacts] = deque(maxlen=BACKLOG)
        self._wake = asyncio.Event()
        self._writing = False

    @property
    def idle(self) -> bool:
        """Whether everything is written."""
        return not self._backlog and not self._writing

    def record(
        self, type_: EventType, obj: Mapping[str, Any], component: str, reason: str, message: str
    ) -> None:
        """Record an event: `normal` or a `warning`."""
        self._backlog.append(EventFacts(reference_to(obj), type_, reason, message, component))
        self._wake.set()

    normal = partialmethod(record, "Normal")
    warning = partialmethod(record, "Warning")

    async def run(self) -> None:
        """Writes until it is cancelled."""
        timer = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._backlog:
                self._writing = True
                await self._write(self._backlog.popleft())
                self._writing = False
                delay = self._bucket.when("", timer.time())
                if delay > 0:
                    await asyncio.sleep(delay)

    async def _write(self, facts: EventFacts) -> None:
        now = self._clock.now()
        write: CreateEvent | PatchEvent | None = self._series.record(facts, now)
        options = WriteOptions(field_manager=_PROGRAMS.get(facts.component, CONTROLLERS))
        if isinstance(write, PatchEvent):
            try:
                await self._service.patch(EVENTS, write.key, write.patch, options=options)
            except NotFound:
                write = self._series.lost(write.series, now)
            except ApiError:
                return
        if isinstance(write, CreateEvent):
            try:
                await self._service.create(EVENTS, write.obj, options=options)
            except ApiError:
                # Its namespace is being deleted, so the event has no readers.
                self._series.forget(write.series)
