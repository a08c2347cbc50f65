"""Checks that raise, hang and answer what nobody expects hold nobody up."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.checks import (
    Pending,
    PodSetUpdate,
    Ready,
    Rejected,
    Retry,
    Verdict,
    Workload,
    check,
    current,
)
from kueuelib.checks.evaluation import (
    CheckFailed,
    SerialTurns,
    Threads,
    UserCall,
    describe,
    started,
)

if TYPE_CHECKING:
    from .conftest import Checks

NAME = "example.com/test"


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Incomparable:
    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")


def raising(error: BaseException) -> Callable[[], Any]:
    def function() -> Any:
        raise error

    return function


async def _task_that_exits() -> Any:
    async def child() -> None:
        sys.exit("from a task")

    async with asyncio.TaskGroup() as group:
        group.create_task(child())


WRONG = {
    "lone surrogates": (raising(OSError("file \udcff bad")), "OSError: file \\udcff bad"),
    "no text": (raising(Unreadable()), "Unreadable: its text cannot be read"),
    "exit": (raising(SystemExit("bye")), "SystemExit: bye"),
    "interrupt": (raising(KeyboardInterrupt()), "KeyboardInterrupt"),
    "generator exit": (raising(GeneratorExit()), "GeneratorExit"),
    "cancelled": (raising(asyncio.CancelledError()), "ancelled"),
    "a group": (
        raising(ExceptionGroup("two", [ValueError("one"), OSError("other")])),
        "ValueError: one; OSError: other",
    ),
    "message": (lambda: Ready(5), "message is of type int"),  # type: ignore[arg-type]
    "after": (lambda: Retry("x", after="5"), "after is of type str"),  # type: ignore[arg-type]
    "again": (lambda: Pending("x", again=1e99), "again=1e+99 is not a time"),
    "updates": (lambda: Ready(updates=PodSetUpdate("main")), "updates is of type PodSetUpdate"),  # type: ignore[arg-type]
    "nothing": (lambda: None, "answered NoneType"),
    "a class": (lambda: Ready, "answered type"),
    "a task that exits": (_task_that_exits, "SystemExit: from a task"),
}


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "in a thread"])
async def test_whatever_goes_wrong_is_a_retry_with_a_readable_event(
    checks: Checks, is_async: bool
) -> None:
    answers = [answer for answer, _ in WRONG.values()]

    async def asynchronous(workload: Workload, parameters: Any) -> Any:
        found = answers[int(workload.name.removeprefix("wl-"))]()
        return await found if asyncio.iscoroutine(found) else found

    def synchronous(workload: Workload, parameters: Any) -> Any:
        return answers[int(workload.name.removeprefix("wl-"))]()

    wrong = check(NAME)(asynchronous if is_async else synchronous)
    async with checks.running(wrong):
        await checks.admission_check("check", NAME)
        await checks.queues("check", cpu="100")
        for number in range(len(WRONG)):
            await checks.world.workload(f"wl-{number}")
        for number, (_, told) in enumerate(WRONG.values()):
            entry = await checks.state(f"wl-{number}", "Retry")
            assert told in entry["message"]
            assert told in await checks.event(f"wl-{number}", "AdmissionCheckFailed")


async def test_a_generator_that_ends_in_a_thread_does_not_wait_for_the_time_out(
    checks: Checks,
) -> None:
    wrong = check(NAME, timeout=600)(lambda _, __: next(iter(())))
    async with checks.running(wrong):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        assert "StopIteration" in (await checks.state("wl", "Retry"))["message"]


async def test_a_withdrawal_counts_although_its_text_cannot_be_sent(checks: Checks) -> None:
    calls = 0

    @check(NAME, recheck=0.05)
    async def changing(workload: Workload, parameters: Any) -> Verdict:
        nonlocal calls
        calls += 1
        return Ready() if calls == 1 else Rejected("r\ud800")

    async with checks.running(changing):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        assert "r\\ud800" in await checks.event("wl", "AdmissionCheckRejected")
        await checks.world.is_("wl", "Evicted")


async def test_who_cannot_be_compared_is_a_retry_too(checks: Checks) -> None:
    go_on = asyncio.Event()

    @check(NAME, serialize=lambda _: Incomparable())
    async def waiting(workload: Workload, parameters: Any) -> Verdict:
        await go_on.wait()
        return Ready()

    async with checks.running(waiting):
        await checks.admission_check("check", NAME)
        await checks.queues("check", cpu="4")
        await checks.world.workload("first")
        await checks.world.workload("second")

        async def failed() -> bool:
            found = [await checks.entry(name) for name in ("first", "second")]
            return any("not comparable" in entry.get("message", "") for entry in found)

        await checks.until(failed)
        go_on.set()


async def test_a_slow_check_holds_up_no_other_one_of_the_same_workload(checks: Checks) -> None:
    go_on = asyncio.Event()
    failed = 0

    @check(NAME, interval=0.05)
    async def two(workload: Workload, parameters: Any) -> Verdict:
        nonlocal failed
        if current().check == "slow":
            await go_on.wait()
            return Ready()
        failed += 1
        return Pending(f"call {failed}")

    async with checks.running(two):
        for name in ("quick", "slow"):
            await checks.admission_check(name, NAME)
        await checks.queues("quick", "slow")
        await checks.world.workload("wl")
        await checks.until(lambda: failed > 3)
        go_on.set()
        await checks.state("wl", "Ready", "slow")


async def test_a_group_that_is_busy_holds_up_no_other(checks: Checks) -> None:
    """One worker, and a group whose turn does not end: the other group is decided all the same."""
    go_on, asked = asyncio.Event(), []

    @check(NAME, serialize=lambda wl: wl.name[0], concurrency=2)
    async def grouped(workload: Workload, parameters: Any) -> Verdict:
        asked.append(workload.name)
        if workload.name.startswith("a"):
            await go_on.wait()
        return Ready()

    async with checks.running(grouped):
        await checks.admission_check("check", NAME)
        await checks.queues("check", cpu="100")
        for number in range(6):
            await checks.world.workload(f"a-{number}")
        await checks.until(lambda: len(asked) == 1)
        await checks.world.workload("b")
        await checks.state("b", "Ready")
        assert len(asked) == 2
        go_on.set()
        for number in range(6):
            await checks.state(f"a-{number}", "Ready")
        assert sorted(asked) == ["a-0", "a-1", "a-2", "a-3", "a-4", "a-5", "b"]


async def test_pending_without_a_pause_is_no_busy_loop(checks: Checks) -> None:
    calls = 0

    @check(NAME)
    async def impatient(workload: Workload, parameters: Any) -> Verdict:
        nonlocal calls
        calls += 1
        return Pending("not yet", again=0)

    async with checks.running(impatient):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        await checks.until(lambda: calls > 0)
        before, since = calls, time.monotonic()
        await asyncio.sleep(1.5)
        assert calls - before <= time.monotonic() - since + 1


async def test_what_a_check_may_ask_for_it_may_ask_for_in_a_thread(checks: Checks) -> None:
    """The recorder and the store of workloads belong to the event loop."""

    @check(NAME, serialize=lambda wl: wl.namespace)
    def threaded(workload: Workload, parameters: Any) -> Verdict:
        passed = [other.name for other in current().passed("default")]
        current().event("Normal", "Asked", f"beside {passed}, file \udcff")
        return Ready()

    async with checks.running(threaded):
        await checks.admission_check("check", NAME)
        await checks.queues("check", cpu="4")
        await checks.world.workload("first")
        await checks.state("first", "Ready")
        await checks.world.workload("second")
        assert await checks.event("second", "Asked") == "beside ['first'], file \\udcff"


# ---- turns


def test_turns_come_in_order_and_who_does_not_take_his_is_passed_over() -> None:
    called: list[str] = []
    turns = SerialTurns(lambda key: called.append(key.name))
    group = turns.group("g")
    a, b, c = (ObjectKey("", name) for name in "abc")
    assert turns.take(group, a)
    assert not turns.take(group, b)
    assert not turns.take(group, b)
    assert not turns.take(group, c)
    assert turns.group("g") is group
    turns.end(group)
    assert called == ["b"]
    assert not turns.take(group, a)
    turns.pass_on(b)  # looked at, and nothing to decide any more
    assert called == ["b", "c"]
    assert turns.take(group, c)
    turns.pass_on(c)
    turns.end(group)
    assert called == ["b", "c", "a"]
    assert turns.take(group, a)
    turns.end(group)
    assert turns.take(group, b)


# ---- calls


async def test_what_ignores_its_cancellation_is_dropped_when_the_program_ends(
    recwarn: pytest.WarningsRecorder,
) -> None:
    heard: list[str] = []

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                heard.append("cancelled")

    call = UserCall()
    task = started(call, stubborn())
    await asyncio.sleep(0)
    call.give_up()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert 0 < len(heard) < 100


async def test_time_limits_inside_a_call_work_as_ever() -> None:
    async def limited() -> str:
        for _ in range(3):
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(3600)
            except TimeoutError:
                continue
        return await asyncio.create_task(asyncio.sleep(0, "done"))

    assert await started(UserCall(), limited()) == "done"


async def test_as_many_calls_may_hang_in_threads_as_may_be_made_at_a_time() -> None:
    go_on, over = threading.Event(), list[str]()
    threads = Threads("test", 1)
    hanging = asyncio.create_task(threads.run(go_on.wait, lambda: over.append("first")))
    await asyncio.sleep(0)
    hanging.cancel()
    await asyncio.wait({hanging})
    with pytest.raises(CheckFailed, match="1 earlier calls hang in their threads"):
        await threads.run(lambda: None, lambda: over.append("second"))
    assert over == ["second"]
    go_on.set()
    while threads.hanging:
        await asyncio.sleep(0.01)
    assert await threads.run(lambda: 5, lambda: over.append("third")) == 5
    assert over == ["second", "first", "third"]


def test_a_text_that_ends_the_process_does_not() -> None:
    class Ending(Exception):
        def __str__(self) -> str:
            return str(sys.exit(1))

    assert describe(Ending()) == "Ending: its text cannot be read"
