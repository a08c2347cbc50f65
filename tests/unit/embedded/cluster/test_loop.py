"""The clock and the work loop of the cluster's controllers."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from kueuelib.embedded.cluster.clock import ManualClock, SteadyClock
from kueuelib.embedded.cluster.controller import ControlLoop
from kueuelib.errors import Conflict, NotFound


@contextlib.asynccontextmanager
async def running(loop):
    task = asyncio.create_task(loop.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def rest():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_manual_clock_wakes_those_whose_instant_has_come() -> None:
    clock = ManualClock(100.0)
    waiter = asyncio.create_task(clock.wait(asyncio.Event(), 110.0))
    await rest()
    assert not waiter.done()
    clock.advance(10)
    await asyncio.wait_for(waiter, 5)
    assert clock.now() == 110.0


async def test_the_system_clock_returns_at_the_signal_or_at_the_instant() -> None:
    clock = SteadyClock()
    signal = asyncio.Event()
    await asyncio.wait_for(clock.wait(signal, clock.now() + 0.001), 5)
    assert not signal.is_set()
    signal.set()
    await asyncio.wait_for(clock.wait(signal, None), 5)


async def test_a_key_comes_again_at_the_instant_it_asks_for() -> None:
    clock = ManualClock(0.0)
    seen = []

    async def reconcile(key):
        seen.append((key, clock.now()))
        return clock.now() + 5 if len(seen) < 3 else None

    loop = ControlLoop("test", reconcile, clock)
    async with running(loop):
        loop.add("a")
        await rest()
        assert seen == [("a", 0.0)]
        assert loop.idle
        clock.advance(4)
        await rest()
        assert len(seen) == 1
        clock.advance(1)
        await rest()
        clock.advance(5)
        await rest()
        clock.advance(100)
        await rest()
    assert seen == [("a", 0.0), ("a", 5.0), ("a", 10.0)]


async def test_refusals_are_tried_again_and_absence_is_not() -> None:
    clock = ManualClock(0.0)
    seen = []

    async def reconcile(key):
        seen.append(key)
        if key == "gone":
            raise NotFound("gone")
        if seen.count(key) < 3:
            raise Conflict("busy")

    loop = ControlLoop("test", reconcile, clock)
    async with running(loop):
        loop.add("gone", "busy")
        for _ in range(5):
            await rest()
            clock.advance(5)
    assert seen.count("gone") == 1
    assert seen.count("busy") == 3


async def test_one_key_is_never_worked_on_twice_at_the_same_time() -> None:
    clock = ManualClock(0.0)
    inside = 0
    most = 0
    release = asyncio.Event()

    async def reconcile(_):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await release.wait()
        inside -= 1

    loop = ControlLoop("test", reconcile, clock, workers=4)
    async with running(loop):
        loop.add("a")
        await rest()
        loop.add("a")
        await rest()
        assert most == 1
        release.set()
        await rest()
    assert inside == 0


async def test_a_bug_in_a_controller_ends_its_loop_loudly() -> None:
    async def reconcile(_):
        raise ZeroDivisionError

    loop = ControlLoop("test", reconcile, ManualClock(0.0))
    loop.add("a")
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(loop.run(), 5)
    assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError]
