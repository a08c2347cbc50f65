"""Calls the function of a check so that it cannot block anything else."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, TypeVar

from kueuelib.api.codec import decode
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import Obj
from kueuelib.checks.containment import Call, CheckFailed, Threads, describe, started
from kueuelib.checks.context import CheckContext, enter
from kueuelib.checks.definition import Check, is_async
from kueuelib.checks.turns import Group, Turns
from kueuelib.checks.verdicts import Verdict, verified

T = TypeVar("T")


class Evaluator:
    """Calls one check; cancelled calls end at once, even if the function ignores the cancellation.

    Args:
        check: what to call.
    """

    def __init__(self, check: Check) -> None:
        self._check = check
        self._threads = Threads(f"check {check.controller_name}", check.concurrency)
        self._abandoned: set[asyncio.Task[Any]] = set()

    async def ask(self, wl: Obj, parameters: Obj | None, context: CheckContext) -> Verdict:
        """The verdict about a workload, with verified fields.

        Args:
            wl: the raw Workload.
            parameters: the raw parameters object.
            context: for the function.

        Raises:
            CheckFailed: there is no verdict.
        """
        return await self._guarded(self._call(wl, parameters, context))

    async def release(self, wl: Obj, context: CheckContext) -> None:
        """Call the release function of the check.

        Args:
            wl: the raw Workload.
            context: for the function.

        Raises:
            CheckFailed: it raised, or took too long.
        """
        await self._guarded(self._run(self._check.release, (decode(Workload, wl),), context))

    async def group(self, wl: Obj, turns: Turns) -> Group:
        """The group of a workload, given by `serialize`.

        Raises:
            CheckFailed: it raised, or its result cannot be compared.
        """
        return await self._guarded(self._group(wl, turns))

    async def _group(self, wl: Obj, turns: Turns) -> Group:
        assert self._check.serialize is not None
        return turns.group(self._check.serialize(decode(Workload, wl)))

    async def _guarded(self, code: Coroutine[Any, Any, T]) -> T:
        """The result of a call to users' code, or `CheckFailed`."""
        call = Call()
        task = started(call, code)
        try:
            done, _ = await asyncio.wait({task}, timeout=self._check.timeout)
        except asyncio.CancelledError:
            self._abandon(task, call)
            raise
        if not done:
            self._abandon(task, call)
            raise CheckFailed(f"took longer than {self._check.timeout:g} s")
        if task.cancelled():
            raise CheckFailed("cancelled itself")
        error = task.exception()
        if isinstance(error, CheckFailed):
            raise error
        if error is not None:
            raise CheckFailed(describe(error)) from error
        return task.result()

    async def _call(self, wl: Obj, parameters: Obj | None, context: CheckContext) -> Verdict:
        arguments = (decode(Workload, wl), parameters)
        return verified(await self._run(self._check.function, arguments, context))

    async def _run(self, function: Any, arguments: tuple[Any, ...], context: CheckContext) -> Any:
        enter(context)
        if is_async(function):
            return await function(*arguments)
        answer = await self._threads.run(lambda: function(*arguments))
        return await answer if inspect.isawaitable(answer) else answer

    def _abandon(self, task: asyncio.Task[Any], call: Call) -> None:
        """Cancels without waiting: a function may ignore that for as long as it likes."""
        call.give_up()
        self._abandoned.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()
