"""Two replicas of a manager of one's own, with the queue, a check and job kinds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from kueuelib import checks, controllers, jobs
from kueuelib import runtime as rt
from kueuelib.api.crd import all_crds
from kueuelib.api.meta import Obj
from kueuelib.scheduler import Engine
from kueuelib.testing import eventually, make_cluster_queue, make_flavor, make_local_queue

QUEUES = (
    make_flavor("spot"),
    make_cluster_queue("all", {"spot": {"cpu": 9}}, checks=["asked"]),
    make_local_queue("team", "all", "default"),
)


def job(name: str) -> Obj:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    spec = {"suspend": True, "template": {"spec": pod}}
    return rt.kinds.JOBS.new(name, "default", labels=labels, spec=spec)


@asynccontextmanager
async def replica(client: rt.Client, name: str, asked: list[str]) -> AsyncIterator[rt.Manager]:
    @checks.check("example.com/asked")
    async def check(workload: checks.Workload, _: Obj | None) -> checks.Verdict:
        asked.append(name)
        return checks.Ready()

    options = rt.ElectionOptions(
        rt.ObjectKey("default", "own"), name, retry_period=0.5, release_on_cancel=True
    )
    manager = rt.Manager(elector=rt.Elector(client, options))
    cache, recorder = rt.Cache(client), rt.EventRecorder(client, name)
    controllers.setup(manager, cache, client, recorder, Engine())
    jobs.setup(manager, cache, client, recorder, [jobs.BatchJob])
    checks.setup(manager, cache, client, recorder, [check])
    manager.add(rt.Group.EVENTS, recorder)
    manager.add(rt.Group.CACHES, cache)
    task = asyncio.create_task(manager.run())
    try:
        await eventually(lambda: manager.ready or task.done())
        yield manager
    finally:
        manager.stop()
        await task


async def starts(client: rt.Client, name: str) -> None:
    await client.create(rt.kinds.JOBS, job(name))

    async def started() -> Any:
        found = await client.get(rt.kinds.JOBS, rt.ObjectKey("default", name))
        return not found["spec"]["suspend"]

    await eventually(started)


async def test_only_the_leader_acts_and_another_replica_goes_on(kube_client: rt.Client) -> None:
    for crd in all_crds():
        crd["spec"]["conversion"] = {"strategy": "None"}
        await kube_client.create(rt.kinds.CRDS, crd)
    check = rt.kinds.ADMISSION_CHECKS.new("asked", spec={"controllerName": "example.com/asked"})
    await eventually(lambda: kube_client.create(rt.kinds.ADMISSION_CHECKS, check))
    for each in QUEUES:
        await kube_client.of(type(each)).create(each)
    asked: list[str] = []
    async with AsyncExitStack() as stack:
        async with replica(kube_client, "a", asked) as first:
            await eventually(lambda: first.leading)
            second = await stack.enter_async_context(replica(kube_client, "b", asked))
            await starts(kube_client, "one")
            assert (first.leading, second.leading, {*asked}) == (True, False, {"a"})
        asked.clear()
        await starts(kube_client, "two")
        assert (second.leading, {*asked}) == (True, {"b"})
