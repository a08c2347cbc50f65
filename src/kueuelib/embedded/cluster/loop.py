"""The work queue of every controller of the simulated cluster: keys, deadlines, a few workers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import attrs

from kueuelib.embedded.cluster.clock import Clock
from kueuelib.errors import ApiError, NotFound
from kueuelib.machinery.queue import QueueCore
from kueuelib.machinery.rate_limits import ItemExponential

K = TypeVar("K", bound=Hashable)

_FIRST_RETRY = 0.01
_LAST_RETRY = 5.0
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
    _clock: Clock
    _free: int = attrs.field(default=4, alias="workers")
    _held: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._queue: QueueCore[K] = QueueCore(ItemExponential(_FIRST_RETRY, _LAST_RETRY))
        self._wake = asyncio.Event()

    def hold(self, held: bool) -> None:
        """Stops beginning calls, or continues with all waiting keys."""
        self._held = held
        self._wake.set()

    def add(self, *keys: K, after: float = 0.0, priority: int = 0) -> None:
        """Requests a call for each key, now or in some seconds."""
        self._queue.add(*keys, now=self._clock.now(), after=after, priority=priority)
        self._wake.set()

    @property
    def idle(self) -> bool:
        """Whether nothing is running and nothing is due."""
        now = self._clock.now()
        due = self._queue.next_deadline(now)
        return not self._queue.processing and (due is None or due > now)

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
