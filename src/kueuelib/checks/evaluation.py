"""Calls the functions of a check so that they cannot block anything else."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Generator, Hashable
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import anyio
import attrs

from kueuelib.api.codec import decode
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.checks.definition import Check, CheckContext, enter, is_async
from kueuelib.checks.verdicts import Verdict, readable, verified
from kueuelib.errors import KueuelibError

# ---- runs users' code so that neither its exceptions nor its hanging can block us ----------------

P = ParamSpec("P")
T = TypeVar("T")

LONGEST_TEXT = 2000
"""Characters of an exception's text that are kept."""
_SHOWN = 3
"""How many exceptions of a group are reported."""
_PATIENCE = 100
"""Cancellations by scopes of anyio after which an abandoned call is closed."""


class CheckFailed(KueuelibError):
    """The function of a check raised, took too long, or gave an answer that is not valid."""


@attrs.define(eq=False)
class UserCall:
    """One call to users' code.

    Attributes:
        given_up: whether it was abandoned. What ignores its cancellation then is closed.
    """

    given_up: bool = False
    _scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)

    def give_up(self) -> None:
        """Cancel it as a scope of anyio does: again at each await that no shield protects."""
        self.given_up = True
        self._scope.cancel()

    async def run(self, inner: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, or a cancellation."""
        with self._scope:
            return await inner
        raise asyncio.CancelledError


_CALL: contextvars.ContextVar[UserCall] = contextvars.ContextVar("call of a check")


def describe(error: BaseException) -> str:
    """An exception in one readable line, whatever its `__str__` does."""
    name = readable(type(error).__name__)
    try:
        text = readable(str(error))[:LONGEST_TEXT]
        if isinstance(error, BaseExceptionGroup):
            inner = [describe(one) for one in error.exceptions[:_SHOWN]]
            text = f"{text}: {'; '.join(inner)}"
    except BaseException:  # noqa: BLE001 - also this is code that is not ours
        text = "its text cannot be read"
    return f"{name}: {text}" if text else name


def started(call: UserCall, inner: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task for a coroutine; neither it nor the tasks that it starts can end the process.

    `SystemExit` and `KeyboardInterrupt` become `CheckFailed`.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop.get_task_factory(), _Factory):
        loop.set_task_factory(_Factory(loop.get_task_factory()))
    context = contextvars.copy_context()
    context.run(_CALL.set, call)
    return loop.create_task(_Contained(call, call.run(inner), cancellations=1), context=context)


class _Contained(Coroutine[Any, Any, T]):
    """A coroutine that stops exceptions that would end the process.

    After the call was abandoned, it is closed if it ignores too many cancellations: the second one,
    so that a program which cancels its tasks at its end does end, or the 100th one of a scope of
    anyio, which cancels again as long as the code in it continues.

    Args:
        call: what the coroutine belongs to.
        inner: the coroutine.
        cancellations: how often it was cancelled before.
    """

    def __init__(
        self, call: UserCall, inner: Coroutine[Any, Any, T], cancellations: int = 0
    ) -> None:
        self._call = call
        self._inner: Coroutine[Any, Any, T] | None = inner
        self._cancellations = cancellations

    @property
    def cr_running(self) -> bool:
        """As of a coroutine; `inspect.getcoroutinestate` asks, and with it anyio."""
        return bool(getattr(self._inner, "cr_running", False))

    @property
    def cr_suspended(self) -> bool:
        """As of a coroutine."""
        return bool(getattr(self._inner, "cr_suspended", False))

    @property
    def cr_frame(self) -> Any:
        """As of a coroutine."""
        return getattr(self._inner, "cr_frame", None)

    def send(self, value: Any, /) -> Any:
        """Continues until the next thing to wait for."""
        try:
            return self._started().send(value)
        except (SystemExit, KeyboardInterrupt) as end:
            raise CheckFailed(describe(end)) from end

    def throw(self, kind: Any, value: Any = None, _: Any = None, /) -> Any:
        """Continues with an exception until the next thing to wait for."""
        error = kind if isinstance(kind, BaseException) else value or kind()
        if self._call.given_up and isinstance(error, asyncio.CancelledError):
            self._cancellations += 1 if error.args else _PATIENCE  # a scope says which one it is
            if self._cancellations > _PATIENCE:
                # Freed here and now, so that its finalizers run while the loop still does.
                self._inner = None
                raise error
        try:
            return self._started().throw(error)
        except (SystemExit, KeyboardInterrupt) as end:
            raise CheckFailed(describe(end)) from end

    def close(self) -> None:
        """Ends it where it stands."""
        if self._inner is not None:
            self._inner.close()

    def __await__(self) -> Generator[Any, Any, T]:
        """Never awaited: it is the body of a task."""
        return self._started().__await__()

    def _started(self) -> Coroutine[Any, Any, T]:
        assert self._inner is not None
        return self._inner


class _Factory:
    """Contains the tasks that a contained call starts; leaves all others alone.

    Args:
        before: the task factory that the loop had.
    """

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(
        self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any
    ) -> asyncio.Future[Any]:
        call = _CALL.get(None)
        if call is not None and inspect.iscoroutine(coro):
            coro = _Contained(call, coro)
        if self._before is not None:
            task: asyncio.Future[Any] = self._before(loop, coro, **options)
            return task
        return asyncio.Task(coro, loop=loop, **options)


def on_loop(function: Callable[P, T]) -> Callable[P, T]:
    """The same function for use in any thread: it always runs on the present event loop."""
    loop, owner = asyncio.get_running_loop(), threading.get_ident()

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if threading.get_ident() == owner:
            return function(*args, **kwargs)

        async def run() -> T:
            return function(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(run(), loop).result()

    return call


class Threads:
    """Daemon threads, one per call: what hangs in one keeps no process alive.

    Args:
        name: of the threads.
        most: how many calls may still run after their time limit; with as many, new
            ones are refused.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self.hanging = 0

    async def run(self, function: Callable[[], T], ended: Callable[[], None]) -> T:
        """Calls a function in a thread, with the present context.

        Args:
            function: to call.
            ended: called on the event loop when the thread has ended, also after a cancellation.

        Raises:
            CheckFailed: it raised, or too many earlier calls still hang.
        """
        if self.hanging >= self._most:
            ended()
            raise CheckFailed(f"not called: {self.hanging} earlier calls hang in their threads")
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        answer: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()
        hangs = over = False

        def finish(value: T | None, error: BaseException | None) -> None:
            nonlocal over
            over = True
            ended()
            if hangs:
                self.hanging -= 1
            if not answer.done():
                answer.set_result((value, error))

        def work() -> None:
            value, error = None, None
            try:
                value = context.run(function)
            except BaseException as raised:  # noqa: BLE001 - is passed to the waiter
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
                loop.call_soon_threadsafe(finish, value, error)

        threading.Thread(target=work, name=self._name, daemon=True).start()
        try:
            value, error = await answer
        except asyncio.CancelledError:
            hangs = not over
            self.hanging += hangs
            raise
        if error is not None:
            raise CheckFailed(describe(error)) from error
        return value  # type: ignore[return-value]


# ---- turns of workloads that are decided one after the other, without blocked workers ------------


@attrs.define(eq=False)
class KeyGroup:
    """Keys that get their turns one at a time.

    Attributes:
        holder: the key whose turn it is, or that was called and has not started yet; None if there
            is none.
        waiting: the next keys, in this order.
    """

    holder: ObjectKey | None = None
    waiting: OrderedDict[ObjectKey, None] = attrs.field(factory=OrderedDict)


class SerialTurns:
    """Sets keys of a busy group aside, and calls each when its turn comes.

    No worker waits: a key without its turn is reconciled again when it is called. A called key that
    does not take its turn then has to `pass_on`.

    Args:
        call: requests another reconciliation of a key.
    """

    def __init__(self, call: Callable[[ObjectKey], None]) -> None:
        self._call = call
        self._groups: WeakValueDictionary[Hashable, KeyGroup] = WeakValueDictionary()
        self._called: dict[ObjectKey, list[KeyGroup]] = {}

    def group(self, name: Hashable) -> KeyGroup:
        """The group of a name; comparing names may raise anything."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = KeyGroup()
        return group

    def take(self, group: KeyGroup, key: ObjectKey) -> bool:
        """Whether a key gets its turn now; if not, it is called later. End the turn with `end`."""
        if group.holder is None:
            group.holder = key
            return True
        called = self._called.get(key, [])
        if group in called:
            called.remove(group)
            return True
        group.waiting.setdefault(key)
        return False

    def end(self, group: KeyGroup) -> None:
        """Ends the present turn and calls the next one."""
        if not group.waiting:
            group.holder = None
            return
        key, _ = group.waiting.popitem(last=False)
        group.holder = key
        self._called.setdefault(key, []).append(group)
        self._call(key)

    def pass_on(self, key: ObjectKey) -> None:
        """End the turn of a key that was called, reconciled, and did not take it."""
        for group in self._called.pop(key, ()):
            self.end(group)


# --------------------------------------------------------------------------------------------------


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

    async def group(self, wl: Obj, turns: SerialTurns) -> KeyGroup:
        """The group of a workload, given by `serialize`.

        Raises:
            CheckFailed: it raised, or its result cannot be compared.
        """
        return await self._guarded(self._group(wl, turns), wl)

    async def _group(self, wl: Obj, turns: SerialTurns) -> KeyGroup:
        assert self._check.serialize is not None
        return turns.group(self._check.serialize(decode(Workload, wl)))

    async def _guarded(self, code: Coroutine[Any, Any, T], wl: Obj) -> T:
        """The result of a call to users' code, or `CheckFailed`."""
        call = UserCall()
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

    def _abandon(self, task: asyncio.Task[Any], call: UserCall, wl: Obj) -> None:
        """Cancels without waiting: a function may ignore that for as long as it likes."""
        call.give_up()
        self._abandoned[task] = wl["metadata"]["uid"]
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.pop(task, None)
        if not task.cancelled():
            task.exception()
