"""Objects outside all informers: read one by one, and remembered for a while."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import anyio

from kueuelib.api.meta import Obj
from kueuelib.errors import ApiError, TransportError, Unavailable
from kueuelib.runtime.clock import Clock
from kueuelib.runtime.logs import get_logger

PATIENCE = 3.0
"""The time limit of an answer, in seconds."""
_PASSING = frozenset({401, 408, 429})
"""Temporary refusals, which say nothing about the object."""

K = TypeVar("K", bound=Hashable)


class Remembered(Generic[K]):
    """The objects as last read; one that is gone or may not be read counts as absent.

    Args:
        seconds: how long it is remembered.
        limit: the maximum number of objects that are remembered; the oldest are forgotten first.
        clock: the time.
    """

    def __init__(self, seconds: float, limit: int, clock: Clock) -> None:
        self._seconds = seconds
        self._limit = limit
        self._clock = clock
        self._known: dict[K, tuple[float, Obj | None]] = {}
        self._reading: set[K] = set()
        self._log = get_logger("jobs")

    def get(self, key: K) -> Obj | None:
        """The object as last read, however long ago; None if it is not known."""
        entry = self._known.get(key)
        return None if entry is None else entry[1]

    def outdate(self, key: K) -> None:
        """Read the object at the next `learn`, also if it is being read now."""
        self._reading.discard(key)
        if key in self._known:
            self._known[key] = (-math.inf, self._known[key][1])

    async def learn(
        self, key: K, name: str, read: Callable[[], Awaitable[Obj | None]]
    ) -> Obj | None:
        """The object; it is read unless it was read a moment ago.

        Args:
            key: identifies the object.
            name: of the object, for people.
            read: reads it.

        Raises:
            Unavailable: the API server does not answer, so the object is not known.
        """
        now = self._clock.monotonic()
        known = self._known.get(key)
        if known is not None and now - known[0] < self._seconds:
            return known[1]
        self._reading.add(key)
        try:
            with anyio.fail_after(PATIENCE):
                obj = await read()
        except (ApiError, TransportError, TimeoutError) as error:
            if not isinstance(error, ApiError) or error.code in _PASSING or error.code >= 500:
                raise Unavailable(f"{name} cannot be read now; try again") from error
            if known is None or known[1] is not None:
                self._log.info("an object counts as absent", object=name, error=str(error))
            obj = None
        finally:
            current = key in self._reading
            self._reading.discard(key)
        self._known.pop(key, None)
        if len(self._known) >= self._limit:
            self._known.pop(next(iter(self._known)))
        self._known[key] = (now if current else -math.inf, obj)
        return obj
