from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from aiohttp import web

from kueuelib.api.meta import ObjectKey
from kueuelib.errors import LeadershipLost
from kueuelib.machinery.election import ElectionOptions
from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.leader import Elector, default_identity
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.transport import Transport


class FakeLeases:
    """One Lease with optimistic locking; may be told to fail."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.broken = False
        self.writes = 0
        self.reads = 0

    async def __call__(self, request: web.Request) -> web.Response:
        if self.broken:
            return web.Response(status=500)
        if request.method == "GET":
            self.reads += 1
            if self.lease is None:
                return web.json_response({"kind": "Status", "reason": "NotFound"}, status=404)
            return web.json_response(self.lease)
        body = await request.json()
        held = (self.lease or {}).get("metadata", {}).get("resourceVersion")
        if request.method == "PUT" and body["metadata"]["resourceVersion"] != held:
            return web.json_response({"kind": "Status", "reason": "Conflict"}, status=409)
        self.version += 1
        self.writes += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.lease = body
        return web.json_response(body)

    @property
    def holder(self) -> str:
        return (self.lease or {}).get("spec", {}).get("holderIdentity", "")


@pytest.fixture
async def leases(serve):
    fake = FakeLeases()
    async with Client(Transport(Endpoint(url=await serve(fake)))) as client:
        fake.client = client
        yield fake


def elector(leases: FakeLeases, name: str, **more: Any) -> Elector:
    """Renews quickly, and has all the time in the world to do it."""
    times = {"lease_duration": 3600.0, "renew_deadline": 1800.0, "retry_period": 0.05, **more}
    options = ElectionOptions(ObjectKey("ns", "lock"), name, **times)
    return Elector(leases.client, options, telemetry=Telemetry())


async def leading(found: Elector) -> asyncio.Task[None]:
    ready = asyncio.Event()
    task = asyncio.create_task(found.run(ready.set))
    await asyncio.wait_for(ready.wait(), 60)
    return task


async def test_the_first_leads_and_keeps_renewing(leases):
    found = elector(leases, "a")
    task = await leading(found)
    assert found.is_leader()
    assert leases.holder == "a"
    async with asyncio.timeout(60):
        while leases.writes < 4:
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert leases.holder == "a"
    assert not found.is_leader()


async def test_what_the_leader_notes_on_its_lease_replaces_what_the_last_one_noted(leases):
    def noted() -> dict[str, str]:
        return (leases.lease or {}).get("metadata", {}).get("annotations", {})

    async def until(wanted: dict[str, str]) -> None:
        async with asyncio.timeout(60):
            while noted() != wanted:
                await asyncio.sleep(0.01)

    first, second = elector(leases, "a", release_on_cancel=True), elector(leases, "b")
    first.annotate("note", "old")
    task = await leading(first)
    await until({"note": "old"})
    first.annotate("note", "new")
    await until({"note": "new"})
    task.cancel()
    await asyncio.wait([task])
    second.annotate("note", "")
    task = await leading(second)
    await until({"note": ""})
    task.cancel()
    await asyncio.wait([task])


async def test_the_second_waits_until_the_first_lets_go(leases):
    first, second = elector(leases, "a", release_on_cancel=True), elector(leases, "b")
    task = await leading(first)
    won = asyncio.Event()
    waiting = asyncio.create_task(second.run(won.set))
    await asyncio.sleep(0.2)
    assert not won.is_set()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(won.wait(), 60)
    assert leases.holder == "b"
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_the_end_of_the_scope_that_it_runs_in_lets_go_of_the_lease(leases):
    found, ready = elector(leases, "a", release_on_cancel=True), anyio.Event()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(found.run, ready.set)
            await ready.wait()
            group.cancel_scope.cancel()
    assert leases.holder == ""


async def test_an_elector_that_is_held_back_takes_the_lease_when_it_may(leases):
    found = elector(leases, "a", retry_period=600.0)
    won = asyncio.Event()
    found.hold()
    task = asyncio.create_task(found.run(won.set))
    async with asyncio.timeout(60):
        while not leases.reads:
            await asyncio.sleep(0.001)
    assert leases.writes == 0
    found.stand()
    await asyncio.wait_for(won.wait(), 60)
    assert leases.holder == "a"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_who_lost_its_lease_takes_it_again_at_once_under_the_same_name(leases):
    task = await leading(elector(leases, "a", renew_deadline=0.5))
    leases.broken = True
    with pytest.raises(LeadershipLost):
        await asyncio.wait_for(task, 60)
    leases.broken = False
    again = await leading(elector(leases, "a"))
    assert leases.lease["spec"]["leaseTransitions"] == 0
    again.cancel()
    with pytest.raises(asyncio.CancelledError):
        await again


async def test_a_leader_that_cannot_renew_gives_up_in_time(leases):
    found = elector(leases, "a", renew_deadline=0.5)
    task = await leading(found)
    leases.broken = True
    with pytest.raises(LeadershipLost, match="renewed in time"):
        await asyncio.wait_for(task, 60)
    assert not found.leading


async def test_a_leader_whose_lease_was_taken_gives_up(leases):
    found = elector(leases, "a")
    task = await leading(found)
    leases.lease["spec"]["holderIdentity"] = "thief"
    leases.lease["metadata"]["resourceVersion"] = "stolen"
    with pytest.raises(LeadershipLost, match="thief"):
        await asyncio.wait_for(task, 60)


def test_identities_differ():
    assert default_identity() != default_identity()
