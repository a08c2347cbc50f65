"""When the reasons of waiting Workloads are reported."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.controllers.applier import (
    PAUSE,
    REPORTED_AT_ONCE,
    REST,
    TRICKLE,
    PendingReasonWriter,
    UnwrittenReasons,
)


def key(name: object) -> ObjectKey:
    return ObjectKey("ns", str(name))


def reported(lines: UnwrittenReasons, start: float, end: float) -> list[ObjectKey]:
    """What is reported at the looks from one instant to another."""
    looks = round((end - start) / PAUSE)
    return [each for look in range(looks) for each in lines.take(start + look * PAUSE)]


def test_a_queue_at_rest_is_reported_in_groups() -> None:
    lines = UnwrittenReasons()
    for number in range(REPORTED_AT_ONCE + 5):
        lines.waits(key(number), "cq", 0.0)
    assert lines.take(0.0) == tuple(map(key, range(REPORTED_AT_ONCE)))
    assert lines.take(PAUSE) == tuple(map(key, range(REPORTED_AT_ONCE, REPORTED_AT_ONCE + 5)))
    assert not lines


def test_who_is_admitted_is_not_reported() -> None:
    lines = UnwrittenReasons()
    lines.waits(key(1), "cq", 0.0)
    lines.admitted(key(1), "cq", 0.0)
    assert reported(lines, 0.0, REST + 1) == []
    assert not lines


def test_a_busy_queue_is_reported_little_by_little_until_it_rests() -> None:
    lines, count = UnwrittenReasons(), 1000
    for number in range(count):
        lines.waits(key(number), "cq", 0.0)
    lines.admitted(key("other"), "cq", 0.0)
    assert 0 < len(reported(lines, 0.0, REST)) <= REST / TRICKLE
    reported(lines, REST, REST + count / REPORTED_AT_ONCE * PAUSE)
    assert not lines


def test_busy_queues_take_turns_and_do_not_slow_down_one_at_rest() -> None:
    lines = UnwrittenReasons()
    for name in ("a", "b"):
        for number in range(9):
            lines.waits(key(f"{name}{number}"), name, 0.0)
        lines.admitted(key("other"), name, 0.0)
    lines.waits(key("idle"), "idle", 0.0)
    assert lines.take(0.0) == (key("a0"), key("idle"))
    assert lines.take(TRICKLE) == (key("b0"),)
    assert lines.take(2 * TRICKLE) == (key("a1"),)


def test_nothing_is_reported_before_the_time_and_of_two_times_the_earlier_counts() -> None:
    lines = UnwrittenReasons()
    lines.waits(key(1), "cq", 1.0)
    assert lines.take(0.9) == ()
    lines.waits(key(1), "cq", 5.0)
    assert lines.take(1.0) == (key(1),)


def test_who_moves_to_another_queue_is_reported_once() -> None:
    lines = UnwrittenReasons()
    lines.waits(key(1), "a", 0.0)
    lines.waits(key(1), "b", 0.0)
    assert reported(lines, 0.0, 1.0) == [key(1)]


class Clock:
    """Time that only moves when somebody sleeps."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        await asyncio.sleep(0)


@pytest.mark.parametrize("after", [0.0, 1.0])
async def test_the_writer_works_while_somebody_waits_and_then_sleeps(after: float) -> None:
    clock, found = Clock(), list[tuple[float, ObjectKey]]()
    writer = PendingReasonWriter(
        lambda keys: found.extend((clock.time, each) for each in keys), clock=clock
    )
    task = asyncio.create_task(writer.run(lambda: None))
    for round_ in range(2):
        start = clock.time
        writer.waits(key(round_), "cq", after)
        for _ in range(100):
            await asyncio.sleep(0)
        (at, _) = found.pop()
        assert max(after, PAUSE) <= at - start + 1e-9 <= after + 2 * PAUSE
        assert clock.time == at
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_a_look_has_its_limit_whatever_the_order_of_the_lines() -> None:
    lines = UnwrittenReasons()
    for queue in ("at-rest-1", "busy", "at-rest-2"):
        for number in range(2 * REPORTED_AT_ONCE):
            lines.waits(key(f"{queue}-{number}"), queue, 0.0)
    lines.admitted(key("other"), "busy", 0.0)
    assert len(lines.take(0.0)) == REPORTED_AT_ONCE + 1
