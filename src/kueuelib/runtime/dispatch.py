"""Calls the handlers of a store with its deltas, in the order of the changes."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.errors import ConfigError
from kueuelib.machinery.store import Delta, DeltaKind

YIELD_EVERY = 200
"""Number of deltas after which other tasks may run."""

Handler = Callable[[Delta[Obj]], None]
_ASYNC = (
    "is async, but handlers never wait",
    "make it a plain function that puts the key into a queue, or write a reconciler",
)


class Dispatch:
    """A queue of deltas for all handlers of one store.

    Each change of the store appends its deltas immediately. Only one caller at a time dispatches
    them, so no delta overtakes another, whether it comes from a watch or from an answer.

    Args:
        log: gets which handler failed, and the object; the caller gets the error.
    """

    def __init__(self, log: Any) -> None:
        self._log = log
        self._handlers: list[Handler] = []
        self._queue: deque[tuple[tuple[Handler, ...], Delta[Obj]]] = deque()
        self._busy = False

    def add(self, handler: Handler, present: Iterable[Delta[Obj]]) -> Callable[[], None]:
        """Call `handler` with the deltas of what exists, then with every delta put from now on.

        Returns:
            a function that removes the handler; it may be called again.

        Raises:
            ConfigError: the handler is not a function, or is async.
        """
        check_handler(handler)
        for delta in present:
            call(handler, delta)
        self._handlers.append(handler)

        def remove() -> None:
            if handler in self._handlers:
                self._handlers.remove(handler)

        return remove

    def put(self, deltas: Iterable[Delta[Obj]]) -> None:
        """Append deltas to the queue, for the handlers registered at this moment."""
        handlers = tuple(self._handlers)
        self._queue.extend((handlers, delta) for delta in deltas)

    def flush(self) -> None:
        """Dispatch the whole queue at once; if a dispatch is in progress, it does the work."""
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue:
                self._dispatch_next()
        finally:
            self._busy = False

    async def drain(self) -> None:
        """Dispatch the whole queue, yielding to other tasks every `YIELD_EVERY` deltas."""
        assert not self._busy, "there is one asynchronous dispatcher"
        self._busy = True
        try:
            count = 0
            while self._queue:
                self._dispatch_next()
                count += 1
                if count % YIELD_EVERY == 0:
                    await asyncio.sleep(0)
        finally:
            self._busy = False

    def _dispatch_next(self) -> None:
        handlers, delta = self._queue.popleft()
        for handler in handlers:
            try:
                call(handler, delta)
            except Exception as error:
                obj = delta.new or delta.old or {}
                self._log.error(
                    "a handler failed, which ends the informer",
                    handler=_name_of(handler),
                    object=f"{obj.get('kind', '')} {delta.key}",
                    error=f"{type(error).__name__}: {error}",
                    exc_info=None if isinstance(error, ConfigError) else error,
                )
                raise


def check_handler(handler: object) -> None:
    """Refuse what could not be called as a handler.

    Raises:
        ConfigError: it is not a function, or is async.
    """
    name = _name_of(handler)
    if not callable(handler):
        fix = "give a function that takes a Delta"
        raise ConfigError(f"the handler {name}", "is not a function", fix)
    if any(map(inspect.iscoroutinefunction, (handler, type(handler).__call__))):
        raise ConfigError(f"the handler {name}", *_ASYNC)


def call(handler: Callable[[Delta[Obj]], object], delta: Delta[Obj]) -> None:
    """Call a handler.

    Raises:
        ConfigError: it returned a coroutine, for example as a lambda around an async function.
        Exception: what the handler raises.
    """
    answer = handler(delta)
    if inspect.iscoroutine(answer):  # a task would run by itself
        answer.close()
        raise ConfigError(f"the handler {_name_of(handler)}", *_ASYNC)


def _name_of(handler: object) -> str:
    return getattr(handler, "__name__", f"{handler!r:.60}")


def is_old_news(delta: Delta[Obj]) -> bool:
    """Whether live changes may overtake it: part of a first list, or an update without a change."""
    if delta.initial:
        return True
    if delta.kind is not DeltaKind.UPDATED or delta.old is None or delta.new is None:
        return False
    version = delta.new["metadata"].get("resourceVersion")
    return version is not None and delta.old["metadata"].get("resourceVersion") == version
