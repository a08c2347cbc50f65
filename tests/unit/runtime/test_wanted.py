"""An informer runs while its objects are needed, and forgets them afterwards."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kueuelib.api.kinds import NODES
from kueuelib.api.meta import ObjectKey
from kueuelib.errors import ConfigError
from kueuelib.machinery.store import Delta, Store
from kueuelib.runtime.wanted import WantedInformer


class Source:
    """An informer of two nodes, or one that may not read them."""

    def __init__(self, refused: bool, answers: asyncio.Event) -> None:
        self.store: Store[Any] = Store()
        self._answers = answers
        self.failing = "forbidden" if refused else None
        self.synced = False
        self._settled = asyncio.Event()
        self._refused = refused
        self._handlers: list[Callable[[Delta[Any]], None]] = []
        self.running = False

    def add_handler(self, handler: Callable[[Delta[Any]], None]) -> None:
        self._handlers.append(handler)

    async def wait_settled(self) -> None:
        await self._settled.wait()

    async def run(self) -> None:
        self.running = True
        try:
            await self._answers.wait()
            if not self._refused:
                nodes = [
                    (ObjectKey("", name), {"metadata": {"name": name, "uid": name}})
                    for name in "ab"
                ]
                for delta in self.store.replace(nodes, initial=True):
                    for handler in self._handlers:
                        handler(delta)
            self.synced = not self._refused
            self._settled.set()
            await asyncio.sleep(60.0)
        finally:
            self.running = False


class World:
    """What makes informers, and the informer under test."""

    def __init__(
        self, refused: bool = False, wanted: bool = False, after: WantedInformer | None = None
    ) -> None:
        self.made: list[Source] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self._refused = refused
        self.decided = asyncio.Event()
        cache: Any = self
        indexes = {"first": lambda obj: [obj["metadata"]["name"]]}
        self.heard: list[str] = []
        self.informer = WantedInformer(
            cache,
            NODES,
            self._decide,
            indexes=indexes,
            refused=self.heard.append,
            after=after,
            label_selector="a",
        )
        self.informer.want(wanted)
        self.seen: list[tuple[str, str]] = []
        self.informer.add_handler(lambda delta: self.seen.append((delta.key.name, delta.kind.name)))
        self.ready = asyncio.Event()

    async def _decide(self) -> None:
        await self.decided.wait()

    def apart(self, resource: Any, **selection: Any) -> Source:
        assert (resource, selection) == (NODES, {"label_selector": "a"})
        self.made.append(Source(self._refused, self.answers))
        return self.made[-1]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.informer.run(self.ready.set))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20.0):
            while not holds():
                await asyncio.sleep(0.01)


async def test_nothing_is_read_until_it_is_known_whether_it_is_needed() -> None:
    world = World(wanted=True)
    async with world.running():
        await asyncio.sleep(0.02)
        assert not world.made
        assert not world.ready.is_set()
        world.decided.set()
        await world.until(world.ready.is_set)
        assert world.seen == [("a", "ADDED"), ("b", "ADDED")]
        assert [one["metadata"]["name"] for one in world.informer.store.by_index("first", "a")] == [
            "a"
        ]


async def test_objects_are_forgotten_when_nobody_needs_them_and_come_back() -> None:
    world = World()
    world.decided.set()
    async with world.running():
        await world.until(world.ready.is_set)
        assert not world.made
        world.informer.want(True)
        await world.until(lambda: len(world.seen) == 2)
        world.informer.want(False)
        await world.until(lambda: len(world.seen) == 4)
        assert {kind for _, kind in world.seen[2:]} == {"DELETED"}
        assert not world.made[0].running
        world.informer.want(True)
        await world.until(lambda: len(world.seen) == 6)


@pytest.mark.parametrize("refused", [False, True])
async def test_one_is_read_after_another(refused: bool) -> None:
    first = World(refused)
    second = World(after=first.informer)
    first.decided.set()
    second.decided.set()
    async with first.running(), second.running():
        await first.until(lambda: first.ready.is_set() and second.ready.is_set())
        for _ in range(2):
            first.answers.clear()
            for world in (first, second):
                world.informer.want(True)
            await first.until(lambda: bool(first.made) and first.made[-1].running)
            await asyncio.sleep(0.02)
            assert not second.made[-1].running
            assert second.seen == []
            first.answers.set()
            await second.until(lambda: len(second.seen) == 2)
            for world in (second, first):
                world.informer.want(False)
            await first.until(lambda: len(second.seen) == 4 and not first.made[-1].running)
            second.seen.clear()


async def test_others_begin_without_objects_that_may_not_be_read() -> None:
    world = World(refused=True, wanted=True)
    world.decided.set()
    async with world.running():
        await world.until(world.ready.is_set)
        assert world.made[0].running
        assert world.heard == ["forbidden"]
        world.made[0].synced = True
        await world.until(lambda: world.heard == ["forbidden", ""])


async def test_a_list_that_does_not_come_is_named() -> None:
    with pytest.raises(ConfigError, match="nodes"):
        await World().informer.wait_synced(0.01)
