"""AdmissionChecks whose process gives no sign of life, on an embedded API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kueuelib.api import kinds
from kueuelib.api.meta import ObjectKey
from kueuelib.checks import Ready, check
from kueuelib.checks.heartbeats import HeartbeatWatch, lease_annotations, lease_labels
from kueuelib.errors import Forbidden
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.queries import PatchType

NAME = "example.com/budget"
LEASE = ObjectKey("default", "budget")


class Looks:
    """A clock on which the time between two looks passes when the test says so."""

    def __init__(self) -> None:
        self.at = 1_800_000_000.0
        self.asleep = asyncio.Event()
        self.go_on = asyncio.Event()

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.asleep.set()
        await self.go_on.wait()
        self.go_on.clear()
        self.at += seconds

    async def pass_(self, looks: int) -> None:
        for _ in range(looks):
            await asyncio.wait_for(self.asleep.wait(), 60)
            self.asleep.clear()
            self.go_on.set()
        await asyncio.wait_for(self.asleep.wait(), 60)


@contextlib.asynccontextmanager
async def watching(checks: Any, *own: str) -> AsyncIterator[Looks]:
    manager, cache, clock = Manager(stop_deadline=5.0), Cache(checks.client), Looks()
    recorder = EventRecorder(checks.client, "kueue")
    informer = cache.informer(kinds.ADMISSION_CHECKS)
    watch = HeartbeatWatch(checks.client, informer, recorder, "default", own, clock=clock)
    manager.add(Group.EVENTS, recorder)
    manager.add(Group.CACHES, cache)
    manager.add(Group.ELECTED, watch)
    task = asyncio.create_task(manager.run())
    try:
        await checks.until(lambda: manager.ready or task.done())
        yield clock
    finally:
        manager.stop()
        await task


async def renew(checks: Any, time: int, *, create: bool = False) -> None:
    spec = {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "renewTime": f"2026-01-01T00:00:{time:02}.000000Z",
    }
    meta = {
        "namespace": LEASE.namespace,
        "name": LEASE.name,
        "labels": lease_labels(),
        "annotations": lease_annotations([NAME]),
    }
    kind = {"apiVersion": kinds.LEASES.api_version, "kind": "Lease"}
    if create:
        await checks.client.create(kinds.LEASES, {**kind, "metadata": meta, "spec": spec})
    else:
        await checks.client.patch(kinds.LEASES, LEASE, {"spec": spec}, PatchType.MERGE)


@check(NAME)
async def budget(_workload: Any, _parameters: Any) -> Ready:
    return Ready()


async def events(checks: Any) -> list[str]:
    found = [event async for event in checks.client.list_all(kinds.EVENTS, "default")]
    return [event["message"] for event in found if event["reason"] == "NoSignOfLife"]


@pytest.fixture
async def active(checks: Any) -> Any:
    """An AdmissionCheck that its process called active, and a Lease that it renewed once."""
    await checks.admission_check("check", NAME)
    async with checks.deciding(budget):
        await checks.is_active("check", "True")
    await renew(checks, 1, create=True)
    return checks


async def test_a_silent_process_is_shown_and_comes_back(active):
    async with watching(active) as clock:
        await clock.pass_(6)
        assert (await active.active("check"))[0] == "True"
        await clock.pass_(1)
        status, reason, message = await active.active("check")
        assert (status, reason) == ("False", "NoSignOfLife")
        assert message == (
            f"no sign of life from {NAME} since 2026-01-01T00:00:01Z: "
            "its Lease default/budget is not renewed"
        )

        async def told() -> bool:
            return await events(active) == [message]

        await active.until(told)
        await renew(active, 50)
        async with active.deciding(budget):
            await active.is_active("check", "True")
        await clock.pass_(3)
        assert (await active.active("check"))[0] == "True"


async def test_a_silence_is_written_once_and_not_fought_for(active):
    async with watching(active) as clock:
        await clock.pass_(7)
        assert (await active.active("check"))[0] == "False"
        async with active.deciding(budget):  # of another make: it renews nothing
            await active.is_active("check", "True")
        await clock.pass_(5)
        assert (await active.active("check"))[0] == "True"


async def test_who_never_had_a_lease_is_left_alone(active):
    await active.client.delete(kinds.LEASES, LEASE)
    async with watching(active) as clock:
        await clock.pass_(20)
    assert (await active.active("check"))[0] == "True"


async def test_checks_of_our_own_process_are_left_alone(active):
    async with watching(active, NAME) as clock:
        await clock.pass_(20)
    assert (await active.active("check"))[0] == "True"


async def test_an_api_server_that_is_away_makes_nobody_silent(active):
    refused = False
    request = active.client.transport.request

    async def maybe(method: str, path: str, **more: Any) -> Any:
        if refused and path.endswith("/leases"):
            raise Forbidden("not now")
        return await request(method, path, **more)

    active.client.transport.request = maybe
    async with watching(active) as clock:
        await clock.pass_(3)
        refused = True
        await clock.pass_(20)
        refused = False
        await clock.pass_(3)
        assert (await active.active("check"))[0] == "True"
        await clock.pass_(3)
        assert (await active.active("check"))[0] == "False"
