"""Works on large objects in one thread, one after another, each with a time limit.

Other requests are answered meanwhile, and only one large request is worked on at a time.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, ParamSpec, TypeVar

from kueuelib.errors import ServerTimeout, TooManyRequests
from kueuelib.runtime.entry import LARGE, uncollected

WAITING: Final = 64
"""The maximum number of pieces of work that may wait for the thread."""
SECONDS = 34.0
"""Seconds that a piece may wait, and that it may take, as in kube-apiserver."""
SWITCH_SECONDS: Final = 0.0005
"""So long the loop waits for the thread, each time that it reads or writes."""
P = ParamSpec("P")
R = TypeVar("R")


class TakesTooLongError(BaseException):
    """Ends a piece of work from outside; the work does not catch it."""


class HeavyWorkExecutor:
    """Decides where work is done; the work has no visible side effects."""

    def __init__(self) -> None:
        self._thread = _new_thread()
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def work(self, size: int, do: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
        """The result of a function, called here for small objects and in the thread for large ones.

        Args:
            size: bytes of the object.
            do: the function.
            args: of the function.
            named: keyword arguments of the function.

        Raises:
            TooManyRequests: too many large objects wait already, or this one waited too long.
            ServerTimeout: it takes too long.
        """
        if size <= LARGE:
            return do(*args, **named)
        if self._waiting >= WAITING:
            raise TooManyRequests("too many large objects at once, please try again later")
        self._waiting += 1
        try:
            await asyncio.wait_for(self._turn.acquire(), SECONDS)
            try:
                return await self._in_thread(_Piece(lambda: do(*args, **named)))
            finally:
                self._turn.release()
        except TimeoutError as error:
            text = "other large objects take too long, please try again later"
            raise TooManyRequests(text) from error
        finally:
            self._waiting -= 1

    async def _in_thread(self, piece: _Piece[R]) -> R:
        running = asyncio.get_running_loop().run_in_executor(self._thread, piece.run)
        done: set[asyncio.Future[R]] = set()
        try:
            done, _ = await asyncio.wait((running,), timeout=SECONDS)
        finally:
            if not done:
                running.cancel()
                piece.end()
                self.close()  # as the thread may get the news late
                self._thread = _new_thread()
        if not done:
            text = f"Timeout: the object takes more than {SECONDS:g} s of work; make it smaller"
            raise ServerTimeout(text)
        return running.result()

    def close(self) -> None:
        """Accepts no more work."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _new_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "kueuelib-large")


class _Piece(Generic[R]):
    """A piece of work that can be ended from outside.

    Args:
        do: the work.
    """

    def __init__(self, do: Callable[[], R]) -> None:
        self._do = do
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._ended = False

    def run(self) -> R:
        """The result of the work.

        Raises:
            TakesTooLongError: it was ended.
        """
        with self._lock:
            if self._ended:
                raise TakesTooLongError
            self._thread = threading.get_ident()
        interval = sys.getswitchinterval()
        sys.setswitchinterval(min(interval, SWITCH_SECONDS))
        try:
            with uncollected():
                return self._do()
        finally:
            sys.setswitchinterval(interval)
            with self._lock:
                self._thread = None

    def end(self) -> None:
        """Ends it at its next step in Python."""
        with self._lock:
            self._ended = True
            if self._thread is not None:
                thread, error = ctypes.c_ulong(self._thread), ctypes.py_object(TakesTooLongError)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, error)
