"""A kind of jobs in the queue, declared: paths say how it is suspended and how it ends."""

import asyncio
from collections.abc import Mapping
from typing import Any

from kueuelib import State, submit, wait, watch
from kueuelib import runtime as rt
from kueuelib.embedded import ApiServer
from kueuelib.jobs import Pods, declare, equals
from kueuelib.testing import make_cluster_queue, make_flavor, make_local_queue, queueing


@rt.crd("example.com", "v1", plural="trainings")
@rt.frozen(kw_only=True)
class Training(rt.KubeObject):
    """A job with a controller that does not know about queues."""

    spec: Mapping[str, Any]
    status: Mapping[str, Any] = rt.field(factory=dict[str, Any])


TRAININGS = declare(
    Training.resource,
    pods=[Pods("main", template="spec.template")],
    active="status.active",
    ready="status.ready",
    succeeded=equals("status.phase", "Done"),
    failed=equals("status.phase", "Failed"),
)


async def main() -> None:
    """A queue of three CPUs, and two trainings that need two each."""
    pod = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}
    spec = {"template": {"spec": pod}}
    async with ApiServer() as server, server.client() as client, queueing(client, TRAININGS):
        queue = make_cluster_queue("all", {"any": {"cpu": 3}})
        for each in (make_flavor("any"), queue, make_local_queue("q", "all", "default")):
            await client.of(type(each)).create(each)
        await client.create(rt.kinds.CRDS, rt.crd_of(Training))
        one = await submit(Training.resource.new("one", spec=spec), queue="q", client=client)
        print("one", (await wait(one, State.ADMITTED, client=client)).state)
        two = await submit(Training.resource.new("two", spec=spec), queue="q", client=client)
        async for moment in watch(two, client=client):
            if "needed" in moment.why.short:
                print("two", moment.state, moment.why.short)
                break


if __name__ == "__main__":
    rt.configure_logs(level="error")
    asyncio.run(main())

# Prints:
# one Admitted
# two Queued cpu on any: 1 more needed
