"""Gives every Namespace with the label `team` a ConfigMap `team-defaults`, and keeps it so."""

import asyncio
import sys

from kueuelib import runtime as rt

NAME = "team-defaults"


class TeamDefaults:
    """Makes the ConfigMap of one Namespace as it should be."""

    def __init__(self, client: rt.Client, cache: rt.Cache) -> None:
        self.client = client
        self.namespaces = cache.informer(rt.kinds.NAMESPACES, label_selector="team")
        self.config_maps = cache.informer(
            rt.kinds.CONFIG_MAPS, field_selector=f"metadata.name={NAME}"
        )

    async def reconcile(self, key: rt.ObjectKey) -> rt.Result:
        """The key is that of a Namespace; what happened to it does not matter."""
        namespace = self.namespaces.store.get(key)
        if namespace is None or "deletionTimestamp" in namespace["metadata"]:
            return rt.DONE
        data = {"team": rt.labels_of(namespace)["team"]}
        present = self.config_maps.store.get(rt.ObjectKey(key.name, NAME))
        if present is None or present.get("data") != data:
            wanted = rt.kinds.CONFIG_MAPS.new(NAME, key.name, data=data)
            wanted["metadata"]["ownerReferences"] = [rt.owner_reference(namespace)]
            self.config_maps.learn(await self.client.apply(rt.kinds.CONFIG_MAPS, wanted))
        return rt.DONE


async def main(kubeconfig: str | None) -> None:
    """Runs until SIGTERM or SIGINT."""
    async with await rt.connect(kubeconfig, field_manager=NAME) as client:
        await rt.wait_for_server(client)
        cache, manager = rt.Cache(client), rt.Manager()
        reconciler = TeamDefaults(client, cache)
        controller = rt.Controller(NAME, reconciler, workers=2)
        controller.for_(reconciler.namespaces)
        controller.owns(reconciler.config_maps, rt.kinds.NAMESPACES)
        manager.add(rt.Group.CACHES, cache)
        manager.add(rt.Group.ELECTED, controller)
        with rt.Signals(manager.stop):
            await manager.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
