"""Work on large objects: in one thread, one piece after another.

Others are answered meanwhile, and however many large requests come, only one of them is worked on.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from kueuelib.errors import TooManyRequests

HEAVY: Final = 64 * 1024
"""Bytes from which on an object is large."""
WAITING: Final = 64
"""So many pieces of work may wait for the thread."""
P = ParamSpec("P")
R = TypeVar("R")


class Large:
    """Decides where work is done; what it calls has no side effects that others can see."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "kueuelib-large")
        self._waiting = 0

    async def work(self, size: int, do: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
        """What a function returns, called here for small objects and in the thread for large ones.

        Args:
            size: bytes of the object.
            do: the function.
            args: of the function.
            named: of the function, by name.

        Raises:
            TooManyRequests: too many large objects wait already.
        """
        if size <= HEAVY:
            return do(*args, **named)
        if self._waiting >= WAITING:
            raise TooManyRequests("too many large objects at once, please try again later")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(
                self._thread, _without_collector, lambda: do(*args, **named)
            )
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Begins nothing more."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _without_collector(do: Callable[[], R]) -> R:
    """What a function returns; the garbage collector would stop all threads for long meanwhile."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        return do()
    finally:
        if enabled:
            gc.enable()
