from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from kueuelib.api.kinds import JOBS, NAMESPACES, PODS
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.embedded.cluster.clock import ManualClock
from kueuelib.embedded.cluster.job_decision import PodBackoff
from kueuelib.embedded.cluster.simulation import SimulatedCluster
from kueuelib.embedded.server import builtin_plugins, builtin_rules, system_objects
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.verbs import DeleteOptions, Propagation
from kueuelib.errors import NotFound
from kueuelib.runtime.queries import PatchType


class NoHooks:
    """Webhooks of a server that has none."""

    async def call(self, *_: object) -> Mapping[str, Any]:
        raise AssertionError("there are no webhooks")


class Sandbox:
    """A simulated cluster whose time stands still, and short words for what tests do with it."""

    def __init__(self, service: ApiService, cluster: SimulatedCluster, clock: ManualClock) -> None:
        self.service = service
        self.cluster = cluster
        self.clock = clock

    @staticmethod
    def new_job(name: str, **spec: Any) -> Obj:
        return job(name, **spec)

    def restarted(self, **options: Any) -> Sandbox:
        """The same server with another cluster, which has not been started."""
        cluster = SimulatedCluster(self.service, clock=self.clock, **options)
        return Sandbox(self.service, cluster, self.clock)

    async def settle(self) -> None:
        await self.cluster.settle()

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.cluster.settle()

    async def create(self, resource: Resource, obj: Obj) -> Obj:
        stored = await self.service.create(resource, obj)
        await self.settle()
        return stored

    async def job(self, name: str = "job", **spec: Any) -> Obj:
        return await self.create(JOBS, job(name, **spec))

    async def pod(self, name: str = "pod", **fields: Any) -> Obj:
        return await self.create(PODS, pod(name, **fields))

    async def running_job(self, name: str = "job", **spec: Any) -> list[Obj]:
        """Creates a Job and gives its pods."""
        created = await self.job(name, **spec)
        return [
            each
            for each in await self.pods()
            if each["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"]
        ]

    async def get(self, resource: Resource, name: str, namespace: str = "default") -> Obj:
        key = ObjectKey(namespace if resource.namespaced else "", name)
        return await self.service.get(resource, key)

    async def exists(self, resource: Resource, name: str, namespace: str = "default") -> bool:
        try:
            await self.get(resource, name, namespace)
        except NotFound:
            return False
        return True

    async def status(self, name: str = "job") -> Obj:
        return (await self.get(JOBS, name))["status"]

    async def pods(self, namespace: str = "default") -> list[Obj]:
        return [*(await self.service.list(PODS, namespace)).items]

    async def patch(self, resource: Resource, name: str, body: Obj, subresource: str = "") -> Obj:
        key = ObjectKey("default" if resource.namespaced else "", name)
        stored = await self.service.patch(
            resource, key, body, PatchType.MERGE, subresource=subresource
        )
        await self.settle()
        return stored

    async def delete(
        self,
        resource: Resource,
        name: str,
        propagation: Propagation = Propagation.BACKGROUND,
        grace: int | None = None,
    ) -> None:
        key = ObjectKey("default" if resource.namespaced else "", name)
        options = DeleteOptions(propagation=propagation, grace_period=grace)
        await self.service.delete(resource, key, options)
        await self.settle()

    async def finish(self, pod: Obj, exit_code: int = 0) -> None:
        notes = {"kueuelib.dev/run-seconds": "0", "kueuelib.dev/exit-code": str(exit_code)}
        await self.patch(PODS, pod["metadata"]["name"], {"metadata": {"annotations": notes}})


def pod_spec(**fields: Any) -> Obj:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {"restartPolicy": "Never", "containers": [container], **fields}


def job(name: str, *, run: float | None = None, pod: Obj | None = None, **spec: Any) -> Obj:
    notes = {} if run is None else {"kueuelib.dev/run-seconds": str(run)}
    template = {"metadata": {"annotations": notes}, "spec": pod_spec(**(pod or {}))}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": template, **spec},
    }


def pod(name: str, annotations: dict[str, str] | None = None, **fields: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": annotations or {},
            "finalizers": fields.pop("finalizers", []),
        },
        "spec": pod_spec(**fields),
    }


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    service = ApiService(builtin_rules(), builtin_plugins(), NoHooks())
    for obj in system_objects():
        resource = NAMESPACES
        if obj["kind"] != "Namespace":
            continue
        await service.create(resource, obj)
    clock = ManualClock(time.time())
    async with SimulatedCluster(service, clock=clock, backoff=PodBackoff(10.0, 60.0)) as cluster:
        yield Sandbox(service, cluster, clock)
