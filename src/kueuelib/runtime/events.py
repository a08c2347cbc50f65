"""Writes Kubernetes Events without ever making a reconciler wait."""

from __future__ import annotations

import asyncio
import random
import socket
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import attrs

from kueuelib.api.forms import Typed, raw_of
from kueuelib.api.kinds import EVENTS
from kueuelib.errors import AlreadyExists, ApiError, ConfigError, NotFound, TransportError
from kueuelib.machinery.recurrence import (
    CreateEvent,
    EventFacts,
    EventSeries,
    EventType,
    PatchEvent,
)
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.steps import lasting_tasks

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry

QUEUE_SIZE = 20_000
"""Events that wait to be written, 15 to 35 MB; further ones are dropped."""
POLITE = 2000
"""If more events wait, they let no other writes go first."""
LANES = 4
"""Events that are written at a time, of different objects."""
TRIES = 12
"""How often one event is sent when the server cannot be reached."""
RETRY_DELAY = 10.0
"""Seconds between two tries, a quarter more or less."""
LOOK = 0.25
"""Seconds between two checks whether other writes still go first."""
WAY = 5.0
"""Seconds for which an event lets other writes go first, at most."""
FLUSH = 3.0
"""Seconds that the recorder has for what is queued when it stops; the log says what is left."""


class EventSink(Protocol):
    """Reports what happens to objects: an `EventRecorder`, or what a test puts in its place."""

    def event(
        self,
        obj_or_ref: Mapping[str, Any],
        type: EventType,
        reason: str,
        message: str,
        component: str | None = None,
    ) -> None:
        """Report one event about an object; returns at once."""


@attrs.define(eq=False)
class _Lane:
    """Events of some objects, written one by one so that those of one object keep their order."""

    queue: deque[tuple[EventFacts, float]] = attrs.field(factory=deque)
    current: CreateEvent | PatchEvent | None = None
    more: asyncio.Event = attrs.field(factory=asyncio.Event)


class EventRecorder:
    """Records what happened to objects; a part of a `Manager`.

    Args:
        client: writes the events.
        component: the reporting component, unless an event names another one.
        instance: which replica; the host name by default.
        series: decides what is written, counted or dropped.
        retry_delay: seconds between two tries.
        clock: wall-clock time for the events.
        telemetry: where drops are counted.
    """

    def __init__(
        self,
        client: Client,
        component: str,
        *,
        instance: str = "",
        series: EventSeries | None = None,
        retry_delay: float = RETRY_DELAY,
        clock: Clock = SYSTEM_CLOCK,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.dropped = 0
        self._full = False
        self._client = client.apart()
        self._component = component
        self._instance = instance or f"{component}-{socket.gethostname()}"[:128]
        self._series = series or EventSeries()
        self._retry_delay = retry_delay
        self._clock = clock
        self._others_wait: list[Callable[[], bool]] = []
        self._lanes = tuple(_Lane() for _ in range(LANES))
        self._queues = tuple(lane.queue for lane in self._lanes)
        self._log = get_logger("events")
        self._count_drop = self._reporter(telemetry)

    def event(
        self,
        obj_or_ref: Mapping[str, Any] | Typed,
        type: EventType,
        reason: str,
        message: str,
        component: str | None = None,
    ) -> None:
        """Record something; returns at once, and never fails for lack of a server.

        Args:
            obj_or_ref: a raw object, or a reference with `kind` and `name`.
            type: `Normal` or `Warning`.
            reason: one word in CamelCase.
            message: for people.
            component: the reporting component.
        """
        facts = EventFacts(
            regarding=reference(obj_or_ref),
            type=type,
            reason=reason,
            message=message,
            component=component or self._component,
            instance=self._instance,
        )
        waiting = self._waiting
        if waiting >= QUEUE_SIZE:
            self._drop()
            return
        if waiting * 2 < QUEUE_SIZE:
            self._full = False
        name = f"{facts.regarding.get('namespace')}/{facts.regarding.get('name')}"
        lane = self._lanes[zlib.crc32(name.encode()) % LANES]
        lane.queue.append((facts, self._clock.now()))
        lane.more.set()

    def give_way(self, others_wait: Callable[[], bool]) -> None:
        """Let other writes go first, for at most `WAY` seconds, while at most `POLITE` events wait.

        Args:
            others_wait: whether something more important waits to be written, or is under way;
                asked besides those given before.
        """
        self._others_wait.append(others_wait)

    def _drop(self) -> None:
        self.dropped += 1
        self._count_drop()
        if not self._full or self.dropped % 1000 == 0:
            self._log.warning("events are dropped, because too many wait", dropped=self.dropped)
        self._full = True

    @property
    def _waiting(self) -> int:
        return sum(map(len, self._queues))

    async def run(self, ready: Callable[[], None]) -> None:
        """Write events until cancelled, then flush what is queued."""
        ready()
        try:
            async with lasting_tasks("event recorder") as tasks:
                for lane in self._lanes:
                    tasks.start_soon(self._write_forever, lane)
        finally:
            with anyio.move_on_after(FLUSH, shield=True) as flush:
                async with anyio.create_task_group() as tasks:
                    for lane in self._lanes:
                        tasks.start_soon(partial(self._write_queued, lane, patient=False))
            if flush.cancelled_caught:
                under_way = sum(lane.current is not None for lane in self._lanes)
                self._log.warning("events are lost", count=self._waiting + under_way)

    async def _write_forever(self, lane: _Lane) -> None:
        while True:
            await lane.more.wait()
            lane.more.clear()
            await self._write_queued(lane, patient=True)

    async def _write_queued(self, lane: _Lane, *, patient: bool) -> None:
        while lane.current is not None or lane.queue:
            while patient and lane.current is None and self._gives_way(lane):
                await self._clock.sleep(LOOK)
            if lane.current is None:
                lane.current = self._series.record(*lane.queue.popleft())
            if lane.current is not None and not await self._write(lane.current, patient=patient):
                self._series.forget(lane.current.series)
                self._log.warning("an event is lost")
            lane.current = None

    def _gives_way(self, lane: _Lane) -> bool:
        """Whether other writes go before the next event of a lane."""
        for others_wait in self._others_wait:
            if others_wait():
                _, at = lane.queue[0]
                return 0 <= self._clock.now() - at < WAY and self._waiting <= POLITE
        return False

    async def _write(self, write: CreateEvent | PatchEvent, *, patient: bool) -> bool:
        """Send one event, again if the server cannot be reached; returns whether it is written."""
        again: CreateEvent | PatchEvent | None = write
        for attempt in range(TRIES if patient else 1):
            if attempt:
                await self._clock.sleep(self._retry_delay * random.uniform(0.75, 1.25))
            try:
                while again is not None:
                    again = await self._send(again)
            except (TransportError, ConfigError) as error:
                self._log.warning("an event waits for the server", error=str(error))
            except ApiError as error:
                if error.code < 500 and error.code != 429:
                    self._log.info("an event is refused", error=str(error))
                    return False
            else:
                return True
        return False

    async def _send(self, write: CreateEvent | PatchEvent) -> CreateEvent | None:
        """Send it; returns what to send instead if the server's copy is gone."""
        try:
            if isinstance(write, CreateEvent):
                await self._client.create(EVENTS, write.obj)
            else:
                await self._client.patch(EVENTS, write.key, write.patch, PatchType.MERGE)
        except AlreadyExists:
            return None  # names are unique: an earlier try got through without an answer
        except NotFound:
            if isinstance(write, CreateEvent):
                raise
            return self._series.lost(write.series, self._clock.now())
        return None

    @staticmethod
    def _reporter(telemetry: Telemetry | None) -> Callable[[], None]:
        if telemetry is None:
            return lambda: None
        return telemetry.counter(
            "kueuelib_events_dropped_total", "Events dropped because too many waited."
        ).inc


def reference(obj_or_ref: Mapping[str, Any] | Typed) -> dict[str, Any]:
    """The reference to an object, in the form of an Event's `involvedObject`."""
    if not isinstance(obj_or_ref, Mapping):
        obj_or_ref = raw_of(obj_or_ref)
    meta = obj_or_ref.get("metadata")
    if meta is None:
        return dict(obj_or_ref)
    fields = {
        "kind": obj_or_ref.get("kind"),
        "namespace": meta.get("namespace"),
        "name": meta["name"],
        "uid": meta.get("uid"),
        "apiVersion": obj_or_ref.get("apiVersion"),
        "resourceVersion": meta.get("resourceVersion"),
    }
    if all(fields.values()):
        return fields
    return {name: value for name, value in fields.items() if value}
