"""When the admission loop works, and when it rests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Generator
from typing import Any, NamedTuple

import pytest

from kueuelib.controllers import admission
from kueuelib.controllers.admission import LAST_PAUSE, AdmissionLoop
from kueuelib.controllers.metrics import SchedulerMetrics
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.scheduler.decide.cycle import Plan
from kueuelib.scheduler.engine import Settled
from kueuelib.scheduler.events import Effects


class Clock:
    """Time that only moves when somebody sleeps."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return 1000.0 + sum(self.slept)

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class Head(NamedTuple):
    """The first Workload of a queue."""

    cluster_queue: str


class HasHeads(NamedTuple):
    """What a cycle would decide about."""

    heads: tuple[Head, ...]


class Engine:
    """Has a cycle for each entry of `script`: True admits somebody, None has no heads."""

    def __init__(self, *script: bool | None, deadline: float | None = None) -> None:
        self.script = list(script)
        self.deadline = deadline
        self.asked = 0

    def next_cycle(self, now: float) -> Any:
        self.asked += 1
        if not self.script:
            return None
        return HasHeads(() if self.script[0] is None else (Head("queue"),))

    def settle(self, plan: Plan, now: float) -> Settled:
        admits = self.script.pop(0)
        return Settled(("admission",) if admits else (), (), Effects())  # type: ignore[arg-type]

    def next_deadline(self) -> float | None:
        return self.deadline


class Case:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.clock = Clock()
        self.submitted: list[Settled] = []
        self.loop = AdmissionLoop(
            engine,  # type: ignore[arg-type]
            self.submitted.append,
            lambda _: None,
            SchedulerMetrics(Telemetry()),
            clock=self.clock,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.loop.run(lambda: None))
        await self.settle()
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    @staticmethod
    async def settle() -> None:
        for _ in range(200):
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def no_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    def decide(found: Any, now: float) -> Generator[None, None, Plan]:
        yield
        return Plan((), (), ())

    monkeypatch.setattr(admission, "decide_step_by_step", decide)


async def test_an_idle_engine_is_asked_once_and_again_only_when_something_changed() -> None:
    case = Case(Engine())
    async with case.running():
        assert case.engine.asked == 1
        case.loop.wake()
        await case.settle()
        assert case.engine.asked == 2
    assert case.clock.slept == []


async def test_cycles_that_admit_follow_each_other_without_a_pause() -> None:
    case = Case(Engine(True, True, True))
    async with case.running():
        assert len(case.submitted) == 3
    assert case.clock.slept == [0.0, 0.0, 0.0]


async def test_cycles_that_admit_nobody_slow_down_until_one_does() -> None:
    case = Case(Engine(*[False] * 12, True, False))
    async with case.running():
        pauses = case.clock.slept
        assert pauses[:12] == sorted(pauses[:12])
        assert pauses[0] < pauses[1] < pauses[11] == LAST_PAUSE
        assert pauses[12] == 0.0
        assert pauses[13] == pauses[0]


async def test_cycles_in_which_only_turns_pass_are_not_counted_as_fruitless() -> None:
    case = Case(Engine(None, None, False, None, True))
    async with case.running():
        first, second, third, fourth, fifth = case.clock.slept
        assert (first, second, fifth) == (0.0, 0.0, 0.0)
        assert third == fourth > 0.0


async def test_a_long_cycle_lets_others_run_between_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(Engine(True))
    ran: list[str] = []

    def decide(found: Any, now: float) -> Generator[None, None, Plan]:
        for head in ("first", "second", "third"):
            ran.append(head)
            if head != "first":
                case.clock.slept.append(admission.LONGEST_STRETCH)  # that long it took
            asyncio.get_running_loop().call_soon(ran.append, f"others after {head}")
            yield
        return Plan((), (), ())

    monkeypatch.setattr(admission, "decide_step_by_step", decide)
    async with case.running():
        assert ran == [
            *("first", "second", "others after first", "others after second"),
            *("third", "others after third"),
        ]
        assert len(case.submitted) == 1


async def test_a_deadline_ends_the_rest() -> None:
    case = Case(Engine(deadline=1000.0))
    async with case.running():
        asked = case.engine.asked
        await asyncio.sleep(2.5 * LAST_PAUSE)
        assert case.engine.asked > asked


async def test_a_change_during_a_cycle_is_not_lost() -> None:
    case = Case(Engine(True))
    case.loop.wake()
    async with case.running():
        case.engine.script = [True]
        case.loop.wake()
        await case.settle()
        assert len(case.submitted) == 2
