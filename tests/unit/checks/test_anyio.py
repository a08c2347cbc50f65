"""The function of a check under anyio's rules: task groups, scopes, threads; cancellation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from anyio import CancelScope, create_memory_object_stream, create_task_group, move_on_after

from kueuelib.checks import Ready, Verdict, check, current
from kueuelib.checks.containment import CheckFailed
from kueuelib.checks.context import CheckContext
from kueuelib.checks.evaluation import Evaluator

WORKLOAD = {"metadata": {"namespace": "default", "name": "wl"}, "spec": {"podSets": []}}
Function = Callable[[], Awaitable[Verdict]]


async def ask(function: Function, timeout: float = 30.0) -> Verdict:
    async def call(_: object, __: object) -> Verdict:
        return await function()

    none: Any = None
    context = CheckContext("check", WORKLOAD, none, none, none)
    with anyio.fail_after(60):
        declared = check("example.com/test", timeout=timeout)(call)
        return await Evaluator(declared).ask(WORKLOAD, None, context)


async def child(ended: list[str]) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        with CancelScope(shield=True):
            await anyio.sleep(0.01)
            ended.append("child")


async def eventually(ended: list[str], wanted: list[str]) -> None:
    """What runs late is not waited for by whoever asked."""
    with anyio.fail_after(30):
        while sorted(ended) != wanted:
            await anyio.sleep(0.001)


async def test_a_check_has_task_groups_streams_scopes_and_threads():
    seen: list[str] = []

    async def function() -> Verdict:
        give, take = create_memory_object_stream[str](1)
        async with create_task_group() as group, take:
            group.start_soon(send, give)
            seen.extend([each async for each in take])
        with move_on_after(0.01) as scope:
            await anyio.sleep_forever()
        assert scope.cancelled_caught
        seen.append(await anyio.to_thread.run_sync(lambda: current().check))
        return Ready("fine")

    async def send(give: Any) -> None:
        async with give:
            await give.send(current().check)

    assert await ask(function) == Ready("fine")
    assert seen == ["check", "check"]


async def test_children_of_a_check_are_cancelled_by_their_group():
    ended: list[str] = []

    async def fail() -> None:
        await anyio.sleep(0)
        raise ValueError("mine")

    async def function() -> Verdict:
        async with create_task_group() as group:
            group.start_soon(child, ended)
            group.start_soon(fail)
        return Ready()

    with pytest.raises(CheckFailed, match="ValueError: mine"):
        await ask(function)
    assert ended == ["child"]


async def test_the_time_limit_reaches_children_and_threads():
    ended: list[str] = []

    def work() -> None:
        try:
            while True:
                anyio.from_thread.check_cancelled()
        finally:
            ended.append("thread")

    async def function() -> Verdict:
        async with create_task_group() as group:
            group.start_soon(child, ended)
            group.start_soon(anyio.to_thread.run_sync, work)
        return Ready()

    with pytest.raises(CheckFailed, match=r"took longer than 0\.05 s"):
        await ask(function, timeout=0.05)
    await eventually(ended, ["child", "thread"])


async def test_the_end_of_a_program_reaches_children():
    ended: list[str] = []
    begun = anyio.Event()

    async def function() -> Verdict:
        async with create_task_group() as group:
            group.start_soon(child, ended)
            begun.set()
        return Ready()

    async with create_task_group() as group:
        group.start_soon(ask, function)
        await begun.wait()
        group.cancel_scope.cancel()
    await eventually(ended, ["child"])


async def test_the_time_limit_does_not_break_a_shield():
    ended: list[str] = []

    async def function() -> Verdict:
        with CancelScope(shield=True):
            await anyio.sleep(0.1)
            ended.append("shielded")
        await anyio.sleep_forever()
        return Ready()

    with pytest.raises(CheckFailed, match="took longer"):
        await ask(function, timeout=0.01)
    await eventually(ended, ["shielded"])


async def test_what_ignores_its_time_limit_is_dropped_soon():
    heard: list[str] = []
    ended: list[str] = []

    async def function() -> Verdict:
        try:
            while True:
                try:
                    await anyio.sleep_forever()
                except anyio.get_cancelled_exc_class():
                    heard.append("cancelled")
        finally:
            ended.append("dropped")

    with pytest.raises(CheckFailed, match="took longer"):
        await ask(function, timeout=0.01)
    await eventually(ended, ["dropped"])
    assert 1 < len(heard) <= 100


def test_a_program_ends_although_a_call_ignores_everything_behind_a_shield():
    async def function() -> Verdict:
        with CancelScope(shield=True):
            while True:
                try:
                    await anyio.sleep_forever()
                except anyio.get_cancelled_exc_class():
                    continue

    async def program() -> None:
        with pytest.raises(CheckFailed, match="took longer"):
            await ask(function, timeout=0.01)

    anyio.run(program)
