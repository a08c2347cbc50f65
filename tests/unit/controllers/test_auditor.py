"""Quota that is kept for nobody is found and given back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from kueuelib.api.codec import encode
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.controllers.applier import OrderWriter
from kueuelib.controllers.auditor import INTERVAL, Auditor
from kueuelib.controllers.metrics import SchedulerMetrics
from kueuelib.errors import TransportError
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.engine import Engine
from kueuelib.testing.builders import (
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
)
from kueuelib.workload import states
from kueuelib.workload.orders import GRACE, Eviction, OrderBook
from kueuelib.workload.writer import StatusWriter

LOW = make_workload("low", "q", {"cpu": 1})
HIGH = make_workload("high", "q", {"cpu": 1}, priority=5)
ADMISSION = {
    "clusterQueue": "q",
    "podSetAssignments": [
        {"name": "main", "flavors": {"cpu": "one"}, "resourceUsage": {"cpu": "1"}, "count": 1}
    ],
}


class Clock:
    """Time that only moves when somebody sleeps."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        await asyncio.sleep(0)


class Case:
    """An engine that has assumed `low`, and an auditor."""

    def __init__(self) -> None:
        self.engine, self.book, self.clock = Engine(), OrderBook(), Clock()
        self.telemetry = Telemetry()
        self.stored: Obj | Exception | None = encode(LOW)
        for fact in (
            events.NamespaceSet("ns", {}),
            events.FlavorSet(make_flavor("one")),
            events.ClusterQueueSet(
                make_cluster_queue(
                    "q", {"one": {"cpu": 1}}, preemption={"withinClusterQueue": "LowerPriority"}
                )
            ),
            events.LocalQueueSet(make_local_queue("q", "q")),
            events.WorkloadSet(LOW),
        ):
            self.observe(fact)
        orders = OrderWriter(
            StatusWriter(None, self),  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            SchedulerMetrics(self.telemetry),
            self.observe,
            self.clock,
        )
        self.auditor = Auditor(self.engine, self.book, orders)
        self.cycle()

    async def refresh(self, _: ObjectKey) -> Obj | None:
        if isinstance(self.stored, Exception):
            raise self.stored
        return self.stored

    def observe(self, event: events.Event) -> None:
        self.engine.observe(event, self.clock.time)

    def cycle(self) -> Any:
        found = self.engine.next_cycle(self.clock.time)
        assert found is not None
        return self.engine.settle(decide(found, self.clock.time), self.clock.time)

    async def pass_by(self, seconds: float) -> None:
        end = self.clock.time + seconds
        while self.clock.time < end:
            await self.auditor.look()
            self.clock.time += INTERVAL
        await self.auditor.look()

    def counted(self, name: str) -> float:
        (line,) = (
            line
            for line in self.telemetry.render().decode().splitlines()
            if line.startswith(f"kueuelib_orphaned_{name}_total ")
        )
        return float(line.rpartition(" ")[2])


@pytest.mark.parametrize("gone", [False, True])
async def test_an_assumption_without_an_order_is_taken_back(gone: bool) -> None:
    case = Case()
    if gone:
        case.stored = None
    await case.pass_by(GRACE - INTERVAL)
    assert case.engine.cache.assumed
    await case.pass_by(INTERVAL)
    assert case.engine.cache.assumed == ()
    assert case.counted("assumptions") == 1
    assert case.engine.has_work(case.clock.time)


async def test_what_is_stored_and_not_seen_yet_is_left_alone() -> None:
    case = Case()
    assert isinstance(case.stored, dict)
    case.stored = states.reserve(case.stored, ADMISSION, [], 1.0)
    await case.pass_by(4 * GRACE)
    assert case.engine.cache.assumed
    assert case.counted("assumptions") == 0


async def test_a_workload_of_another_uid_confirms_nothing() -> None:
    case = Case()
    assert isinstance(case.stored, dict)
    other = states.reserve(case.stored, ADMISSION, [], 1.0)
    case.stored = {**other, "metadata": {**other["metadata"], "uid": "another"}}
    await case.pass_by(GRACE)
    assert case.engine.cache.assumed == ()


async def test_without_an_answer_nothing_is_taken_back() -> None:
    case = Case()
    case.stored = TransportError("https://x", "reset")
    await case.pass_by(4 * GRACE)
    assert case.engine.cache.assumed
    case.stored = encode(LOW)
    await case.pass_by(0.0)
    assert case.engine.cache.assumed == ()


async def test_an_order_explains_an_assumption() -> None:
    case = Case()
    case.observe(events.Forgotten(LOW.key))
    (admission,) = case.cycle().admissions
    case.book.submit(admission)
    await case.pass_by(4 * GRACE)
    assert case.engine.cache.assumed


async def test_a_victim_that_nobody_tells_stays_again() -> None:
    case = Case()
    case.observe(events.WorkloadSet(HIGH))
    case.book.submit(admit_again(case))
    (preemption,) = case.cycle().preemptions
    assert [holder.key for holder in case.engine.leaving()] == [LOW.key]
    await case.pass_by(GRACE)
    assert case.engine.leaving() == ()
    assert case.counted("evictions") == 1
    (preemption,) = case.cycle().preemptions
    (victim,) = preemption.victims
    case.book.submit(Eviction(victim, preemption))
    assert victim.key == LOW.key


def admit_again(case: Case) -> Any:
    """The order that stands for the assumption."""
    case.observe(events.WorkloadGone(HIGH.key))
    case.observe(events.Forgotten(LOW.key))
    (admission,) = case.cycle().admissions
    case.observe(events.WorkloadSet(HIGH))
    return admission


async def test_it_looks_for_ever_and_can_be_cancelled() -> None:
    case = Case()
    ready = asyncio.Event()
    task = asyncio.create_task(case.auditor.run(ready.set))
    while case.engine.cache.assumed:
        await asyncio.sleep(0)
    assert ready.is_set()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
