"""KueueViz's back end: its websockets answer with data, and so does its API."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from kueuelib.testing import free_port

SECONDS = 60.0
SPACE = yaml.safe_load(Path(sys.argv[1]).read_text())["contexts"][0]["context"]["namespace"]
QUEUE = f"{SPACE}-q"
"""The ClusterQueue and its flavor; the LocalQueue is called q."""


def waits(workload: Any) -> bool:
    """Whether this Workload waits for quota."""
    conditions = {one["type"]: one["status"] for one in workload["status"]["conditions"]}
    return conditions["QuotaReserved"] == "False"


def named(objects: list[Any]) -> list[str]:
    return [one["name"] for one in objects]


CHECKS = {
    "namespaces": lambda body: SPACE in body["namespaces"],
    "workloads": lambda body: len(body["workloads"]["items"]) >= 2,
    "workloads/dashboard": lambda body: QUEUE in named(body["clusterQueues"]),
    "workload/SPACE/WAITING": waits,
    "workload/SPACE/WAITING/events": lambda body: (
        "WaitingForQuota" in {one["reason"] for one in body}
    ),
    "local-queues": lambda body: (SPACE, "q") in {(o["namespace"], o["name"]) for o in body},
    "local-queue/SPACE/q": lambda body: body["status"]["pendingWorkloads"] == 1,
    "local-queue/SPACE/q/workloads": lambda body: sum(map(waits, body)) == 1,
    "cluster-queues": lambda body: QUEUE in named(body),
    "cluster-queue/QUEUE": lambda body: body["status"]["admittedWorkloads"] == 1,
    "cohorts": lambda body: f"{SPACE}-all" in named(body),
    "cohort/SPACE-all": lambda body: named(body["clusterQueues"]) == [QUEUE],
    "resource-flavors": lambda body: QUEUE in named(body),
    "resource-flavor/QUEUE": lambda body: [q["queueName"] for q in body["queues"]] == [QUEUE],
}
KINDS = {
    "workload": "WAITING",
    "localqueue": "q",
    "clusterqueue": "QUEUE",
    "resourceflavor": "QUEUE",
    "cohort": "SPACE-all",
}


async def answers(session: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with session.get("/healthz") as answer:
                    assert answer.ok, answer
                    return
            await asyncio.sleep(0.1)


async def look(session: aiohttp.ClientSession, path: str) -> Any:
    """The first message of a websocket."""
    async with asyncio.timeout(SECONDS), session.ws_connect(f"/ws/{path}") as stream:
        return await stream.receive_json()


async def ask(session: aiohttp.ClientSession) -> None:
    await answers(session)
    body = await look(session, "local-queue/SPACE/q/workloads".replace("SPACE", SPACE))
    (waiting,) = [one["metadata"]["name"] for one in body if waits(one)]

    def filled(text: str) -> str:
        return text.replace("SPACE", SPACE).replace("QUEUE", QUEUE).replace("WAITING", waiting)

    for path, check in CHECKS.items():
        body = await look(session, filled(path))
        assert check(body), (path, body)
    for kind, name in KINDS.items():
        options = {"output": "yaml"}
        if kind in {"workload", "localqueue"}:
            options["namespace"] = SPACE
        async with session.get(f"/api/{kind}/{filled(name)}", params=options) as answer:
            assert answer.ok, (kind, await answer.text())
            content = yaml.safe_load((await answer.json())["content"])
        assert content["metadata"]["name"] == filled(name)


async def main() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = {
        "GIN_MODE": "release",
        "KUEUEVIZ_ALLOWED_ORIGINS": url,
        "KUEUEVIZ_PORT": str(port),
        "KUBECONFIG": sys.argv[1],
    }
    process = await asyncio.create_subprocess_exec("kueueviz", env={**os.environ, **env})
    try:
        async with aiohttp.ClientSession(url) as session:
            await ask(session)
    finally:
        process.terminate()
        await process.wait()


asyncio.run(main())
