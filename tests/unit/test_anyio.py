"""Code of users under anyio's rules: reconcilers, checks, handlers of webhooks, and their ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import aiohttp
import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from anyio import CancelScope, create_memory_object_stream, create_task_group, move_on_after

from kueuelib.api.meta import ObjectKey
from kueuelib.checks import Ready, Verdict, check, current
from kueuelib.checks.definition import CheckContext
from kueuelib.checks.evaluation import CheckFailed, Evaluator
from kueuelib.errors import StopTimeout
from kueuelib.runtime import controller as controllers
from kueuelib.runtime.controller import Controller, Result
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.webhook import server as servers
from kueuelib.runtime.webhook.server import WebhookServer

KEY = ObjectKey("", "one")
META = {"namespace": "default", "name": "wl", "uid": "u"}
WORKLOAD = {"metadata": META, "spec": {"podSets": []}}
REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {"uid": "u1", "operation": "CREATE", "object": {"metadata": {"name": "one"}}},
}
TENANT: ContextVar[str] = ContextVar("tenant", default="")
SOON = 0.1
Function = Callable[[], Awaitable[None]]


class Reconcilers:
    """Calls a function in a controller of a manager."""

    async def succeeds(self, function: Function) -> bool:
        telemetry = await self._until_called_again(function, 30)
        return self._count(telemetry, "errors") == 0

    async def overruns(self, function: Function) -> None:
        """It meets its deadline."""
        telemetry = await self._until_called_again(function, SOON)
        assert self._count(telemetry, "timeouts") == 1

    async def stops(self, function: Function, begun: anyio.Event) -> None:
        """The program ends, and has no patience."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(controllers, "RECONCILE_GRACE", SOON)
            async with self.managed(Steps(function)):
                await begun.wait()

    async def _until_called_again(self, function: Function, timeout: float) -> Telemetry:
        reconciler, telemetry = Steps(function), Telemetry()
        async with self.managed(reconciler, timeout=timeout, telemetry=telemetry):
            await reconciler.done.wait()
        return telemetry

    @staticmethod
    def _count(telemetry: Telemetry, name: str) -> float:
        name = f"controller_runtime_reconcile_{name}_total"
        return telemetry.registry.get_sample_value(name, {"controller": "test"}) or 0.0

    @asynccontextmanager
    async def managed(self, reconciler: Steps, **options: Any) -> AsyncIterator[None]:
        """A manager runs it, and stops at the end of the block."""
        manager, controller = Manager(stop_deadline=20), Controller("test", reconciler, **options)
        manager.add(Group.ELECTED, controller)
        controller.enqueue(KEY)
        with anyio.fail_after(60):
            async with create_task_group() as group:
                group.start_soon(manager.run)
                yield
                manager.stop()


class Steps:
    """Reconciles with a function, and then once more."""

    def __init__(self, function: Function) -> None:
        self.functions = [function]
        self.done = anyio.Event()

    async def reconcile(self, key: ObjectKey) -> Result:
        if self.functions:
            await self.functions.pop()()
            return Result(requeue_after=0.001)
        self.done.set()
        return Result()


class Checks:
    """Calls a function as an admission check."""

    async def succeeds(self, function: Function) -> bool:
        try:
            return await self.ask(function) == Ready("fine")
        except CheckFailed:
            return False

    async def overruns(self, function: Function) -> None:
        """Whoever asks does not wait for it."""
        with pytest.raises(CheckFailed, match=rf"took longer than {SOON:g} s"):
            await self.ask(function, SOON)

    async def stops(self, function: Function, begun: anyio.Event) -> None:
        async with create_task_group() as group:
            group.start_soon(self.ask, function)
            await begun.wait()
            group.cancel_scope.cancel()

    async def ask(self, function: Function, timeout: float = 30) -> Verdict:
        async def call(_: object, __: object) -> Verdict:
            assert current().check == "check"
            await function()
            return Ready("fine")

        none: Any = None
        context = CheckContext("check", WORKLOAD, none, none, none)
        with anyio.fail_after(60):
            declared = check("example.com/test", timeout=timeout)(call)
            return await Evaluator(declared).ask(WORKLOAD, None, context)


class Webhooks:
    """Calls a function as the handler of a webhook."""

    def __init__(self) -> None:
        self.ended = anyio.Event()

    async def succeeds(self, function: Function) -> bool:
        async with self.serving(function) as url:
            return bool((await self.ask(url))["allowed"])

    async def overruns(self, function: Function) -> None:
        """The API server disconnects at its deadline."""
        async with self.serving(function) as url:
            with move_on_after(SOON):
                await self.ask(url)
            await self.ended.wait()

    async def stops(self, function: Function, begun: anyio.Event) -> None:
        async def client(url: str) -> None:
            with pytest.raises(aiohttp.ClientError):
                await self.ask(url)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(servers, "DRAIN", SOON)
            async with create_task_group() as group, self.serving(function) as url:
                group.start_soon(client, url)
                await begun.wait()

    async def ask(self, url: str) -> dict[str, Any]:
        async with aiohttp.ClientSession() as session, session.post(url, json=REVIEW) as answer:
            response: dict[str, Any] = (await answer.json())["response"]
            return response

    @asynccontextmanager
    async def serving(self, function: Function) -> AsyncIterator[str]:
        async def handler(_: object) -> dict[str, Any]:
            try:
                await function()
            finally:
                self.ended.set()
            return {"allowed": True}

        server = WebhookServer("127.0.0.1", 0, None)
        server.admit("/ask", handler)
        with anyio.fail_after(60):
            async with create_task_group() as group:
                ready = anyio.Event()
                group.start_soon(server.run, ready.set)
                await ready.wait()
                yield f"http://127.0.0.1:{server.port}/ask"
                group.cancel_scope.cancel()


Caller = Reconcilers | Checks | Webhooks


@pytest.fixture(params=[Reconcilers, Checks, Webhooks])
async def caller(request: pytest.FixtureRequest) -> Caller:
    made: Caller = request.param()
    return made


async def child(ended: list[str]) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        with CancelScope(shield=True):
            await anyio.sleep(0.01)
            ended.append("child")


async def eventually(ended: list[str], *wanted: str) -> None:
    """What runs late is not waited for by whoever called."""
    with anyio.fail_after(30):
        while sorted(ended) != sorted(wanted):
            await anyio.sleep(0.001)


async def test_functions_have_task_groups_and_streams(caller: Caller) -> None:
    seen: list[int] = []

    async def send(give: Any) -> None:
        async with give:
            for number in range(3):
                await give.send(number)

    async def function() -> None:
        give, take = create_memory_object_stream[int](1)
        async with create_task_group() as group, take:
            group.start_soon(send, give)
            seen.extend([number async for number in take])

    assert await caller.succeeds(function)
    assert seen == [0, 1, 2]


async def test_functions_work_in_threads(caller: Caller) -> None:
    told: list[str] = []

    def work() -> str:
        anyio.from_thread.run(anyio.sleep, 0)
        anyio.from_thread.check_cancelled()
        return TENANT.get()

    async def function() -> None:
        TENANT.set("red")
        told.append(await anyio.to_thread.run_sync(work))

    assert await caller.succeeds(function)
    assert told == ["red"]


async def test_scopes_end_where_they_end(caller: Caller) -> None:
    passed: list[str] = []

    async def function() -> None:
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

    assert await caller.succeeds(function)
    assert passed == ["all"]


async def test_a_deadline_of_a_function_is_a_failure(caller: Caller) -> None:
    async def function() -> None:
        with anyio.fail_after(0.01):
            await anyio.sleep_forever()

    assert not await caller.succeeds(function)


async def test_what_a_child_raises_cancels_the_others_and_is_a_failure(caller: Caller) -> None:
    ended: list[str] = []

    async def fail() -> None:
        await anyio.sleep(0)
        raise ValueError("mine")

    async def function() -> None:
        async with create_task_group() as group:
            group.start_soon(child, ended)
            group.start_soon(fail)

    assert not await caller.succeeds(function)
    assert ended == ["child"]


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await anyio.sleep_forever()


async def test_what_awaits_something_cancelled_has_failed(caller: Caller) -> None:
    async def function() -> None:
        task = asyncio.create_task(anyio.sleep_forever())
        task.cancel()
        await task

    assert not await caller.succeeds(function)


@pytest.mark.parametrize("caller", [Checks, Webhooks], indirect=True)
async def test_what_cancels_its_own_task_has_failed(caller: Caller) -> None:
    assert not await caller.succeeds(cancels_itself)


async def test_a_reconciler_that_cancels_its_worker_ends_the_program() -> None:
    """Else it would go on without this controller, and nobody would know."""
    message = "^controller test: ended by a cancellation although nobody stopped it$"
    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match=message)):
        async with Reconcilers().managed(Steps(cancels_itself)):
            await anyio.sleep_forever()


async def test_the_time_limit_reaches_children_and_threads(caller: Caller) -> None:
    ended: list[str] = []

    def work() -> None:
        try:
            while True:
                anyio.from_thread.check_cancelled()
        finally:
            ended.append("thread")

    async def function() -> None:
        async with create_task_group() as group:
            group.start_soon(child, ended)
            group.start_soon(anyio.to_thread.run_sync, work)

    await caller.overruns(function)
    await eventually(ended, "child", "thread")


async def test_the_time_limit_does_not_break_a_shield(caller: Caller) -> None:
    ended: list[str] = []

    async def function() -> None:
        with CancelScope(shield=True):
            await anyio.sleep(2 * SOON)
            ended.append("shielded")
        await anyio.sleep_forever()

    await caller.overruns(function)
    await eventually(ended, "shielded")


async def test_the_time_limit_cancels_again_what_goes_on(caller: Caller) -> None:
    heard: list[str] = []

    async def function() -> None:
        for _ in range(3):
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                heard.append("cancelled")
        await anyio.sleep_forever()

    await caller.overruns(function)
    await eventually(heard, *["cancelled"] * 3)


async def test_the_end_of_a_program_reaches_children_and_spares_shields(caller: Caller) -> None:
    ended: list[str] = []
    begun = anyio.Event()

    async def function() -> None:
        async with create_task_group() as group:
            group.start_soon(child, ended)
            with CancelScope(shield=True):
                begun.set()
                await anyio.sleep(3 * SOON)
                ended.append("shielded")

    await caller.stops(function, begun)
    await eventually(ended, "child", "shielded")


async def test_a_reconciliation_may_end_within_the_grace() -> None:
    ended: list[str] = []
    begun = anyio.Event()

    async def function() -> None:
        begun.set()
        await anyio.sleep(0.2)
        ended.append("by itself")

    async with Reconcilers().managed(Steps(function)):
        await begun.wait()
    assert ended == ["by itself"]


async def test_a_review_may_end_while_its_server_does() -> None:
    begun, answers = anyio.Event(), list[dict[str, Any]]()
    webhooks = Webhooks()

    async def function() -> None:
        begun.set()
        await anyio.sleep(0.2)

    async def client(url: str) -> None:
        answers.append(await webhooks.ask(url))

    async with create_task_group() as group, webhooks.serving(function) as url:
        group.start_soon(client, url)
        await begun.wait()
    assert answers == [{"allowed": True, "uid": "u1"}]


async def test_a_controller_ends_with_the_scope_that_it_runs_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controllers, "RECONCILE_GRACE", SOON)
    ended: list[str] = []
    begun = anyio.Event()

    async def function() -> None:
        begun.set()
        await child(ended)

    controller = Controller("test", Steps(function))
    controller.enqueue(KEY)
    with anyio.fail_after(30):
        async with create_task_group() as group:
            group.start_soon(controller.run, lambda: None)
            await begun.wait()
            group.cancel_scope.cancel()
    assert ended == ["child"]


async def test_what_ignores_the_time_limit_of_a_check_is_dropped_soon() -> None:
    heard: list[str] = []
    ended: list[str] = []

    async def function() -> None:
        try:
            while True:
                try:
                    await anyio.sleep_forever()
                except anyio.get_cancelled_exc_class():
                    heard.append("cancelled")
        finally:
            ended.append("dropped")

    await Checks().overruns(function)
    await eventually(ended, "dropped")
    assert 1 < len(heard) <= 100


def test_a_program_ends_although_a_check_ignores_everything_behind_a_shield() -> None:
    async def function() -> None:
        with CancelScope(shield=True):
            while True:
                try:
                    await anyio.sleep_forever()
                except anyio.get_cancelled_exc_class():
                    continue

    anyio.run(Checks().overruns, function)


@asynccontextmanager
async def running(manager: Manager) -> AsyncIterator[None]:
    with anyio.fail_after(30):
        async with create_task_group() as group:
            group.start_soon(manager.run)
            while not manager.ready:
                await anyio.sleep(0.001)
            yield


async def test_a_part_of_a_manager_has_task_groups() -> None:
    ended: list[str] = []

    class Part:
        async def run(self, ready: Callable[[], None]) -> None:
            async with create_task_group() as group:
                group.start_soon(child, ended)
                ready()

    manager = Manager()
    manager.add(Group.OTHERS, Part())
    async with running(manager):
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
    with pytest.RaisesGroup(pytest.RaisesExc(StopTimeout, match="stubborn")):
        async with running(manager):
            manager.stop()
    released.set()
    await anyio.sleep(0)
