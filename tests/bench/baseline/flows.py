"""Flows: objects that all fit, created at once, until the manager has let the last one start."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).parents[1]))

from load import GROUP_SIZE, create_all, group_pods, job, queue_objects

from kueuelib.api.kinds import JOBS, PODS
from kueuelib.api.meta import Obj, Resource
from kueuelib.jobs.pods.reading import is_gated

from .calls import CountedClient
from .parts import Outcome, Patience

CHECK_SECONDS = 0.25
WATCH_SECONDS = 3600.0


@attrs.frozen
class Flow:
    """Jobs, or plain pods in groups of ten.

    Attributes:
        resource: what is created.
        count: how many.
    """

    resource: Resource
    count: int

    def scaled(self, count: int | None) -> Flow:
        """The same with so many, in whole groups; as it is if None."""
        if count is None:
            return self
        return attrs.evolve(self, count=-(-count // GROUP_SIZE) * GROUP_SIZE)

    def queue_objects(self) -> Iterator[tuple[Resource, Obj]]:
        """One ClusterQueue that has room for all of them."""
        return queue_objects(self.count)

    def objects(self) -> Iterable[Obj]:
        """What is created, in this order."""
        if self.resource == JOBS:
            return (job(f"job-{number:05d}") for number in range(self.count))
        return (
            pod
            for number in range(self.count // GROUP_SIZE)
            for pod in group_pods(f"group-{number:04d}")
        )

    def started(self, obj: Obj) -> bool:
        """Whether the manager has let it start."""
        if self.resource == JOBS:
            return not obj["spec"].get("suspend")
        return not is_gated(obj)

    async def play(
        self, client: CountedClient, patience: Patience, sample: Callable[[], None]
    ) -> Outcome:
        """Create all, with as many creators as `create_all` has, and watch."""
        started: dict[str, float] = {}

        def see(obj: Obj) -> None:
            if self.started(obj):
                started.setdefault(obj["metadata"]["name"], time.monotonic())

        async def watch() -> None:
            """A server that is in arrears may end a watch."""
            while len(started) < self.count:
                page = await client.client.list(self.resource)
                for obj in page.items:
                    see(obj)
                async with await client.client.watch(
                    self.resource, resource_version=page.resource_version, timeout=WATCH_SECONDS
                ) as stream:
                    while len(started) < self.count and (batch := await stream.batch()):
                        if any(event["type"] == "ERROR" for event in batch):
                            break
                        for event in batch:
                            if event["type"] != "BOOKMARK":
                                see(event["object"])

        async def create() -> float:
            await create_all(client, self.resource, self.objects())
            return time.monotonic() - begun

        begun = time.monotonic()
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(watch())
            creator = group.create_task(create())
            while not watcher.done():
                now = time.monotonic()
                quiet = creator.done() and now - max(started.values(), default=begun)
                if quiet > patience.quiet or now - begun > patience.limit:
                    watcher.cancel()
                    creator.cancel()
                await asyncio.wait([watcher], timeout=CHECK_SECONDS)
                sample()
        wall = max(started.values(), default=begun) - begun
        creation = None if creator.cancelled() else creator.result()
        return Outcome(self.count, len(started), wall, creation=creation)

    async def remove(self, client: CountedClient) -> None:
        """Only servers that end with the run are given flows."""
        raise NotImplementedError


FLOWS = {"jobs": Flow(JOBS, 1500), "pods": Flow(PODS, 3000)}
