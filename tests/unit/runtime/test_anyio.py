"""Code of users under anyio's rules: task groups, scopes, threads and streams; cancellation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

import anyio
import anyio.to_thread
import pytest
from anyio import CancelScope, create_memory_object_stream, create_task_group, move_on_after

from kueuelib.api.meta import ObjectKey
from kueuelib.errors import StopTimeout
from kueuelib.runtime import controller as controllers
from kueuelib.runtime.controller import Controller, Result
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.telemetry import Telemetry

KEY = ObjectKey("", "one")
TENANT: ContextVar[str] = ContextVar("tenant", default="")
Step = Callable[[], Awaitable[Result | None]]


class Steps:
    """Reconciles with one function after the other; then everything is done."""

    def __init__(self, *steps: Step) -> None:
        self.left = list(steps)
        self.calls = 0
        self.done = anyio.Event()

    async def reconcile(self, key: ObjectKey) -> Result:
        self.calls += 1
        if not self.left:
            self.done.set()
            return Result()
        return await self.left.pop(0)() or Result()


class Running:
    def __init__(self, *steps: Step, timeout: float | None = None) -> None:
        self.reconciler = Steps(*steps)
        self.telemetry = Telemetry()
        self.controller = Controller(
            "test", self.reconciler, timeout=timeout, telemetry=self.telemetry
        )

    def count(self, name: str) -> float:
        name = f"controller_runtime_reconcile_{name}_total"
        return self.telemetry.registry.get_sample_value(name, {"controller": "test"}) or 0.0

    @asynccontextmanager
    async def managed(self) -> AsyncIterator[Manager]:
        """A manager runs it, and stops at the end of the block."""
        manager = Manager(stop_deadline=20)
        manager.add(Group.ELECTED, self.controller)
        self.controller.enqueue(KEY)
        with anyio.fail_after(60):
            async with create_task_group() as group:
                group.start_soon(manager.run)
                yield manager
                manager.stop()

    async def until_done(self) -> None:
        """The last step and one more reconciliation after it."""
        async with self.managed():
            await self.reconciler.done.wait()


def again(*results: object) -> Result:
    return Result(requeue_after=0.001)


async def test_a_reconciler_has_task_groups_and_streams():
    seen: list[int] = []

    async def step() -> Result:
        give, take = create_memory_object_stream[int](1)
        async with create_task_group() as group, take:

            async def send() -> None:
                async with give:
                    for number in range(3):
                        await give.send(number)

            group.start_soon(send)
            seen.extend([number async for number in take])
        return again()

    running = Running(step, timeout=30)
    await running.until_done()
    assert seen == [0, 1, 2]
    assert running.count("errors") == 0


async def test_what_children_of_a_reconciler_raise_is_retried():
    cancelled: list[bool] = []

    async def step() -> None:
        async with create_task_group() as group:

            async def fail() -> None:
                await anyio.sleep(0)
                raise ValueError("mine")

            async def sleep() -> None:
                try:
                    await anyio.sleep_forever()
                finally:
                    cancelled.append(True)

            group.start_soon(sleep)
            group.start_soon(fail)

    running = Running(step)
    await running.until_done()
    assert cancelled == [True]
    assert (running.count("errors"), running.reconciler.calls) == (1, 2)


async def test_scopes_of_a_reconciler_end_where_they_end():
    passed: list[str] = []

    async def step() -> Result:
        with move_on_after(0.01) as scope:
            await anyio.sleep_forever()
        assert scope.cancelled_caught
        with CancelScope() as scope:
            scope.cancel()
            await anyio.sleep_forever()
        async with create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            group.cancel_scope.cancel()
        await anyio.sleep(0)
        passed.append("all")
        return again()

    async def late() -> None:
        with anyio.fail_after(0.01):
            await anyio.sleep_forever()

    running = Running(step, late, timeout=30)
    await running.until_done()
    assert passed == ["all"]
    assert (running.count("errors"), running.count("timeouts")) == (1, 0)


async def test_a_reconciler_works_in_threads():
    def work() -> str:
        anyio.from_thread.run(anyio.sleep, 0)
        anyio.from_thread.check_cancelled()
        return TENANT.get()

    told: list[str] = []

    async def step() -> Result:
        TENANT.set("red")
        told.append(await anyio.to_thread.run_sync(work))
        return again()

    await Running(step, timeout=30).until_done()
    assert told == ["red"]


async def test_the_deadline_of_a_reconciliation_reaches_children_and_threads():
    ended: list[str] = []

    def work() -> None:
        try:
            while True:
                anyio.from_thread.check_cancelled()
        finally:
            ended.append("thread")

    async def child() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with CancelScope(shield=True):
                await anyio.sleep(0.01)
                ended.append("child")

    async def step() -> None:
        async with create_task_group() as group:
            group.start_soon(child)
            group.start_soon(anyio.to_thread.run_sync, work)

    running = Running(step, timeout=0.1)
    await running.until_done()
    assert sorted(ended) == ["child", "thread"]
    assert (running.count("errors"), running.count("timeouts")) == (1, 1)


async def test_a_deadline_does_not_break_a_shield():
    ended: list[str] = []

    async def step() -> None:
        with CancelScope(shield=True):
            await anyio.sleep(0.1)
            ended.append("shielded")
        await anyio.sleep_forever()

    running = Running(step, timeout=0.01)
    await running.until_done()
    assert ended == ["shielded"]
    assert running.count("timeouts") == 1


async def test_a_deadline_cancels_again_what_goes_on():
    heard: list[int] = []

    async def step() -> None:
        for number in range(3):
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                heard.append(number)
        await anyio.sleep_forever()

    running = Running(step, timeout=0.01)
    await running.until_done()
    assert heard == [0, 1, 2]
    assert running.count("timeouts") == 1


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllers, "STOP_GRACE", 0.1)


@pytest.mark.usefixtures("short_grace")
async def test_the_end_of_a_program_reaches_children_and_waits_for_their_shields():
    ended: list[str] = []
    begun = anyio.Event()

    async def child() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with CancelScope(shield=True):
                await anyio.sleep(0.1)
                ended.append("child")

    async def step() -> None:
        async with create_task_group() as group:
            group.start_soon(child)
            begun.set()
            with CancelScope(shield=True):
                await anyio.sleep(0.3)
                ended.append("shielded")

    running = Running(step)
    async with running.managed():
        await begun.wait()
    assert ended == ["child", "shielded"]
    assert running.count("errors") == 0


async def test_a_reconciliation_may_end_within_the_grace():
    ended: list[str] = []
    begun = anyio.Event()

    async def step() -> None:
        begun.set()
        await anyio.sleep(0.2)
        ended.append("by itself")

    async with Running(step).managed():
        await begun.wait()
    assert ended == ["by itself"]


@pytest.mark.usefixtures("short_grace")
async def test_a_controller_ends_with_the_scope_that_it_runs_in():
    ended: list[str] = []
    begun = anyio.Event()

    async def step() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("cancelled")

    controller = Running(step).controller
    controller.enqueue(KEY)
    with anyio.fail_after(30):
        async with create_task_group() as group:
            group.start_soon(controller.run, lambda: None)
            await begun.wait()
            group.cancel_scope.cancel()
    assert ended == ["cancelled"]


async def test_a_part_of_a_manager_has_task_groups():
    ended: list[str] = []

    class Part:
        async def run(self, ready: Callable[[], None]) -> None:
            async with create_task_group() as group:
                group.start_soon(self.child)
                ready()

        async def child(self) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                with CancelScope(shield=True):
                    await anyio.sleep(0.01)
                    ended.append("child")

    manager = Manager()
    manager.add(Group.OTHERS, Part())
    with anyio.fail_after(30):
        async with create_task_group() as group:
            group.start_soon(manager.run)
            while not manager.ready:
                await anyio.sleep(0.001)
            manager.stop()
    assert ended == ["child"]


async def test_a_manager_leaves_a_part_behind_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task group would wait for it forever, and so would the process."""
    monkeypatch.setattr("kueuelib.runtime.manager.ABORT_DEADLINE", 0.05)
    released = anyio.Event()

    class Stubborn:
        async def run(self, ready: Callable[[], None]) -> None:
            ready()
            while not released.is_set():
                with CancelScope(shield=True):
                    try:
                        await released.wait()
                    except anyio.get_cancelled_exc_class():
                        continue

    manager = Manager(stop_deadline=0.05)
    manager.add(Group.OTHERS, Stubborn(), "stubborn")
    late: list[str] = []

    async def run() -> None:
        with pytest.raises(StopTimeout) as stopped:
            await manager.run()
        late.append(str(stopped.value))

    with anyio.fail_after(30):
        async with create_task_group() as group:
            group.start_soon(run)
            while not manager.ready:
                await anyio.sleep(0.001)
            manager.stop()
    assert "stubborn" in late[0]
    released.set()
    await anyio.sleep(0)
