"""Deadlines that share a timer: when they pass, and what a cancellation becomes."""

from __future__ import annotations

import asyncio
import time

import pytest

from kueuelib.runtime.clock import Deadlines, Limit

LONG = 60.0
SHORT = 0.01


async def test_a_deadline_that_passes_is_a_timeout():
    with pytest.raises(TimeoutError), Limit(Deadlines(), SHORT) as limit:
        await asyncio.sleep(LONG)
    assert limit.expired
    assert asyncio.current_task().cancelling() == 0


async def test_a_deadline_in_the_past_ends_the_next_wait():
    with pytest.raises(TimeoutError), Limit(Deadlines(), 0.0):
        await asyncio.sleep(LONG)


async def test_without_a_deadline_nothing_is_cancelled():
    with Limit(Deadlines(), None) as limit:
        await asyncio.sleep(SHORT)
    assert not limit.expired


async def test_a_closed_deadline_does_not_pass():
    deadlines = Deadlines()
    with Limit(deadlines, SHORT) as limit:
        pass
    await asyncio.sleep(SHORT * 2)
    assert not limit.expired
    assert not deadlines.open


@pytest.mark.parametrize("first", [SHORT * 2, LONG])
async def test_the_timer_serves_earlier_and_later_deadlines(first: float):
    deadlines = Deadlines()
    with Limit(deadlines, first):
        pass

    async def wait(seconds: float) -> None:
        with pytest.raises(TimeoutError), Limit(deadlines, seconds):
            await asyncio.sleep(LONG)

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        for number in (3, 1, 2):
            tasks.create_task(wait(SHORT * number))


async def test_a_deadline_that_is_due_is_not_put_off_by_a_later_one():
    deadlines = Deadlines()

    async def hold_up() -> None:
        await asyncio.sleep(SHORT / 2)
        time.sleep(SHORT)
        with Limit(deadlines, LONG):
            await asyncio.sleep(SHORT * 20)

    holding_up = asyncio.create_task(hold_up())
    with pytest.raises(TimeoutError), Limit(deadlines, SHORT):
        await asyncio.sleep(SHORT * 10)
    await holding_up


def test_a_timer_of_an_ended_event_loop_is_not_trusted():
    deadlines = Deadlines()

    async def open_and_close() -> None:
        with Limit(deadlines, SHORT * 20):
            pass

    async def wait() -> None:
        with pytest.raises(TimeoutError), Limit(deadlines, SHORT * 21):
            await asyncio.sleep(SHORT * 100)

    asyncio.run(open_and_close())
    asyncio.run(wait())


async def test_a_cancellation_from_elsewhere_stays_one():
    async def wait() -> None:
        with Limit(Deadlines(), SHORT):
            await asyncio.sleep(LONG)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_at_the_same_moment_wins():
    async def wait() -> None:
        with Limit(Deadlines(), LONG) as limit:
            limit.expire()
            asyncio.current_task().cancel()
            await asyncio.sleep(LONG)

    task = asyncio.create_task(wait())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_timeout_from_within_is_not_its_own():
    with pytest.raises(TimeoutError), Limit(Deadlines(), LONG) as limit:
        raise TimeoutError
    assert not limit.expired


async def test_the_outer_one_of_two_can_pass_first():
    deadlines = Deadlines()
    with (
        pytest.raises(TimeoutError),
        Limit(deadlines, SHORT) as outer,
        Limit(deadlines, LONG) as inner,
    ):
        await asyncio.sleep(LONG)
    assert (outer.expired, inner.expired) == (True, False)


def test_a_timer_of_an_earlier_event_loop_does_not_count():
    deadlines = Deadlines()

    async def wait() -> None:
        with pytest.raises(TimeoutError), Limit(deadlines, SHORT):
            await asyncio.sleep(LONG)

    async def leave() -> None:
        with Limit(deadlines, SHORT):
            pass

    asyncio.run(leave())
    asyncio.run(asyncio.sleep(SHORT * 2))
    asyncio.run(wait())
