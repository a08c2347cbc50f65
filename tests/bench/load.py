"""A cluster under load: queues with quota, Jobs from a client, and a watch that takes the times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from kueuelib.api.kinds import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, PODS, RESOURCE_FLAVORS, WORKLOADS
from kueuelib.api.meta import Resource, is_true
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect

Obj = dict[str, Any]
QUEUE = "team"
CREATORS = 16
"""Objects that are being created at the same time."""
GROUP_SIZE = 10
"""Pods of a group."""


@asynccontextmanager
async def client_of(kubeconfig: Path) -> AsyncIterator[Client]:
    """A client with its connections closed at the end."""
    async with await connect(kubeconfig, user_agent="bench") as client:
        yield client


async def create_queues(client: Client, cpu: int) -> None:
    """What `queue_objects` returns."""
    for resource, obj in queue_objects(cpu):
        await client.create(resource, obj)


def queue_objects(cpu: int) -> Iterator[tuple[Resource, Obj]]:
    """One flavor, one ClusterQueue, one LocalQueue in the namespace `default`."""
    quota = {"name": "cpu", "nominalQuota": str(cpu)}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "main", "resources": [quota]}]}
    meta = {"name": QUEUE}
    local = {**meta, "namespace": "default"}
    queue = {"namespaceSelector": {}, "resourceGroups": [group]}
    yield RESOURCE_FLAVORS, typed(RESOURCE_FLAVORS, {"metadata": {"name": "main"}, "spec": {}})
    yield CLUSTER_QUEUES, typed(CLUSTER_QUEUES, {"metadata": meta, "spec": queue})
    yield LOCAL_QUEUES, typed(LOCAL_QUEUES, {"metadata": local, "spec": {"clusterQueue": QUEUE}})


def typed(resource: Resource, obj: Obj) -> Obj:
    """The object with its kind."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}


def job(name: str, seconds: float = 1.0) -> Obj:
    """A queued Job of one pod and one CPU."""
    meta = {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": QUEUE}}
    template = {
        "metadata": {"annotations": {"kueuelib.dev/run-seconds": str(seconds)}},
        "spec": {"restartPolicy": "Never", "containers": [_container()]},
    }
    return typed(JOBS, {"metadata": meta, "spec": {"template": template}})


def group_pods(group: str, seconds: float = 60.0) -> Iterator[Obj]:
    """The plain pods of a group, of one CPU each; they differ like the ranks of a program."""
    for number in range(GROUP_SIZE):
        rank = {
            "args": ["--rank", str(number)],
            "env": [{"name": "RANK", "value": str(number)}],
        }
        meta = {
            "name": f"{group}-{number}",
            "namespace": "default",
            "labels": {
                "kueue.x-k8s.io/queue-name": QUEUE,
                "kueue.x-k8s.io/pod-group-name": group,
            },
            "annotations": {
                "kueue.x-k8s.io/pod-group-total-count": str(GROUP_SIZE),
                "kueuelib.dev/run-seconds": str(seconds),
            },
        }
        spec = {"restartPolicy": "Never", "containers": [{**_container(), **rank}]}
        yield typed(PODS, {"metadata": meta, "spec": spec})


def workload(name: str) -> Obj:
    """A Workload without a Job."""
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [_container()]}}}
    meta = {"name": name, "namespace": "default"}
    return typed(WORKLOADS, {"metadata": meta, "spec": {"queueName": QUEUE, "podSets": [pod_set]}})


def _container() -> Obj:
    requests = {"cpu": "1"}
    return {
        "name": "work",
        "image": "registry.example/work:1",
        "resources": {"requests": requests},
    }


async def create_all(client: Client, resource: Resource, objects: Iterable[Obj]) -> None:
    """Creates objects as fast as a few creators can."""
    waiting = iter(objects)

    async def creator() -> None:
        for obj in waiting:
            await client.create(resource, obj)

    async with asyncio.TaskGroup() as group:
        for _ in range(CREATORS):
            group.create_task(creator())


@attrs.define
class Times:
    """When a watch of Workloads told of what, in seconds of the monotonic clock."""

    created: dict[str, float] = attrs.field(factory=dict)
    admitted: dict[str, float] = attrs.field(factory=dict)
    finished: dict[str, float] = attrs.field(factory=dict)

    def latencies(self) -> list[float]:
        """Seconds from creation to admission."""
        return [at - self.created[name] for name, at in self.admitted.items()]

    def rate(self) -> float:
        """Admissions per second, from the first creation to the last admission."""
        return len(self.admitted) / (max(self.admitted.values()) - min(self.created.values()))

    def see(self, kind: str, obj: Obj) -> None:
        """One event of the watch."""
        if kind not in ("ADDED", "MODIFIED"):
            return
        name, now = obj["metadata"]["name"], time.monotonic()
        self.created.setdefault(name, now)
        for type_, seen in (("Admitted", self.admitted), ("Finished", self.finished)):
            if is_true(obj, type_):
                seen.setdefault(name, now)


async def observed(
    client: Client,
    act: Callable[[], Awaitable[None]],
    until: Callable[[Times], bool],
    seconds: float,
) -> Times:
    """What a watch of Workloads tells from before `act` until `until` holds.

    Raises:
        TimeoutError: it did not hold within `seconds`.
    """
    times = Times()
    page = await client.list(WORKLOADS)
    version = page.resource_version
    async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
        async with await client.watch(WORKLOADS, resource_version=version, timeout=600) as stream:
            task = group.create_task(_awaited(act()))
            while not until(times):
                for event in await stream.batch():
                    times.see(event["type"], event["object"])
        await task
    return times


async def _awaited(future: Awaitable[None]) -> None:
    await future
