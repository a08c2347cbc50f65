"""An admission check: an async function decides what else must be true before a job starts."""

import asyncio

from kueuelib import State, submit, wait
from kueuelib.checks import Pending, Ready, Verdict, Workload, check
from kueuelib.embedded import ApiServer
from kueuelib.runtime import Obj, configure_logs, kinds
from kueuelib.testing import (
    eventually,
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    queueing,
)

licenses = {"free": 0}
CHECKS = kinds.ADMISSION_CHECKS


@check("example.com/license")
async def license_check(workload: Workload, _: Obj | None) -> Verdict:
    """Ready while a license is free; asks again after a moment."""
    if licenses["free"] > 0:
        return Ready("a license is free")
    return Pending(f"no license for {workload.namespace}", again=0.2)


async def main() -> None:
    """A Job that has quota, and waits for a license."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = kinds.JOBS.new("draw", "default", spec={"template": {"spec": pod}})
    asks = CHECKS.new("license", spec={"controllerName": license_check.controller_name})
    queue = make_cluster_queue("all", {"any": {"cpu": 1}}, checks=["license"])
    async with ApiServer() as server, server.client() as client, queueing(client, license_check):
        await client.create(CHECKS, asks)
        for each in (make_flavor("any"), queue, make_local_queue("q", "all", "default")):
            await client.of(type(each)).create(each)
        handle = await submit(job, queue="q", client=client)

        async def answers() -> list[str]:
            workloads = await client.of(Workload).list("default")
            states = [each for one in workloads for each in one.status.admission_checks]
            return [each.message for each in states if each.message]

        print(*await eventually(answers))
        licenses["free"] = 1
        print((await wait(handle, State.ADMITTED, client=client, timeout=30)).state)


if __name__ == "__main__":
    configure_logs(level="error")
    asyncio.run(main())

# Prints:
# no license for default
# Admitted
