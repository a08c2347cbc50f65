"""KueueViz's back end: its websockets answer with data, and so does its API."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import Any

import aiohttp
import yaml

SECONDS = 60.0
SPACE = yaml.safe_load(Path(sys.argv[1]).read_text())["contexts"][0]["context"]["namespace"]
QUEUE = f"{SPACE}-q"
"""The ClusterQueue and its flavor; the LocalQueue is called q."""


def waits(found: Any) -> bool:
    """Whether this Workload waits for quota."""
    conditions = {one["type"]: one["status"] for one in found["status"]["conditions"]}
    return conditions["QuotaReserved"] == "False"


def named(found: list[Any]) -> list[str]:
    return [one["name"] for one in found]


CHECKS = {
    "namespaces": lambda found: SPACE in found["namespaces"],
    "workloads": lambda found: len(found["workloads"]["items"]) >= 2,
    "workloads/dashboard": lambda found: QUEUE in named(found["clusterQueues"]),
    "workload/SPACE/WAITING": waits,
    "workload/SPACE/WAITING/events": lambda found: (
        "WaitingForQuota" in {one["reason"] for one in found}
    ),
    "local-queues": lambda found: (SPACE, "q") in {(o["namespace"], o["name"]) for o in found},
    "local-queue/SPACE/q": lambda found: found["status"]["pendingWorkloads"] == 1,
    "local-queue/SPACE/q/workloads": lambda found: sum(map(waits, found)) == 1,
    "cluster-queues": lambda found: QUEUE in named(found),
    "cluster-queue/QUEUE": lambda found: found["status"]["admittedWorkloads"] == 1,
    "cohorts": lambda found: f"{SPACE}-all" in named(found),
    "cohort/SPACE-all": lambda found: named(found["clusterQueues"]) == [QUEUE],
    "resource-flavors": lambda found: QUEUE in named(found),
    "resource-flavor/QUEUE": lambda found: [q["queueName"] for q in found["queues"]] == [QUEUE],
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
    found = await look(session, "local-queue/SPACE/q/workloads".replace("SPACE", SPACE))
    (waiting,) = [one["metadata"]["name"] for one in found if waits(one)]

    def filled(text: str) -> str:
        return text.replace("SPACE", SPACE).replace("QUEUE", QUEUE).replace("WAITING", waiting)

    for path, check in CHECKS.items():
        found = await look(session, filled(path))
        assert check(found), (path, found)
    for kind, name in KINDS.items():
        options = {"output": "yaml"}
        if kind in {"workload", "localqueue"}:
            options["namespace"] = SPACE
        async with session.get(f"/api/{kind}/{filled(name)}", params=options) as answer:
            assert answer.ok, (kind, await answer.text())
            content = yaml.safe_load((await answer.json())["content"])
        assert content["metadata"]["name"] == filled(name)


async def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
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
