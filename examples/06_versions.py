"""Two versions of one kind: objects are converted both ways, and stored in one of them."""

import asyncio

from kueuelib import runtime as rt
from kueuelib.embedded import ApiServer
from kueuelib.testing import running


@rt.frozen
class OldTask(rt.KubeObject):
    """The kind as it was: the number of copies was called `count`."""

    count: int = 1


OLD = rt.Version(
    "v1alpha1",
    OldTask,
    to_stored=lambda old: Task(replicas=old.count),
    from_stored=lambda new: OldTask(count=new.replicas),
)


@rt.crd("example.com", "v1", plural="tasks", versions=[OLD])
@rt.frozen
class Task(rt.KubeObject):
    """The kind as it is."""

    replicas: int = 1


async def main() -> None:
    """Write the old version, read the new one."""
    old, app = OldTask.new("one", "default", count=7), rt.Operator("tasks", kinds=[Task])
    async with ApiServer() as server, server.client() as client, running(app, client):
        made = await client.of(OldTask).create(old)
        print(made.count, (await client.of(Task).get(made.key)).replicas)


if __name__ == "__main__":
    rt.configure_logs(level="warning")
    asyncio.run(main())

# Prints:
# 7 7
