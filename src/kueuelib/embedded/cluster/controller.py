"""The base of the simulated cluster's controllers: their queue, and their events."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partialmethod
from typing import Any, ClassVar, Generic, TypeVar

import attrs

from kueuelib.api.kinds import EVENTS, NAMESPACES, NODES, PODS
from kueuelib.api.meta import Obj
from kueuelib.embedded.cluster.clock import WakeableClock
from kueuelib.embedded.cluster.contract import CONTROLLERS, DEFAULT_SCHEDULER, KUBELET, SCHEDULER
from kueuelib.embedded.cluster.kinds import Kinds
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.verbs import WriteOptions
from kueuelib.errors import ApiError, NotFound
from kueuelib.machinery.backoff import ItemExponential, TokenBucket
from kueuelib.machinery.queue import QueueCore
from kueuelib.machinery.recurrence import (
    CreateEvent,
    EventFacts,
    EventSeries,
    EventType,
    PatchEvent,
)

# The work queue of every controller of the simulated cluster: keys, deadlines, a few workers.

K = TypeVar("K", bound=Hashable)

_FIRST_RETRY = 0.01
_LAST_RETRY = 5.0
_SETTLE = 0.02
"""Seconds to wait for further events of the same pods, to write one status instead of three.

They are seconds of the event loop, not of the cluster's clock, because they limit the load even
when time stands still.
"""
_SETTLE_PER_POD = 1e-4
_LONGEST_SETTLE = 1.0
_LOG = logging.getLogger(__name__)


@attrs.define(eq=False, slots=False)
class ControlLoop(Generic[K]):
    """Calls a level-based `reconcile` for every key that was added, one call per key at a time.

    Refused calls are repeated with growing delays; deleted objects are dropped.

    Args:
        name: shown in logs.
        reconcile: returns the instant (epoch seconds) at which it wants to be called again.
        clock: the time.
        workers: how many keys at once; several, because webhooks may be slow.
    """

    name: str
    _reconcile: Callable[[K], Awaitable[float | None]]
    _clock: WakeableClock
    _free: int = attrs.field(default=4, alias="workers")
    _held: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._queue: QueueCore[K] = QueueCore(ItemExponential(_FIRST_RETRY, _LAST_RETRY))
        self._settling: dict[K, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()

    def hold(self, held: bool) -> None:
        """Stops beginning calls, or continues with all waiting keys."""
        self._held = held
        self._wake.set()

    def add(self, *keys: K, after: float = 0.0, priority: int = 0) -> None:
        """Requests a call for each key, now or in some seconds."""
        self._queue.add(*keys, now=self._clock.now(), after=after, priority=priority)
        self._wake.set()

    def settle(self, key: K, count: int) -> None:
        """Requests a call for a key soon: further events of its `count` pods are waited for."""
        if key not in self._settling:
            delay = min(max(_SETTLE, count * _SETTLE_PER_POD), _LONGEST_SETTLE)
            timers = asyncio.get_running_loop()
            self._settling[key] = timers.call_later(delay, self._settled, key)

    def _settled(self, key: K) -> None:
        del self._settling[key]
        self.add(key)

    def close(self) -> None:
        """Stops waiting for further events."""
        for timer in self._settling.values():
            timer.cancel()
        self._settling.clear()

    @property
    def idle(self) -> bool:
        """Whether nothing is running, due, or waiting for further events."""
        now = self._clock.now()
        due = self._queue.next_deadline(now)
        busy = self._queue.processing or self._settling
        return not busy and (due is None or due > now)

    @property
    def due(self) -> float | None:
        """When there is work again, in seconds since the epoch; None: only after an event."""
        return self._queue.next_deadline(self._clock.now())

    async def run(self) -> None:
        """Works until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                now = self._clock.now()
                while self._free and not self._held:
                    item = self._queue.pop_ready(now)
                    if item is None:
                        break
                    self._free -= 1
                    group.create_task(self._work(item.key))
                due = self._queue.next_deadline(now) if self._free and not self._held else None
                await self._clock.wait(self._wake, due)

    async def _work(self, key: K) -> None:
        try:
            again = await self._reconcile(key)
        except NotFound:
            self._queue.forget(key)
        except ApiError as error:
            _LOG.debug("%s: %s: %s", self.name, key, error)
            self._queue.add(key, now=self._clock.now(), rate_limited=True)
        else:
            self._queue.forget(key)
            if again is not None:
                now = self._clock.now()
                self._queue.add(key, now=now, after=again - now)
        finally:
            self._queue.done(key, self._clock.now())
            self._free += 1
            self._wake.set()


# The events of the simulated cluster: written in the background, a few per second, dropped
# under load.

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

    def __init__(self, service: ApiService, clock: WakeableClock) -> None:
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


# --------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class ControllerTools:
    """The tools of controllers: the API, mirrors of its objects, the time, events."""

    service: ApiService
    kinds: Kinds
    clock: WakeableClock
    events: Events


class SimulatedController(ABC, Generic[K]):
    """Reconciles keys.

    Attributes:
        name: of the work queue, shown in logs.
        workers: how many keys at once.
        loop: the work queue; run it.
    """

    name: ClassVar[str]
    workers: ClassVar[int] = 4

    def __init__(self, parts: ControllerTools) -> None:
        self._service = parts.service
        self._kinds = parts.kinds
        self._clock = parts.clock
        self._events = parts.events
        self._pods = parts.kinds.of(PODS)
        self._nodes = parts.kinds.of(NODES)
        self._namespaces = parts.kinds.of(NAMESPACES)
        self.loop: ControlLoop[K] = ControlLoop(
            self.name, self._reconcile, parts.clock, self.workers
        )

    @abstractmethod
    async def _reconcile(self, key: K) -> float | None:
        """Does what is due for a key; returns the instant of the next work, or None."""
