"""A kind whose CRD comes after the informer, goes, and is not always readable."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web

from kueuelib.api.kinds import COHORTS
from kueuelib.errors import ConfigError
from kueuelib.machinery.store import Delta
from kueuelib.runtime.cache import Cache, OptionalInformer
from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.transport import Transport


class FakeServer:
    """One kind and its CRD; objects vanish with the CRD, and no watch says so."""

    def __init__(self) -> None:
        self.served: list[str] | None = None
        self.forbidden = False
        self.names: list[str] = []
        self.lists = 0
        self._streams: list[asyncio.Queue[bytes | None]] = []

    def define(self, *versions: str) -> None:
        self.served = list(versions)

    def undefine(self) -> None:
        self.served, self.names = None, []
        self.drop()

    def drop(self) -> None:
        streams, self._streams = self._streams, []
        for stream in streams:
            stream.put_nowait(None)

    def add(self, name: str) -> None:
        self.names.append(name)
        for stream in self._streams:
            stream.put_nowait(self._added(name))

    def _added(self, name: str) -> bytes:
        return orjson.dumps({"type": "ADDED", "object": self._cohort(name)}) + b"\n"

    def _cohort(self, name: str) -> dict[str, Any]:
        version = str(10 + self.names.index(name))
        metadata = {"name": name, "uid": name, "resourceVersion": version}
        return {"apiVersion": COHORTS.api_version, "kind": "Cohort", "metadata": metadata}

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/cohorts.kueue.x-k8s.io"):
            return self._definition()
        if COHORTS.version not in (self.served or ()):
            return web.json_response({"kind": "Status", "reason": "NotFound"}, status=404)
        if "watch" not in request.query:
            self.lists += 1
            items = [self._cohort(name) for name in self.names]
            page = {"kind": "CohortList", "apiVersion": COHORTS.api_version, "items": items}
            return web.json_response({**page, "metadata": {"resourceVersion": str(9 + len(items))}})
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        for name in self.names[int(request.query["resourceVersion"]) - 9 :]:
            queue.put_nowait(self._added(name))
        self._streams.append(queue)
        while (line := await queue.get()) is not None:
            await response.write(line)
        return response

    def _definition(self) -> web.Response:
        if self.forbidden:
            return web.json_response({"kind": "Status", "reason": "Forbidden"}, status=403)
        if self.served is None:
            details = {"name": "cohorts.kueue.x-k8s.io"}
            status = {"kind": "Status", "reason": "NotFound", "details": details}
            return web.json_response(status, status=404)
        versions = [{"name": name, "served": True} for name in self.served]
        return web.json_response(
            {"kind": "CustomResourceDefinition", "spec": {"versions": versions}}
        )


class World:
    """A server, and an optional informer of it with all that its handler was told."""

    def __init__(self, server: FakeServer, client: Client) -> None:
        self.server = server
        self.cache = Cache(client)
        self.informer = OptionalInformer(client, self.cache, COHORTS, sync_timeout=0.5, pause=0.01)
        self.told: list[tuple[str, str]] = []
        self.informer.add_handler(self._tell)

    def _tell(self, delta: Delta[Any]) -> None:
        self.told.append((delta.kind.name, delta.key.name))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        ready = asyncio.Event()
        task = asyncio.create_task(self.informer.run(ready.set))
        try:
            await self.until(lambda: ready.is_set() or task.done())
            if task.done():
                task.result()
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def until(self, check: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):
            while not check():
                await asyncio.sleep(0.005)


@pytest.fixture
async def world(serve: Any) -> AsyncIterator[World]:
    server = FakeServer()
    async with Client(Transport(Endpoint(url=await serve(server)))) as client:
        yield World(server, client)
        server.drop()


async def test_objects_are_known_once_it_is_ready(world: World) -> None:
    world.server.define("v1beta1", "v1beta2")
    world.server.add("a")
    async with world.running():
        assert world.told == [("ADDED", "a")]
        late: list[str] = []
        remove = world.informer.add_handler(lambda delta: late.append(delta.key.name))
        assert late == ["a"]
        world.server.add("b")
        await world.until(lambda: late == ["a", "b"])
        remove()
        world.server.add("c")
        await world.until(lambda: ("ADDED", "c") in world.told)
        assert late == ["a", "b"]


async def test_without_a_definition_it_is_ready_and_empty_and_looks_again(world: World) -> None:
    async with world.running():
        assert world.informer.store.keys() == ()
        assert world.server.lists == 0
        world.server.define("v1beta2")
        world.server.add("a")
        await world.until(lambda: world.told == [("ADDED", "a")])
        await world.cache.catch_up()


async def test_a_definition_of_other_versions_counts_as_none(world: World) -> None:
    world.server.define("v1alpha1")
    async with world.running():
        assert world.server.lists == 0
        world.server.define("v1alpha1", "v1beta2")
        world.server.add("a")
        await world.until(lambda: world.told == [("ADDED", "a")])


async def test_what_is_left_when_the_definition_goes_is_told_as_deleted(world: World) -> None:
    world.server.define("v1beta2")
    world.server.add("a")
    async with world.running():
        world.server.undefine()
        await world.until(lambda: world.told[1:] == [("DELETED", "a")])
        assert world.informer.store.keys() == ()
        world.server.define("v1beta2")
        world.server.add("b")
        await world.until(lambda: world.told[2:] == [("ADDED", "b")])


async def test_a_kind_of_which_nothing_is_certain_is_named_in_time(world: World) -> None:
    world.server.forbidden = True
    with pytest.raises(ConfigError, match=r"cohorts.*: could not be listed in time"):
        async with world.running():
            pass
