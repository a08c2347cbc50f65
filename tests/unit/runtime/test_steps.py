"""Code of others that cancels itself or blocks the loop, and the controllers that call it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from kueuelib.api.meta import ObjectKey
from kueuelib.runtime.controller import Controller, Result
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.steps import Steps, contained, until_set

KEY = ObjectKey("ns", "a")


class Time:
    """A clock that goes on only when it is told, except for pauses."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def cancels_itself() -> None:
    task = asyncio.ensure_future(asyncio.sleep(60))
    task.cancel()
    await task


async def test_a_cancellation_from_within_is_an_error_and_one_from_outside_is_not() -> None:
    with pytest.raises(RuntimeError, match="it awaited something that was cancelled"):
        await contained(cancels_itself())
    task = asyncio.create_task(contained(asyncio.sleep(60)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_time_out_reaches_what_is_measured() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await contained(Steps(work(), Time().monotonic))
    assert seen == ["cancelled"]


async def test_steps_return_what_the_call_returns_and_measure_its_longest_one() -> None:
    clock = Time()

    async def work() -> int:
        clock.seconds += 1
        await asyncio.sleep(0)
        clock.seconds += 3
        await asyncio.sleep(0)
        return 5

    steps = Steps(work(), clock.monotonic)
    assert await steps == 5
    assert steps.longest == 3


async def reconciled(reconcile: Callable[[ObjectKey], Any], until: Callable[[], bool]) -> list[Any]:
    """What a controller logs until its reconciler has done something."""
    reconciler = type("Reconciler", (), {"reconcile": staticmethod(reconcile)})()
    controller = Controller("things", reconciler, clock=CLOCK)
    with capture_logs() as lines:
        task = asyncio.create_task(controller.run(lambda: None))
        controller.enqueue(KEY)
        async with asyncio.timeout(30):
            while not until():
                assert not task.done()
                CLOCK.seconds += 0.01
                await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    return lines


CLOCK = Time()


async def test_a_reconciler_that_cancels_itself_has_failed_and_is_called_again() -> None:
    calls: list[ObjectKey] = []

    async def reconcile(key: ObjectKey) -> Result:
        calls.append(key)
        if len(calls) < 3:
            await cancels_itself()
        return Result()

    lines = await reconciled(reconcile, lambda: len(calls) == 3)
    failures = [each for each in lines if each["event"] == "reconciliation failed"]
    assert [each["error"] for each in failures] == ["it awaited something that was cancelled"] * 2


@pytest.mark.parametrize(("seconds", "warned"), [(2.5, [2.5]), (0.9, [])])
async def test_a_reconciler_that_blocks_the_loop_is_named(
    seconds: float, warned: list[float]
) -> None:
    calls: list[ObjectKey] = []

    async def reconcile(key: ObjectKey) -> Result:
        CLOCK.seconds += seconds
        await asyncio.sleep(0)
        calls.append(key)
        return Result()

    lines = await reconciled(reconcile, lambda: bool(calls))
    blocked = [each for each in lines if each["event"] == "blocks the event loop"]
    assert [each["seconds"] for each in blocked] == warned
    assert all("anyio.to_thread" in each["fix"] for each in blocked)


async def test_a_part_that_ends_cancelled_although_nobody_stopped_it_stops_the_program() -> None:
    class Part:
        async def run(self, ready: Callable[[], None]) -> None:
            ready()
            await cancels_itself()

    manager = Manager()
    manager.add(Group.OTHERS, Part(), "worker")
    with pytest.raises(RuntimeError, match="worker: ended by a cancellation although nobody"):
        async with asyncio.timeout(30):
            await manager.run()


@pytest.mark.parametrize("steps", range(8))
async def test_a_cancellation_while_a_block_is_left_is_not_lost(steps: int) -> None:
    """anyio before 4.16 took it for the end of its own scope, and the task ran on."""

    async def run() -> None:
        async with until_set(asyncio.Event()):
            await asyncio.sleep(0)
        await asyncio.sleep(60)

    task = asyncio.create_task(run())
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)
