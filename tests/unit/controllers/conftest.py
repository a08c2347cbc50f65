"""A manager with the queueing controllers on an embedded API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from kueuelib.api import kinds
from kueuelib.api.crd import all_crds
from kueuelib.api.meta import Obj, ObjectKey, Resource, find_condition
from kueuelib.controllers.assembly import Controllers, ControllerSettings, setup
from kueuelib.embedded.server import ApiServer
from kueuelib.errors import ApiError, NotFound
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.settings import Settings

WAIT = 120.0


class World:
    """An API server with CRDs, a client, and (while `running`) a manager."""

    def __init__(self, client: Client, server: ApiServer) -> None:
        self.client = client
        self.server = server
        self.decisions = Settings()
        self.engine = Engine()
        self.telemetry = Telemetry()
        self.controllers: Controllers | None = None

    @contextlib.asynccontextmanager
    async def running(self, **settings: Any) -> AsyncIterator[Controllers]:
        """Runs a fresh manager for a while."""
        self.engine, self.telemetry = Engine(self.decisions), Telemetry()
        manager, cache = Manager(stop_deadline=5.0), Cache(self.client)
        recorder = EventRecorder(self.client, "kueue")
        manager.add(Group.EVENTS, recorder)
        manager.add(Group.CACHES, cache)
        self.controllers = setup(
            manager,
            cache,
            self.client,
            recorder,
            self.engine,
            settings=ControllerSettings(**settings),
            telemetry=self.telemetry,
        )
        task = asyncio.create_task(manager.run())
        try:
            await self.until(lambda: manager.ready or task.done())
            yield self.controllers
        finally:
            manager.stop()
            await task

    async def until(self, fn: Callable[[], Any], what: str = "") -> Any:
        """Waits until a function (or coroutine function) is true or stops raising assertions."""
        deadline = asyncio.get_running_loop().time() + WAIT
        problem: object = ""
        while True:
            try:
                answer = fn()
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if answer:
                    return answer
            except (AssertionError, NotFound, KeyError, ValueError) as error:
                problem = repr(error)
            assert asyncio.get_running_loop().time() < deadline, f"timed out: {what} {problem}"
            await asyncio.sleep(0.02)

    async def create(
        self, resource: Resource, name: str, spec: Obj, namespace: str = "", **more: Any
    ) -> Obj:
        metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **more}
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        return await self.client.create(resource, {**obj, "spec": spec})

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Obj:
        return await self.client.get(resource, ObjectKey(namespace, name))

    async def patch(
        self, resource: Resource, name: str, body: Obj, namespace: str = "", subresource: str = ""
    ) -> Obj:
        key = ObjectKey(namespace, name)
        return await self.client.patch(
            resource, key, body, PatchType.MERGE, subresource=subresource
        )

    async def delete(self, resource: Resource, name: str, namespace: str = "") -> None:
        await self.client.delete(resource, ObjectKey(namespace, name))

    async def gone(self, resource: Resource, name: str, namespace: str = "") -> bool:
        try:
            await self.get(resource, name, namespace)
        except NotFound:
            return True
        return False

    # ---- builders

    async def flavor(self, name: str = "default") -> str:
        await self.create(kinds.RESOURCE_FLAVORS, name, {})
        return name

    async def cluster_queue(self, name: str = "cq", cpu: str = "2", **spec: Any) -> str:
        flavor = spec.pop("flavor", "default")
        group = {
            "coveredResources": ["cpu"],
            "flavors": [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cpu}]}],
        }
        spec = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
        await self.create(kinds.CLUSTER_QUEUES, name, spec)
        return name

    async def local_queue(self, name: str = "main", cluster_queue: str = "cq") -> str:
        await self.create(kinds.LOCAL_QUEUES, name, {"clusterQueue": cluster_queue}, "default")
        return name

    async def queues(self, cpu: str = "2", **spec: Any) -> None:
        await self.flavor()
        await self.cluster_queue(cpu=cpu, **spec)
        await self.local_queue()

    async def workload(self, name: str, cpu: str = "1", queue: str = "main", **spec: Any) -> Obj:
        more = {part: spec.pop(part, {}) for part in ("labels", "annotations")}
        container = {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": cpu}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        pod_sets = [{"name": "main", "count": 1, "template": template}]
        return await self.create(
            kinds.WORKLOADS,
            name,
            {"queueName": queue, "podSets": pod_sets, "active": True, **spec},
            "default",
            **more,
        )

    # ---- reading

    async def condition(self, name: str, type: str) -> Any:
        workload = await self.get(kinds.WORKLOADS, name, "default")
        return find_condition((workload.get("status") or {}).get("conditions"), type)

    async def is_(self, name: str, type: str, status: str = "True") -> Any:
        """Waits for a condition of a Workload and returns it."""

        async def reached() -> Any:
            condition = await self.condition(name, type)
            assert condition.get("status") == status, condition
            return condition

        return await self.until(reached, f"{type} of {name} is not {status}")

    async def active(self, resource: Resource, name: str, namespace: str = "") -> Any:
        obj = await self.get(resource, name, namespace)
        condition = find_condition((obj.get("status") or {}).get("conditions"), "Active")
        return condition.get("status"), condition.get("reason")

    async def events(self, name: str) -> list[tuple[str, str]]:
        selector = f"involvedObject.name={name}"
        events = await self.client.list(kinds.EVENTS, "default", field_selector=selector)
        return [(item["reason"], item["message"]) for item in events.items]

    async def finish(self, name: str) -> None:
        """Marks a Workload as finished, as a job reconciler does."""
        now = "2024-01-01T00:00:00Z"
        condition = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "ok"}
        wl = await self.get(kinds.WORKLOADS, name, "default")
        body = {
            "apiVersion": wl["apiVersion"],
            "kind": "Workload",
            "metadata": {"name": name, "namespace": "default"},
            "status": {"conditions": [{**condition, "lastTransitionTime": now}]},
        }
        await self.client.patch(
            kinds.WORKLOADS,
            ObjectKey("default", name),
            body,
            PatchType.APPLY,
            subresource="status",
            field_manager="job",
            force=True,
        )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with ApiServer() as server:
        file = tmp_path / "kubeconfig"
        file.write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(file) as client:
            for crd in all_crds():
                crd["spec"]["conversion"] = {"strategy": "None"}
                await client.create(kinds.CRDS, crd)
            made = World(client, server)

            async def served() -> bool:
                try:
                    await client.list(kinds.WORKLOADS)
                except ApiError:
                    return False
                return True

            await made.until(served, "CRDs are not served")
            yield made
