"""An embedded API server with queueing controllers, and checks beside them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kueuelib.api import kinds
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.checks import Check, setup
from kueuelib.errors import Conflict
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.manager import Group, Manager
from kueuelib.workload import states
from kueuelib.workload.writer import write_status

_FILE = Path(__file__).parents[1] / "controllers" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("world_of_controllers", _FILE)
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = sys.modules.setdefault(_SPEC.name, importlib.util.module_from_spec(_SPEC))
_SPEC.loader.exec_module(_MODULE)

world = _MODULE.world


class Checks:
    """A world in which checks decide."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.client = world.client
        self.until = world.until

    @contextlib.asynccontextmanager
    async def running(self, *checks: Check) -> AsyncIterator[None]:
        """Queueing controllers, and checks with a manager of their own."""
        async with self.world.running(), self.deciding(*checks):
            yield

    @contextlib.asynccontextmanager
    async def deciding(self, *checks: Check) -> AsyncIterator[None]:
        """Only the checks, as in a process of their own."""
        manager, cache = Manager(stop_deadline=5.0), Cache(self.client)
        recorder = EventRecorder(self.client, "test")
        manager.add(Group.EVENTS, recorder)
        manager.add(Group.CACHES, cache)
        setup(manager, cache, self.client, recorder, checks)
        task = asyncio.create_task(manager.run())
        try:
            await self.until(lambda: manager.ready or task.done())
            yield
        finally:
            manager.stop()
            await task

    async def admission_check(self, name: str, controller: str, **spec: Any) -> str:
        await self.world.create(
            kinds.ADMISSION_CHECKS, name, {"controllerName": controller, **spec}
        )
        return name

    async def queues(self, *checks: str, cpu: str = "2", **spec: Any) -> None:
        strategy = {"admissionChecks": [{"name": name} for name in checks]}
        await self.world.queues(cpu=cpu, admissionChecksStrategy=strategy, **spec)

    async def get(self, name: str) -> Obj:
        workload: Obj = await self.world.get(kinds.WORKLOADS, name, "default")
        return workload

    async def entry(self, name: str, check: str = "check") -> Obj:
        for entry in states.check_states(await self.get(name)):
            if entry["name"] == check:
                return dict(entry)
        return {}

    async def state(self, name: str, wanted: str, check: str = "check") -> Obj:
        """Waits for the state of a check."""

        async def reached() -> Obj:
            entry = await self.entry(name, check)
            assert entry.get("state") == wanted, entry
            return entry

        settled: Obj = await self.until(reached, f"{check} of {name} is not {wanted}")
        return settled

    async def release(self, name: str) -> None:
        """What a job reconciler does once the job has stopped."""

        async def released() -> bool:
            wl = await self.get(name)
            assert states.is_evicted(wl)
            assert states.has_quota(wl)
            try:
                await write_status(self.client, wl, states.release(wl, 1_700_000_000.0))
            except Conflict:  # a controller was faster: read it again
                return False
            return True

        await self.until(released)

    async def active(self, name: str) -> tuple[str, str, str]:
        check = await self.client.get(kinds.ADMISSION_CHECKS, ObjectKey("", name))
        for entry in (check.get("status") or {}).get("conditions") or ():
            if entry["type"] == "Active":
                return entry["status"], entry["reason"], entry["message"]
        return "", "", ""

    async def is_active(self, name: str, status: str, text: str = "") -> None:
        """Waits for the Active condition of an AdmissionCheck."""

        async def reached() -> bool:
            condition = await self.active(name)
            assert condition[0] == status, condition
            assert text in condition[2], condition
            return True

        await self.until(reached)

    async def event(self, name: str, reason: str) -> str:
        """Waits for an event about a Workload and returns its message."""

        async def told() -> str:
            return dict(await self.world.events(name))[reason]

        message: str = await self.until(told, f"no event {reason}")
        return message


@pytest.fixture
def checks(world: Any) -> Checks:
    return Checks(world)
