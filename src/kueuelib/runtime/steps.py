"""Awaits code of others: what cancels itself fails, and how long it blocks the loop is measured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

T = TypeVar("T")
LONG = 1.0
"""Seconds without an `await` that are worth a warning: nothing else runs meanwhile."""


async def contained(call: Awaitable[T]) -> T:
    """The result of a call; a cancellation that nobody asked for is an error of the call.

    Such a one arises when code awaits a task that it cancelled. Passed on, it would end the task
    that called the code as if the program stopped.

    Raises:
        RuntimeError: the call was cancelled from within.
    """
    try:
        return await call
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("it awaited something that was cancelled") from error


async def in_own_task(call: Awaitable[T]) -> T:
    """The result of a call under anyio's rules, also when asyncio cancels the caller.

    Then the task of the call is cancelled at each of its awaits until it has ended, as are the
    tasks that it has started in groups.

    Raises:
        RuntimeError: the call was cancelled from within.
    """
    results: list[T] = []
    errors: list[Exception] = []

    async def run() -> None:
        try:
            results.append(await contained(call))
        except Exception as error:  # noqa: BLE001 - is passed to the caller, without a group
            errors.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
    for error in errors:
        raise error
    if not results:
        raise RuntimeError("it cancelled its own task")
    return results[0]


@asynccontextmanager
async def lasting_tasks(what: str) -> AsyncIterator[TaskGroup]:
    """A task group that ends with a cancellation of the caller, or because of an error.

    A task that cancels itself would end the group without a trace.

    Args:
        what: the tasks work for.

    Raises:
        Exception: the error of the task that failed; an `ExceptionGroup` if several did.
        RuntimeError: one of them was cancelled from within.
    """
    error: Exception | None = None
    try:
        async with anyio.create_task_group() as group:
            yield group
    except ExceptionGroup as errors:
        if any(each is not errors.exceptions[0] for each in errors.exceptions):
            raise
        error = errors.exceptions[0]
    if error is not None:
        raise error  # out here, the group is not its context
    raise RuntimeError(f"{what}: ended by a cancellation although nobody stopped it")


@asynccontextmanager
async def until_set(event: asyncio.Event) -> AsyncIterator[None]:
    """A block that is left as soon as an event is set, or at its end."""
    async with anyio.create_task_group() as group:

        async def leave() -> None:
            await event.wait()
            group.cancel_scope.cancel()

        group.start_soon(leave)
        yield
        group.cancel_scope.cancel()


class Steps(Generic[T]):
    """Awaits a call, and measures how long it holds the event loop from one `await` to the next.

    Args:
        call: is awaited once.
        monotonic: gives the time.

    Attributes:
        longest: seconds of the longest step so far.
    """

    def __init__(self, call: Awaitable[T], monotonic: Callable[[], float]) -> None:
        self.longest = 0.0
        self._call = call
        self._monotonic = monotonic

    def __await__(self) -> Generator[Any, Any, T]:
        """Take step after step."""
        steps = self._call.__await__()
        step: Callable[[Any], Any] = steps.send
        value: Any = None
        while True:
            started = self._monotonic()
            try:
                awaited = step(value)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self.longest = max(self.longest, self._monotonic() - started)
            try:
                value, step = (yield awaited), steps.send
            except BaseException as error:  # noqa: BLE001 - a cancellation is for the call
                value, step = error, steps.throw
