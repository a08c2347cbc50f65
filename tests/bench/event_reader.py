"""Reads a stream of Pods in one of three ways: `event_reader.py HOW URL COUNT`.

HOW is `kueuelib`, `kopf` or `watch` (of `kubernetes_asyncio`). It prints the seconds of its own
processor time, and of the clock, from the first request until its handler has seen the last state
of every Pod. The stream is that of `stream_server.py`. kopf may join events about one Pod that
arrive together; the others hand every event to the handler.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

PODS = 1000
"""In the stream of `stream_server.py`."""
LONGEST = 240.0
Seen = Callable[[Mapping[str, Any]], None]


async def _kueuelib(url: str, seen: Seen, done: asyncio.Event) -> None:
    from kueuelib.runtime import Client, Informer, kinds
    from kueuelib.runtime.endpoint import Endpoint, FixedSource
    from kueuelib.runtime.transport import Transport

    async with Client(Transport(FixedSource(Endpoint(url)))) as client:
        informer = Informer(client, kinds.PODS)
        informer.add_handler(lambda delta: seen(delta.new or {}))
        task = asyncio.create_task(informer.run())
        await done.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _watch(url: str, seen: Seen, done: asyncio.Event) -> None:
    from kubernetes_asyncio import client, watch

    async with client.ApiClient(client.Configuration(host=url)) as api, watch.Watch() as stream:
        async for event in stream.stream(client.CoreV1Api(api).list_pod_for_all_namespaces):
            seen(event["raw_object"])
            if done.is_set():
                return


async def _kopf(url: str, seen: Seen, done: asyncio.Event) -> None:
    import kopf

    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=url)

    @kopf.on.event("v1", "pods", registry=registry)
    async def event(body: kopf.Body, **_: Any) -> None:
        seen(body)

    logging.getLogger("kopf").setLevel(logging.ERROR)
    stop = asyncio.Event()
    running = kopf.operator(registry=registry, standalone=True, clusterwide=True, stop_flag=stop)
    task = asyncio.create_task(running)
    await done.wait()
    stop.set()
    await asyncio.wait([task], timeout=5)


WAYS = {"kueuelib": _kueuelib, "kopf": _kopf, "watch": _watch}


async def _main(how: str, url: str, count: int) -> None:
    done = asyncio.Event()
    waiting = {str(count + 1 - back) for back in range(PODS)}
    figures: list[float] = []

    def seen(pod: Mapping[str, Any]) -> None:
        waiting.discard(pod["metadata"]["resourceVersion"])
        if not waiting and not figures:
            figures.extend((time.process_time(), time.monotonic()))
            done.set()

    cpu, clock = time.process_time(), time.monotonic()
    await asyncio.wait_for(WAYS[how](url, seen, done), LONGEST)
    sys.stdout.write(f"{figures[0] - cpu:.3f} {figures[1] - clock:.3f}\n")


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
