"""An informer: a copy of objects that follows the server, with an index of your own."""

import asyncio
from collections.abc import Iterable

from kueuelib.embedded import ApiServer
from kueuelib.runtime import Cache, Delta, Group, Manager, Obj, configure_logs, kinds, labels_of
from kueuelib.testing import eventually


def team_of(obj: Obj) -> Iterable[str]:
    """The values under which an object is found; none without the label."""
    return filter(None, [labels_of(obj).get("team")])


def on_change(delta: Delta[Obj]) -> None:
    """Called after the store has changed."""
    print(delta.kind.value, delta.key)


async def main() -> None:
    """Follow the ConfigMaps that have a label."""
    async with ApiServer() as server, server.client() as client:
        cache, manager = Cache(client), Manager()
        informer = cache.informer(kinds.CONFIG_MAPS, label_selector="team")
        informer.add_index("team", team_of)
        informer.add_handler(on_change)
        manager.add(Group.CACHES, cache)
        running = asyncio.create_task(manager.run())
        await informer.wait_synced()

        for name, team in (("a", "blue"), ("b", "blue"), ("c", "red")):
            obj = kinds.CONFIG_MAPS.new(name, "default", labels={"team": team})
            await client.create(kinds.CONFIG_MAPS, obj)
        await eventually(lambda: len(informer.store) == 3)
        print("blue:", *informer.store.keys_by_index("team", "blue"))

        manager.stop()
        await running


if __name__ == "__main__":
    configure_logs(level="warning")
    asyncio.run(main())

# Prints:
# added default/a
# added default/b
# added default/c
# blue: default/a default/b
