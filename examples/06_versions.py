"""Two versions of one kind: objects are converted both ways, and stored in one of them."""

import asyncio

from kueuelib import runtime as rt
from kueuelib.embedded import ApiServer
from kueuelib.testing import running


@rt.frozen
class OldSpec(rt.Struct):
    """What v1alpha1 called the number of copies."""

    count: int = 1


@rt.frozen
class OldTask(rt.KubeObject):
    """The kind as it was."""

    spec: OldSpec = OldSpec()


@rt.frozen
class Spec(rt.Struct):
    """What v1 calls it."""

    replicas: int = 1


OLD = rt.Version(
    "v1alpha1",
    OldTask,
    to_stored=lambda old: Task(spec=Spec(old.spec.count)),
    from_stored=lambda new: OldTask(spec=OldSpec(new.spec.replicas)),
)


@rt.crd("example.com", "v1", plural="tasks", versions=[OLD])
@rt.frozen
class Task(rt.KubeObject):
    """The kind as it is."""

    spec: Spec = Spec()


async def main() -> None:
    """Write the old version, read the new one."""
    old = OldTask(metadata=rt.ObjectMeta(name="one", namespace="default"), spec=OldSpec(count=7))
    async with ApiServer() as server, server.client() as client:
        app = rt.Operator("tasks", kinds=[Task])
        async with running(app, client):
            made = await client.of(OldTask).create(old)
            print(made.spec.count, (await client.of(Task).get(made.key)).spec.replicas)


if __name__ == "__main__":
    rt.configure_logs(level="warning")
    asyncio.run(main())

# Prints:
# 7 7
