"""What deadlines and tasks cost with asyncio, with anyio and with `runtime/clock.py`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Self

import anyio
import orjson
import pytest
from figures import show
from samples import MAKERS

from kueuelib.api.kinds import PODS
from kueuelib.machinery.options import ReflectorOptions
from kueuelib.runtime import informer, watch
from kueuelib.runtime.clock import SYSTEM_CLOCK, Deadlines, Limit
from kueuelib.runtime.informer import InformerMetrics, ListWatch

USES = 20_000
ROUNDS = 5
FAR = 30.0


async def best(use: Callable[[], Awaitable[object]], uses: int = USES) -> float:
    """Microseconds of processor time per use; the best of some rounds."""
    found = []
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(uses):
            await use()
        found.append((time.process_time() - started) / uses * 1e6)
    return min(found)


async def nothing() -> None:
    """What is awaited."""


async def test_deadlines_and_tasks() -> None:
    deadlines = Deadlines()

    def scoped(make: Callable[[], AbstractContextManager[object]]) -> Callable[[], Any]:
        async def use() -> None:
            with make():
                await nothing()

        return use

    async def timeout() -> None:
        async with asyncio.timeout(FAR):
            await nothing()

    def grouped(make: Callable[[], AbstractAsyncContextManager[Any]]) -> Callable[[], Any]:
        async def use() -> None:
            async with make() as group:
                start = getattr(group, "start_soon", None) or (lambda f: group.create_task(f()))
                start(nothing)

        return use

    empty = await best(nothing)
    rows = []
    for name, use in (
        ("runtime/clock.py", scoped(lambda: Limit(deadlines, FAR))),
        ("asyncio.timeout", timeout),
        ("anyio.fail_after", scoped(lambda: anyio.fail_after(FAR))),
        ("asyncio.TaskGroup with a task", grouped(asyncio.TaskGroup)),
        ("anyio task group with a task", grouped(anyio.create_task_group)),
    ):
        rows.append((name, f"{await best(use) - empty:.1f} µs"))
    show("processor time per use", rows)


class Scope(Limit):
    """As `Limit`, with a scope of anyio."""

    def __enter__(self) -> Self:
        self._scope = anyio.fail_after(FAR if self._seconds is None else self._seconds)
        self._scope.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._scope.__exit__(*raised)


class Pieces:
    """The body of a watch: each piece is one event, and comes after a turn of the loop."""

    def __init__(self) -> None:
        event = {"type": "MODIFIED", "object": MAKERS["pods"](1)}
        self.line = orjson.dumps(event) + b"\n"

    async def readany(self) -> bytes:
        loop = asyncio.get_running_loop()
        came = loop.create_future()
        loop.call_soon(came.set_result, self.line)
        return bytes(await came)


async def piece_by_piece() -> float:
    """Microseconds for one piece of a watch, from the answer's body to the reflector."""
    pieces: Any = Pieces()
    client: Any = None
    options = ReflectorOptions()
    metrics = InformerMetrics(None, "pods", "")
    reader = ListWatch(client, PODS, SYSTEM_CLOCK, options, metrics)
    reader._stream = watch.WatchStream(
        pieces, server_timeout=1e9, what="pods", max_line=2**20, release=lambda: None
    )
    deadline = SYSTEM_CLOCK.monotonic() + 1e6
    return await best(lambda: reader.go_on(deadline))


async def test_a_piece_of_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = await piece_by_piece()
    for module in (informer, watch):
        monkeypatch.setattr(module, "Limit", Scope)
    scopes = await piece_by_piece()
    show(
        "processor time per piece of a watch, without the network",
        [("runtime/clock.py", f"{ours:.0f} µs"), ("anyio.fail_after", f"{scopes:.0f} µs")],
    )
