"""Calls the function of a check so that nothing it does can hold anybody up."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from kueuelib.api.codec import decode
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import Obj
from kueuelib.checks.context import Context, enter
from kueuelib.checks.definition import Check
from kueuelib.checks.verdicts import Pending, Ready, Rejected, Retry, Verdict
from kueuelib.errors import KueuelibError

T = TypeVar("T")


class CheckFailed(KueuelibError):
    """The function of a check raised, took too long, or answered nonsense."""


class Evaluator:
    """Calls one check; cancelled calls end at once, whatever the function does about it.

    Args:
        check: what to call.
    """

    def __init__(self, check: Check) -> None:
        self._check = check
        self._threads: ThreadPoolExecutor | None = None
        self._abandoned: set[asyncio.Task[Any]] = set()

    async def ask(self, wl: Obj, parameters: Obj | None, context: Context) -> Verdict:
        """The verdict about a workload.

        Args:
            wl: the raw Workload.
            parameters: the raw parameters object.
            context: what the function may ask for.

        Raises:
            CheckFailed: there is none.
        """
        verdict = await self._guarded(self._call(wl, parameters, context))
        if not isinstance(verdict, (Ready, Retry, Rejected, Pending)):
            kind = type(verdict).__name__
            raise CheckFailed(f"answered {kind}, not Ready, Retry, Rejected or Pending")
        return verdict

    async def group(self, wl: Obj) -> Hashable:
        """What `serialize` says about a workload.

        Raises:
            CheckFailed: it raised.
        """
        return await self._guarded(self._group(wl))

    async def _group(self, wl: Obj) -> Hashable:
        assert self._check.serialize is not None
        found = self._check.serialize(decode(Workload, wl))
        hash(found)
        return found

    async def _guarded(self, call: Coroutine[Any, Any, T]) -> T:
        """The result of a call to code that is not ours, or `CheckFailed`."""
        task = asyncio.create_task(call)
        try:
            done, _ = await asyncio.wait({task}, timeout=self._check.timeout)
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        if not done:
            self._abandon(task)
            raise CheckFailed(f"took longer than {self._check.timeout:g} s")
        if task.cancelled():
            raise CheckFailed("cancelled itself")
        error = task.exception()
        if isinstance(error, Exception):
            text = str(error)
            name = type(error).__name__
            raise CheckFailed(f"{name}: {text}" if text else name) from error
        if error is not None:
            raise error
        return task.result()

    async def _call(self, wl: Obj, parameters: Obj | None, context: Context) -> object:
        enter(context)
        workload = decode(Workload, wl)
        function: Any = self._check.function
        if self._check.is_async:
            return await function(workload, parameters)
        if self._threads is None:
            name = f"check {self._check.controller_name}"
            self._threads = ThreadPoolExecutor(self._check.concurrency, name)
        loop, copied = asyncio.get_running_loop(), contextvars.copy_context()
        found = await loop.run_in_executor(
            self._threads, lambda: copied.run(function, workload, parameters)
        )
        return await found if isinstance(found, Coroutine) else found

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        """Cancels without waiting: a function may ignore that for as long as it likes."""
        task.cancel()
        self._abandoned.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()
