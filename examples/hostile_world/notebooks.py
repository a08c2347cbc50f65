"""Runs every Notebook in exactly one Pod, with the image that its spec names.

The reconcilers differ in a few lines. Both look right, and both work on a quiet cluster.
`test_notebooks.py` tries them in a hostile one.
"""

import asyncio
import sys

from kueuelib.errors import AlreadyExists, Conflict, NotFound
from kueuelib.runtime import (
    DONE,
    Cache,
    Client,
    Controller,
    Group,
    Informer,
    Manager,
    Obj,
    ObjectKey,
    Resource,
    Result,
    Signals,
    connect,
    key_of,
    kinds,
    wait_for_server,
)
from kueuelib.testing import Endpoint

NOTEBOOKS = Resource("example.com", "v1", "notebooks", "Notebook", namespaced=True)
OWNER = "pods by controller"


class Reconciler:
    """Deletes Pods with another image, and creates the Pod that is missing."""

    def __init__(self, client: Client, notebooks: Informer, pods: Informer) -> None:
        self.client = client
        self.notebooks = notebooks
        self.pods = pods
        pods.add_index(OWNER, _controller_uid)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Look at one Notebook and its Pods."""
        notebook = self.notebooks.store.get(key)
        if notebook is None or "deletionTimestamp" in notebook["metadata"]:
            return DONE
        pods = self.pods.store.by_index(OWNER, notebook["metadata"]["uid"])
        for pod in pods:
            if _image(pod) != notebook["spec"]["image"]:
                await self.delete(pod)
        if not pods:
            await self.create(notebook)
        return DONE

    async def delete(self, pod: Obj) -> None:
        """Delete one Pod, and no later one of the same name."""
        raise NotImplementedError

    async def create(self, notebook: Obj) -> None:
        """Create the Pod of a Notebook."""
        raise NotImplementedError


class Trusting(Reconciler):
    """Trusts the cache: what it does not contain does not exist."""

    async def delete(self, pod: Obj) -> None:
        """Delete one Pod."""
        try:
            await self.client.delete(kinds.PODS, key_of(pod), uid=pod["metadata"]["uid"])
        except NotFound:
            return

    async def create(self, notebook: Obj) -> None:
        """Create a Pod; the server completes its name."""
        await self.client.create(kinds.PODS, _pod(notebook, generateName=f"{_name(notebook)}-"))


class Careful(Reconciler):
    """Gives each Pod the one name that it can have, and remembers each answer.

    Before it creates a Pod it reads the Notebook from the server. If only the cache still has the
    Notebook, the garbage collector deletes each Pod at once, and both would never end.
    """

    async def delete(self, pod: Obj) -> None:
        """Delete one Pod, and remember that it is on its way out."""
        try:
            answer = await self.client.delete(kinds.PODS, key_of(pod), uid=pod["metadata"]["uid"])
        except (NotFound, Conflict):
            await self.pods.refresh(key_of(pod))
        else:
            self.pods.learn_deleted(pod, answer)

    async def create(self, notebook: Obj) -> None:
        """Create the Pod, or find out that somebody already did."""
        await self.notebooks.refresh(key_of(notebook))
        newest = self.notebooks.store.get(key_of(notebook))
        if newest != notebook:
            return  # the change leads here again
        pod = _pod(notebook, name=f"notebook-{_name(notebook)}")
        try:
            self.pods.learn(await self.client.create(kinds.PODS, pod))
        except AlreadyExists:
            await self.pods.refresh(key_of(pod))


def _pod(notebook: Obj, **name: str) -> Obj:
    meta = notebook["metadata"]
    owner = {
        "apiVersion": NOTEBOOKS.api_version,
        "kind": NOTEBOOKS.kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**name, "namespace": meta["namespace"], "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "notebook", "image": notebook["spec"]["image"]}]},
    }


def _name(obj: Obj) -> str:
    name: str = obj["metadata"]["name"]
    return name


def _image(pod: Obj) -> str:
    image: str = pod["spec"]["containers"][0]["image"]
    return image


def _controller_uid(pod: Obj) -> tuple[str, ...]:
    refs = pod["metadata"].get("ownerReferences") or ()
    owner = next((ref for ref in refs if ref.get("controller")), None)
    return () if owner is None else (owner["uid"],)


async def run(cluster: str | Endpoint | None, reconciler: type[Reconciler] = Careful) -> None:
    """Run until SIGTERM or SIGINT, or until cancelled."""
    async with await connect(cluster, field_manager="notebooks") as client:
        await wait_for_server(client)
        cache, manager = Cache(client), Manager()
        notebooks, pods = cache.informer(NOTEBOOKS), cache.informer(kinds.PODS)
        controller = Controller("notebooks", reconciler(client, notebooks, pods))
        controller.for_(notebooks).owns(pods, NOTEBOOKS)
        manager.add(Group.CACHES, cache)
        manager.add(Group.ELECTED, controller)
        with Signals(manager.stop):
            await manager.run()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1] if len(sys.argv) > 1 else None))
