"""Runs users' code so that neither its exceptions nor its hanging can block us."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, ParamSpec, TypeVar

import anyio
import attrs

from kueuelib.checks.verdicts import readable
from kueuelib.errors import KueuelibError

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
class Call:
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


_CALL: contextvars.ContextVar[Call] = contextvars.ContextVar("call of a check")


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


def started(call: Call, inner: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task for a coroutine; neither it nor the tasks that it starts can end the process.

    `SystemExit` and `KeyboardInterrupt` become `CheckFailed`.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop.get_task_factory(), _Factory):
        loop.set_task_factory(_Factory(loop.get_task_factory()))
    context = contextvars.copy_context()
    context.run(_CALL.set, call)
    return loop.create_task(_Contained(call, call.run(inner), told=1), context=context)


class _Contained(Coroutine[Any, Any, T]):
    """A coroutine that stops exceptions that would end the process.

    After the call was abandoned, it is closed if it ignores too many cancellations: the second one,
    so that a program which cancels its tasks at its end does end, or the 100th one of a scope of
    anyio, which cancels again as long as the code in it continues.

    Args:
        call: what the coroutine belongs to.
        inner: the coroutine.
        told: how often it was cancelled before.
    """

    def __init__(self, call: Call, inner: Coroutine[Any, Any, T], told: int = 0) -> None:
        self._call = call
        self._inner: Coroutine[Any, Any, T] | None = inner
        self._told = told

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
            self._told += 1 if error.args else _PATIENCE  # a scope says which one it is
            if self._told > _PATIENCE:
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

        def tell(value: T | None, error: BaseException | None) -> None:
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
                loop.call_soon_threadsafe(tell, value, error)

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
