"""Notes on the Lease of a manager without leader election."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kueuelib.api.kinds import LEASES
from kueuelib.api.meta import ObjectKey, annotations_of
from kueuelib.app.reloading import RESTART_NEEDED
from kueuelib.app.running_configuration import LeaseNotes
from kueuelib.embedded.server import ApiServer
from kueuelib.errors import NotFound, Unavailable
from kueuelib.runtime.client import Client

LEASE = ObjectKey("default", "manager")


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ApiServer() as server, server.client() as found:
        yield found


async def noted(client: Client, keys: str) -> dict[str, Any]:
    """The Lease once it says so."""
    async with asyncio.timeout(10):
        while True:
            try:
                lease = await client.get(LEASES, LEASE)
            except NotFound:
                lease = {"metadata": {}}
            if annotations_of(lease).get(RESTART_NEEDED, "") == keys:
                return lease
            await asyncio.sleep(0.01)


async def test_keys_are_noted_on_a_lease_that_nobody_holds(client: Client) -> None:
    note = LeaseNotes(client, LEASE)
    running = asyncio.create_task(note.run(lambda: None))
    await asyncio.sleep(0.1)
    with pytest.raises(NotFound):  # there is nothing to tell
        await client.get(LEASES, LEASE)
    note.annotate(RESTART_NEEDED, "a.b, c")
    lease = await noted(client, "a.b, c")
    assert not lease["spec"].get("holderIdentity")
    note.annotate(RESTART_NEEDED, "")
    await noted(client, "")
    running.cancel()


async def test_what_the_last_life_noted_is_taken_back(client: Client) -> None:
    notes = {RESTART_NEEDED: "old", "other": "stays"}
    meta = {"namespace": LEASE.namespace, "name": LEASE.name, "annotations": notes}
    spec = {"holderIdentity": "", "leaseTransitions": 3}
    head = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
    await client.create(LEASES, {**head, "metadata": meta, "spec": spec})
    note = LeaseNotes(client, LEASE)
    note.annotate(RESTART_NEEDED, "")
    running = asyncio.create_task(note.run(lambda: None))
    lease = await noted(client, "")
    assert annotations_of(lease)["other"] == "stays"
    assert lease["spec"]["leaseTransitions"] == 3
    running.cancel()


class Hurried:
    """A clock that nobody waits for."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return sum(self.slept)

    monotonic = now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_a_server_that_fails_is_asked_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Hurried()
    note, failures, create = LeaseNotes(client, LEASE, clock=clock), [1, 1], client.create

    async def failing(*args: Any, **options: Any) -> Any:
        if failures:
            failures.pop()
            raise Unavailable("later")
        return await create(*args, **options)

    monkeypatch.setattr(client, "create", failing)
    note.annotate(RESTART_NEEDED, "a")
    running = asyncio.create_task(note.run(lambda: None))
    await noted(client, "a")
    assert clock.slept == [10.0, 10.0]
    running.cancel()
