"""Gives every Namespace with the label `team` a ConfigMap `team-defaults`, and keeps it so."""

import asyncio
import sys

from kueuelib.runtime import (
    DONE,
    Cache,
    Client,
    Controller,
    Group,
    Manager,
    ObjectKey,
    PatchType,
    Result,
    Signals,
    connect,
    kinds,
    labels_of,
    owner_reference,
    wait_for_server,
)

NAME = "team-defaults"


class TeamDefaults:
    """Makes the ConfigMap of one Namespace as it should be."""

    def __init__(self, client: Client, cache: Cache) -> None:
        self.client = client
        self.namespaces = cache.informer(kinds.NAMESPACES, label_selector="team")
        self.config_maps = cache.informer(kinds.CONFIG_MAPS, field_selector=f"metadata.name={NAME}")

    async def reconcile(self, key: ObjectKey) -> Result:
        """The key is that of a Namespace; what happened to it does not matter."""
        namespace = self.namespaces.store.get(key)
        if namespace is None or "deletionTimestamp" in namespace["metadata"]:
            return DONE
        target = ObjectKey(key.name, NAME)
        data = {"team": labels_of(namespace)["team"]}
        present = self.config_maps.store.get(target)
        if present is None or present.get("data") != data:
            meta = {"name": NAME, "ownerReferences": [owner_reference(namespace)]}
            wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
            change = self.client.patch(
                kinds.CONFIG_MAPS, target, wanted, PatchType.APPLY, force=True
            )
            self.config_maps.learn(await change)
        return DONE


async def main(kubeconfig: str | None) -> None:
    """Runs until SIGTERM or SIGINT."""
    async with await connect(kubeconfig, field_manager=NAME) as client:
        await wait_for_server(client)
        cache, manager = Cache(client), Manager()
        reconciler = TeamDefaults(client, cache)
        controller = Controller(NAME, reconciler, workers=2)
        controller.for_(reconciler.namespaces)
        controller.owns(reconciler.config_maps, kinds.NAMESPACES)
        manager.add(Group.CACHES, cache)
        manager.add(Group.ELECTED, controller)
        with Signals(manager.stop):
            await manager.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
