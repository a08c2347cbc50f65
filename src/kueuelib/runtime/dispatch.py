"""Tells handlers what happened to a store, in the order in which it happened."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from kueuelib.api.meta import Obj
from kueuelib.machinery.store import Delta

YIELD_EVERY = 200
"""Deltas after which other tasks get their turn."""

Handler = Callable[[Delta[Obj]], None]


class Dispatch:
    """One line of deltas for all handlers of one store.

    Whoever changes the store puts the deltas at the end of the line at once; one at a time tells
    them. So no delta overtakes another one, whoever brought it.
    """

    def __init__(self) -> None:
        self._handlers: list[Handler] = []
        self._line: deque[tuple[tuple[Handler, ...], Delta[Obj]]] = deque()
        self._telling = False

    def add(self, handler: Handler, present: Iterable[Delta[Obj]]) -> Callable[[], None]:
        """Tell `handler` what there is, then every delta that is put from now on.

        Returns:
            a function that removes the handler; it may be called again.
        """
        for delta in present:
            handler(delta)
        self._handlers.append(handler)

        def remove() -> None:
            if handler in self._handlers:
                self._handlers.remove(handler)

        return remove

    def put(self, deltas: Iterable[Delta[Obj]]) -> None:
        """Put deltas at the end of the line, for those who are handlers now."""
        handlers = tuple(self._handlers)
        self._line.extend((handlers, delta) for delta in deltas)

    def tell_now(self) -> None:
        """Tell all that waits, unless somebody is telling: then that one goes on with it."""
        if self._telling:
            return
        self._telling = True
        try:
            while self._line:
                self._tell_next()
        finally:
            self._telling = False

    async def tell(self) -> None:
        """Tell all that waits, and let other tasks run now and then."""
        assert not self._telling, "only the owner of the line waits while it tells"
        self._telling = True
        try:
            told = 0
            while self._line:
                self._tell_next()
                told += 1
                if told % YIELD_EVERY == 0:
                    await asyncio.sleep(0)
        finally:
            self._telling = False

    def _tell_next(self) -> None:
        handlers, delta = self._line.popleft()
        for handler in handlers:
            handler(delta)
