from __future__ import annotations

import asyncio

import pytest

from kueuelib.runtime.controller import WorkQueue
from kueuelib.runtime.telemetry import Telemetry


async def test_a_waiting_worker_is_woken_by_an_add():
    queue: WorkQueue[str] = WorkQueue("q")
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    item = await asyncio.wait_for(worker, 60)
    assert item is not None
    assert item.key == "a"


async def test_a_delayed_key_comes_by_itself_and_an_earlier_one_first():
    queue: WorkQueue[str] = WorkQueue("q")
    queue.add("late", after=0.5)
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("early", after=0.01)
    first = await asyncio.wait_for(worker, 60)
    second = await asyncio.wait_for(queue.get(), 60)
    assert [first.key, second.key] == ["early", "late"]


async def test_a_cancelled_worker_passes_its_wake_up_on():
    queue: WorkQueue[str] = WorkQueue("q")
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    item = await asyncio.wait_for(second, 60)
    assert item.key == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_key_added_during_its_run_comes_once_more():
    queue: WorkQueue[str] = WorkQueue("q")
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0.005)
    assert not worker.done()
    queue.done("a")
    assert (await asyncio.wait_for(worker, 60)).key == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_every_ready_key_finds_a_waiting_worker():
    queue: WorkQueue[int] = WorkQueue("q")
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.add(1, 2, 3)
    items = await asyncio.wait_for(asyncio.gather(*workers), 60)
    assert sorted(item.key for item in items) == [1, 2, 3]


@pytest.mark.parametrize(("drain", "left"), [(True, "a"), (False, None)])
async def test_shutting_down_lets_workers_go(drain, left):
    queue: WorkQueue[str] = WorkQueue("q")
    workers = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.shut_down()
    assert await asyncio.gather(*workers) == [None, None]
    other: WorkQueue[str] = WorkQueue("q")
    other.add("a")
    other.shut_down(drain=drain)
    item = await other.get()
    assert (item and item.key) == left


async def test_depth_and_durations_are_reported():
    telemetry = Telemetry()
    queue: WorkQueue[str] = WorkQueue("q", telemetry=telemetry)
    queue.add("a", "b", priority=5)
    queue.add("c", after=100)
    await queue.get()
    text = telemetry.render().decode()
    assert 'workqueue_depth{controller="q",name="q",priority="5"} 1.0' in text
    assert 'workqueue_adds_total{controller="q",name="q"} 2.0' in text
    assert 'workqueue_retries_total{controller="q",name="q"} 1.0' in text
    assert 'workqueue_queue_duration_seconds_count{controller="q",name="q"} 1.0' in text
    assert "workqueue_unfinished_work_seconds" in text
    assert "workqueue_longest_running_processor_seconds" in text
    queue.done("a")
    assert "workqueue_work_duration_seconds_count" in telemetry.render().decode()


async def test_many_priorities_share_a_label():
    telemetry = Telemetry()
    queue: WorkQueue[int] = WorkQueue("q", telemetry=telemetry)
    for number in range(40):
        queue.add(number, priority=number)
    text = telemetry.render().decode()
    assert text.count("workqueue_depth{") == 26
    assert 'priority="exceeded_cardinality_limit"' in text


def test_no_created_series_and_the_same_metric_for_the_same_name():
    telemetry = Telemetry()
    counter = telemetry.counter("things_total", "Things.", ("kind",))
    assert telemetry.counter("things_total", "Things.", ("kind",)) is counter
    counter.labels("a").inc()
    telemetry.histogram("took_seconds", "Time.").observe(1)
    text = telemetry.render().decode()
    assert 'things_total{kind="a"} 1.0' in text
    assert "_created" not in text
