"""What it costs the manager if users ask every second for places and expected starts."""

from __future__ import annotations

import asyncio
import ssl
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import aiohttp
import orjson
import pytest
from figures import milliseconds, show

from kueuelib.api.kinds import CONFIG_MAPS
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.app.expected_starts import ExpectedStarts
from kueuelib.controllers.visibility.server import VisibilityServer
from kueuelib.embedded.credentials import Authority
from kueuelib.embedded.server import ApiServer
from kueuelib.runtime.certificates import host_names, load, renewed, server_context
from kueuelib.runtime.connection import connect
from kueuelib.runtime.queries import PatchType
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.settings import DEFAULTS
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)
from kueuelib.workload.life import LifeSettings

USERS, RUNNING, WAITING, SECONDS, WARM = 100, 100, 1000, 60, 15
PROXY = ObjectKey("kube-system", "extension-apiserver-authentication")
TRUST = {
    "requestheader-allowed-names": '["front-proxy"]',
    "requestheader-username-headers": '["X-Remote-User"]',
}
PATH = "/apis/visibility.kueuelib.dev/v1alpha1/namespaces/ns/localqueues/q/pendingworkloads"


def world(now: float) -> World:
    """A full ClusterQueue, and known run times."""

    def job(name: str, ago: float, **more: object) -> Workload:
        return make_workload(name, "q", {"cpu": 1}, created=now - ago, **more)

    def at(*types: str, ago: float) -> list[object]:
        return [make_condition(one, at=now - ago) for one in types]

    admission = {"clusterQueue": "cq", "podSetAssignments": [make_assignment({"cpu": 1}, "f")]}
    jobs = [
        job(
            f"r{n}",
            3600,
            conditions=at("QuotaReserved", "Admitted", ago=n * 10),
            status={"admission": admission},
        )
        for n in range(RUNNING)
    ]
    jobs += [
        job(
            f"f{n}",
            90_000,
            conditions=[*at("Admitted", ago=9000 + n * 60), *at("Finished", ago=8000)],
        )
        for n in range(50)
    ]
    jobs += [job(f"w{n}", 80_000 - n * 60) for n in range(WAITING)]
    return World(
        cluster_queues={"cq": make_cluster_queue("cq", {"f": {"cpu": RUNNING}})},
        local_queues={ObjectKey("ns", "q"): make_local_queue("q", "cq", "ns")},
        flavors={"f": make_flavor("f")},
        namespaces={"ns": {}},
        workloads={one.key: one for one in jobs},
    )


def serve(pipe: Connection, kubeconfig: Path) -> None:
    asyncio.run(_serve(pipe, kubeconfig))


async def _serve(pipe: Connection, kubeconfig: Path) -> None:
    """The part of the manager that users ask, with its processor time and its lateness."""
    now = time.time()
    facts = world(now)
    engine = facts.engine(now)
    starts = ExpectedStarts(engine, DEFAULTS, LifeSettings())
    for event in facts.events():
        starts.observe(event)
    context = server_context()
    load(context, renewed(None, host_names(["127.0.0.1"]), now))
    async with await connect(kubeconfig) as client:
        api = VisibilityServer("127.0.0.1", 0, context, client, engine, starts)
        ready = asyncio.Event()
        tasks = [asyncio.create_task(api.run(ready.set))]
        tasks.append(asyncio.create_task(starts.run(lambda: None)))
        await ready.wait()
        pipe.send(api.port)
        await asyncio.sleep(WARM)  # connections, and the first prediction
        late, began, since = [], time.process_time(), time.monotonic()
        while not pipe.poll():
            before = time.monotonic()
            await asyncio.sleep(0.1)
            late.append(time.monotonic() - before - 0.1)
        pipe.send(((time.process_time() - began) / (time.monotonic() - since), late))
        for task in tasks:
            task.cancel()


@pytest.mark.timeout(600)
async def test_what_a_hundred_users_cost(tmp_path: Path) -> None:
    authority = Authority(time.time(), "front-proxy-ca")
    cert, key = authority.issue("front-proxy")
    pem = tmp_path / "front-proxy.pem"
    await asyncio.to_thread(pem.write_bytes, key + cert)
    async with ApiServer() as server:
        kubeconfig = tmp_path / "kubeconfig"
        await asyncio.to_thread(kubeconfig.write_bytes, orjson.dumps(server.kubeconfig()))
        async with await connect(kubeconfig) as client:
            data = {**TRUST, "requestheader-client-ca-file": authority.pem.decode()}
            await client.patch(CONFIG_MAPS, PROXY, {"data": data}, PatchType.MERGE)
        ours, theirs = get_context("spawn").Pipe()
        process = get_context("spawn").Process(target=serve, args=(theirs, kubeconfig))
        process.start()
        assert await asyncio.to_thread(ours.poll, 60), "the child did not start"
        port = ours.recv()
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        tls.load_cert_chain(pem)
        waits: list[float] = []
        answers: list[dict] = []

        async def ask(user: int) -> None:
            await asyncio.sleep(user / USERS)
            headers = {"X-Remote-User": f"user-{user}"}
            for _ in range(SECONDS):
                began = time.monotonic()
                path = f"https://127.0.0.1:{port}{PATH}?workload=w{user}"
                async with session.get(path, ssl=tls, headers=headers) as answer:
                    answers.append(await answer.json())
                waits.append(time.monotonic() - began)
                await asyncio.sleep(max(0.0, began + 1 - time.monotonic()))

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            began = time.monotonic()
            await asyncio.gather(*map(ask, range(USERS)))
            seconds = time.monotonic() - began
        ours.send("end")
        assert await asyncio.to_thread(ours.poll, 60), "the child did not answer"
        spent, late = ours.recv()
        process.join()
    known = [one for one in answers if "p90" in one["items"][0]["expectedStart"]]
    show(
        f"visibility API: {USERS} users ask every second, {WAITING} waiting, {RUNNING} running",
        [
            ("processor", f"{spent:.1%} of a core, after the first {WARM} s"),
            ("answers", f"{len(answers) / seconds:.0f} a second, {milliseconds(waits)}"),
            ("with a p90", f"{len(known) / len(answers):.0%}"),
            ("lateness of the event loop", milliseconds(late)),
        ],
    )
    assert all(one["items"] for one in answers)
