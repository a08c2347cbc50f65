"""Calls the function of a check so that it cannot block anything else."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
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
        self._abandoned: dict[asyncio.Task[Any], str] = {}
        self._in_threads = Counter[str]()

    def runs(self, uid: str) -> bool:
        """Whether code of the check runs about a workload, also after the call was given up."""
        return self._in_threads[uid] > 0 or uid in self._abandoned.values()

    async def ask(self, wl: Obj, parameters: Obj | None, context: CheckContext) -> Verdict:
        """The verdict about a workload, with verified fields.

        Args:
            wl: the raw Workload.
            parameters: the raw parameters object.
            context: for the function.

        Raises:
            CheckFailed: there is no verdict.
        """
        return await self._guarded(self._call(wl, parameters, context), wl)

    async def release(self, wl: Obj, context: CheckContext) -> None:
        """Call the release function of the check.

        Args:
            wl: the raw Workload.
            context: for the function.

        Raises:
            CheckFailed: it raised, or took too long.
        """
        await self._guarded(self._run(self._check.release, (decode(Workload, wl),), context), wl)

    async def group(self, wl: Obj, turns: Turns) -> Group:
        """The group of a workload, given by `serialize`.

        Raises:
            CheckFailed: it raised, or its result cannot be compared.
        """
        return await self._guarded(self._group(wl, turns), wl)

    async def _group(self, wl: Obj, turns: Turns) -> Group:
        assert self._check.serialize is not None
        return turns.group(self._check.serialize(decode(Workload, wl)))

    async def _guarded(self, code: Coroutine[Any, Any, T], wl: Obj) -> T:
        """The result of a call to users' code, or `CheckFailed`."""
        call = Call()
        task = started(call, code)
        try:
            done, _ = await asyncio.wait({task}, timeout=self._check.timeout)
        except asyncio.CancelledError:
            self._abandon(task, call, wl)
            raise
        if not done:
            self._abandon(task, call, wl)
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
        uid = context.workload["metadata"]["uid"]
        self._in_threads[uid] += 1
        answer = await self._threads.run(lambda: function(*arguments), lambda: self._left(uid))
        return await answer if inspect.isawaitable(answer) else answer

    def _left(self, uid: str) -> None:
        self._in_threads[uid] -= 1
        if not self._in_threads[uid]:
            del self._in_threads[uid]

    def _abandon(self, task: asyncio.Task[Any], call: Call, wl: Obj) -> None:
        """Cancels without waiting: a function may ignore that for as long as it likes."""
        call.give_up()
        self._abandoned[task] = wl["metadata"]["uid"]
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.pop(task, None)
        if not task.cancelled():
            task.exception()
