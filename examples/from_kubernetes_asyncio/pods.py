"""Pods, with the API that you know and with ours: list, watch, patch, report."""

import asyncio

from kubernetes_asyncio.client import CoreV1Api, V1ObjectMeta, V1Pod
from kubernetes_asyncio.watch import Watch

from kueuelib.runtime import Cache, Client, Delta, Obj, ObjectKey, connect


async def list_as_before(client: Client) -> list[str]:
    """Only the ApiClient comes from elsewhere."""
    core = CoreV1Api(client.api_client())
    pods = await core.list_namespaced_pod("default")
    return [f"{pod.metadata.name} {pod.status.phase}" for pod in pods.items]


async def watch_as_before(client: Client) -> list[str]:
    """It ends after a second; without `timeout_seconds` it resumes until you stop it."""
    core = CoreV1Api(client.api_client())
    async with Watch() as watch:
        events = watch.stream(  # pyright: ignore[reportUnknownMemberType] - it has no types
            core.list_namespaced_pod, "default", timeout_seconds=1
        )
        return [f"{event['type']} {event['object'].metadata.name}" async for event in events]


async def mark(client: Client) -> list[str]:
    """Read, change and write: fields that V1Pod does not know stay."""
    pods = client.of(V1Pod)
    marked: list[str] = []
    for pod in await pods.list("default"):
        pod.metadata.annotations = {**(pod.metadata.annotations or {}), "example.com/seen": "yes"}
        marked.append((await pods.replace(pod)).metadata.annotations["example.com/seen"])
    return marked


async def own(client: Client) -> V1Pod:
    """Own some fields, and leave those of others."""
    labels = {"example.com/team": "shop"}
    meta = V1ObjectMeta(name="web", namespace="default", labels=labels)
    return await client.of(V1Pod).apply(V1Pod(metadata=meta))


async def follow(client: Client, changes: list[str]) -> V1Pod | None:
    """A local copy that follows the server, and resumes whatever happens."""
    cache = Cache(client)
    pods = cache.informer(V1Pod, namespace="default")

    def note(delta: Delta[Obj]) -> None:
        changes.append(f"{delta.kind.value} {delta.key.name}")

    pods.add_handler(note)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(cache.run())
        await pods.wait_synced()
        web = pods.get(ObjectKey("default", "web"))
        running.cancel()
    return web


async def report() -> None:
    """A whole program."""
    async with await connect() as client:
        print(*await list_as_before(client), sep="\n")


if __name__ == "__main__":
    asyncio.run(report())
