"""What the embedded server does in a second, and what an object costs it in memory.

Goals on two cores: 1,500 small creates, 1,500 applies of the status of a Workload with full
validation, and 30,000 events delivered per second to 1,000 watchers. Clients take a core of their
own, so the processor time of the server is told as well.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import pytest
import yaml
from figures import cpu_seconds, resident, show

from kueuelib.api.crd import all_crds

COUNT = 3000
CLIENTS = 16
WATCHERS = 1000
CHANGES = 100
MAPS = "/api/v1/namespaces/default/configmaps"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TEMPLATE = {
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
        ],
    }
}


@attrs.frozen
class Served:
    """A server in a process of its own."""

    url: str
    token: str
    ca: str
    pid: int

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.ca)


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    path = folder / "kubeconfig"
    command = [sys.executable, "-m", "kueuelib", "apiserver", "--kubeconfig", str(path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 30
            while not path.exists():
                assert time.monotonic() < deadline, "the server does not start"
                time.sleep(0.05)
            config = yaml.safe_load(path.read_text())
            cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
            import base64

            ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
            yield Served(cluster["server"], user["token"], ca, process.pid)
        finally:
            process.terminate()


@asynccontextmanager
async def session_of(served: Served) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=served.tls(), limit=CLIENTS)
    headers = {"Authorization": f"Bearer {served.token}"}
    async with aiohttp.ClientSession(served.url, connector=connector, headers=headers) as found:
        yield found


async def send(
    session: aiohttp.ClientSession, method: str, path: str, body: Any, type_: str
) -> None:
    async with session.request(
        method, path, data=json.dumps(body), headers={"Content-Type": type_}
    ) as answer:
        await answer.read()
        assert answer.status < 300, await answer.text()


async def measured(
    served: Served, count: int, call: Callable[[int], Awaitable[None]]
) -> tuple[float, float]:
    """Calls per second, and per second of the server's processor."""
    todo = iter(range(count))

    async def work() -> None:
        for index in todo:
            await call(index)

    cpu, started = cpu_seconds(served.pid), time.perf_counter()
    await asyncio.gather(*(work() for _ in range(CLIENTS)))
    seconds = time.perf_counter() - started
    return count / seconds, count / max(cpu_seconds(served.pid) - cpu, 0.01)


def workload(index: int) -> dict[str, Any]:
    pod_set = {"name": "main", "count": 3, "template": TEMPLATE}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": f"w{index:05d}"},
        "spec": {"queueName": "q", "podSets": [pod_set]},
    }


def condition(type_: str, text: str) -> dict[str, Any]:
    return {
        "type": type_,
        "status": "True",
        "reason": type_,
        "message": f"Quota reserved in ClusterQueue {text}",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
        "observedGeneration": 1,
    }


def status(index: int, text: str) -> dict[str, Any]:
    assignment = {
        "name": "main",
        "flavors": {"cpu": "default", "memory": "default"},
        "resourceUsage": {"cpu": "3", "memory": "3Gi"},
        "count": 3,
    }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": f"w{index:05d}"},
        "status": {
            "conditions": [condition("QuotaReserved", text), condition("Admitted", text)],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
        },
    }


def rates(name: str, found: tuple[float, float]) -> tuple[str, str]:
    wall, cpu = found
    return name, f"{wall:7,.0f}/s   {cpu:7,.0f} per second of the server's processor"


async def test_writes_per_second(tmp_path: Path) -> None:
    apply, merge = "application/apply-patch+yaml", "application/merge-patch+json"
    plain = "application/json"
    with serving(tmp_path) as served:
        async with session_of(served) as session:
            for crd in all_crds():
                crd["spec"].pop("conversion", None)
                await send(session, "POST", CRDS, crd, plain)
            query = "fieldManager=bench&force=true"
            rows = [
                rates(
                    "small creates",
                    await measured(
                        served,
                        COUNT,
                        lambda i: send(
                            session,
                            "POST",
                            MAPS,
                            {"metadata": {"name": f"m{i:05d}"}, "data": {"a": "b"}},
                            plain,
                        ),
                    ),
                ),
                rates(
                    "creates of a Workload",
                    await measured(
                        served,
                        COUNT,
                        lambda i: send(session, "POST", WORKLOADS, workload(i), plain),
                    ),
                ),
                rates(
                    "applies of its status",
                    await measured(
                        served,
                        COUNT,
                        lambda i: send(
                            session,
                            "PATCH",
                            f"{WORKLOADS}/w{i:05d}/status?{query}",
                            status(i, "a"),
                            apply,
                        ),
                    ),
                ),
                rates(
                    "merge patches of it",
                    await measured(
                        served,
                        COUNT,
                        lambda i: send(
                            session,
                            "PATCH",
                            f"{WORKLOADS}/w{i:05d}/status",
                            {"status": status(i, "b")["status"]},
                            merge,
                        ),
                    ),
                ),
            ]
    show(f"writes, {CLIENTS} clients, {COUNT} of each", rows)


class Counting(asyncio.Protocol):
    """A watcher that only counts its events."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.events = 0
        self.answered = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.events += data.count(b'{"type":"')
        if not self.answered.done():
            self.answered.set_result(None)


@pytest.mark.parametrize("watchers", [1, 100, WATCHERS])
async def test_events_per_second(tmp_path: Path, watchers: int) -> None:
    loop = asyncio.get_running_loop()
    with serving(tmp_path) as served:
        host, _, port = served.url.removeprefix("https://").partition(":")
        head = (
            f"GET {MAPS}?watch=true&resourceVersion=1&timeoutSeconds=300 HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {served.token}\r\n\r\n"
        ).encode()
        tls = served.tls()
        found: list[Counting] = []
        transports: list[asyncio.BaseTransport] = []
        gate = asyncio.Semaphore(50)

        async def connect() -> None:
            async with gate:
                transport, protocol = await loop.create_connection(
                    lambda: Counting(head), host, int(port), ssl=tls
                )
                transports.append(transport)
                found.append(protocol)
                await protocol.answered

        await asyncio.gather(*(connect() for _ in range(watchers)))
        changes = max(CHANGES, 20_000 // watchers)
        before, idle = cpu_seconds(served.pid), resident(served.pid)
        started = time.perf_counter()
        async with session_of(served) as session:

            async def change(index: int) -> None:
                body = {"metadata": {"name": f"m{index}"}, "data": {"a": "b"}}
                await send(session, "POST", MAPS, body, "application/json")

            await measured(served, changes, change)
        wanted = changes * watchers
        async with asyncio.timeout(100):
            while sum(each.events for each in found) < wanted:
                await asyncio.sleep(0.005)
        seconds = time.perf_counter() - started
        cpu = cpu_seconds(served.pid) - before
        grown = (resident(served.pid) - idle) * 1024 / watchers
        for transport in transports:
            assert isinstance(transport, asyncio.Transport)
            transport.abort()
        await asyncio.sleep(0.1)
    show(
        f"events: {changes} changes, {watchers} watchers",
        [
            ("delivered", f"{wanted / seconds:,.0f}/s"),
            ("per second of the server's processor", f"{wanted / max(cpu, 0.01):,.0f}"),
            ("memory while delivering, per watcher", f"{grown:.1f} KB"),
        ],
    )


async def test_memory_per_object(tmp_path: Path) -> None:
    count = 10_000
    with serving(tmp_path) as served:
        async with session_of(served) as session:
            for crd in all_crds():
                crd["spec"].pop("conversion", None)
                await send(session, "POST", CRDS, crd, "application/json")
            rows = [("idle", f"{resident(served.pid):.0f} MB")]
            for name, path, make in (
                ("ConfigMap", MAPS, lambda i: {"metadata": {"name": f"m{i}"}, "data": {"a": "b"}}),
                ("Workload", WORKLOADS, workload),
            ):
                before = resident(served.pid)
                await measured(
                    served,
                    count,
                    lambda i, path=path, make=make: send(
                        session, "POST", path, make(i), "application/json"
                    ),
                )
                async with session.get(f"{path}?limit=1") as answer:
                    size = len(json.dumps((await answer.json())["items"][0]))
                each = (resident(served.pid) - before) * 1024 / count
                rows.append((f"one {name} of {size} bytes", f"{each:.2f} KB"))
    show(f"memory, {count} objects of a kind", rows)
