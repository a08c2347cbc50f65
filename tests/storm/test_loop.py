"""The event loop in virtual time, and the processes on it."""

from __future__ import annotations

import asyncio

import pytest

from kueuelib.testing.storm.loop import SimulatedProcess, StormLoop, Stuck


@pytest.fixture
def loop():
    made = StormLoop(1)
    yield made
    made.close()


def _ties(loop, count=20):
    order = []

    async def sleeper(number):
        await asyncio.sleep(5)
        order.append(number)

    async def main():
        await asyncio.gather(*map(sleeper, range(count)))

    loop.run_until_complete(main())
    return order


def test_time_jumps_to_the_next_timer(loop):
    loop.run_until_complete(asyncio.sleep(86_400))
    assert 86_400 <= loop.now < 86_401
    assert loop.steps < 20


def test_equal_timers_keep_their_order(loop):
    assert _ties(loop) == list(range(20))


def test_disorder_is_another_order_for_each_seed():
    orders = []
    for seed in (1, 1, 2):
        loop = StormLoop(seed, disorder=1.0)
        orders.append(_ties(loop))
        loop.close()
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[2]) == list(range(20))


def test_sets_of_tasks_have_one_order(loop):
    async def main():
        tasks = {asyncio.create_task(asyncio.sleep(0), name=str(n)) for n in range(500)}
        done, _ = await asyncio.wait(tasks)
        return [task.get_name() for task in done]

    first = loop.run_until_complete(main())
    again = StormLoop(1)
    assert again.run_until_complete(main()) == first
    again.close()


async def _count(ticks, loop):
    try:
        while True:
            await asyncio.sleep(1)
            ticks.append(loop.now)
    finally:
        ticks.append("cleaned up")


def test_nothing_of_a_dead_process_runs(loop):
    owner, ticks = SimulatedProcess("victim"), []
    loop.spawn(owner, _count(ticks, loop))

    async def main():
        await asyncio.sleep(3.5)
        loop.kill(owner)
        await asyncio.sleep(10)

    loop.run_until_complete(main())
    assert [round(tick) for tick in ticks] == [1, 2, 3]


def test_a_paused_process_goes_on_where_it_was(loop):
    owner, ticks = SimulatedProcess("sleeper"), []
    loop.spawn(owner, _count(ticks, loop))

    async def main():
        await asyncio.sleep(2.5)
        owner.paused = True
        await asyncio.sleep(10)
        loop.resume(owner)
        await asyncio.sleep(1.9)
        loop.kill(owner)

    loop.run_until_complete(main())
    assert [round(tick, 1) for tick in ticks] == [1.0, 2.0, 12.5, 13.5]


def test_clocks_of_processes_differ(loop):
    owner, ticks = SimulatedProcess("fast"), []
    loop.spawn(owner, _count(ticks, loop))

    async def main():
        await asyncio.sleep(1.5)
        owner.skew(loop.now, 3600.0, 2.0)
        loop.retime(owner)
        await asyncio.sleep(2)
        loop.kill(owner)
        return owner.wall(loop.now) - loop.wall()

    ahead = loop.run_until_complete(main())
    assert [round(tick, 2) for tick in ticks] == [1.0, 1.75, 2.25, 2.75, 3.25]
    assert ahead == pytest.approx(3602, abs=0.01)
    with pytest.raises(ValueError, match="cannot run at"):
        owner.skew(loop.now, 0.0, 0.0)


def test_threads_are_calls(loop):
    async def main():
        before = loop.now
        found = await asyncio.to_thread(sum, (1, 2))
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 1, 0)
        return found, loop.now - before

    found, passed = loop.run_until_complete(main())
    assert found == 3
    assert passed < 0.01


def test_a_world_without_a_future_is_told(loop):
    with pytest.raises(Stuck, match="nothing will ever happen"):
        loop.run_until_complete(loop.create_future())


def test_a_hot_loop_is_told(loop):
    async def main():
        while True:
            await asyncio.sleep(0)

    loop.limit = 1000
    with pytest.raises(Stuck, match="more than 1000"):
        loop.run_until_complete(main())
    for task in asyncio.all_tasks(loop):
        loop.bury(task)
