"""A client: raw objects in, raw objects out, errors as exceptions."""

import asyncio

from kueuelib.embedded import ApiServer
from kueuelib.runtime import ObjectKey, PatchType, errors, kinds


async def main() -> None:
    """Create, read, change, apply and delete a ConfigMap."""
    key = ObjectKey("default", "settings")
    async with ApiServer() as server, server.client(field_manager="example") as client:
        made = await client.create(kinds.CONFIG_MAPS, kinds.CONFIG_MAPS.new(*key[::-1]))
        print("created", made["metadata"]["name"])

        data = {"colour": "blue", "size": "3"}
        await client.patch(kinds.CONFIG_MAPS, key, {"data": data}, PatchType.MERGE)

        wanted = kinds.CONFIG_MAPS.new(*key[::-1], data={"colour": "red"})
        answer = await client.apply(kinds.CONFIG_MAPS, wanted)
        print("applied", answer["data"])

        try:
            await client.create(kinds.CONFIG_MAPS, wanted)
        except errors.AlreadyExists as error:
            print(error.code, error.message)

        async for each in client.list_all(kinds.CONFIG_MAPS, "default"):
            print("found", each["metadata"]["name"])
        await client.delete(kinds.CONFIG_MAPS, key)


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# created settings
# applied {'colour': 'red', 'size': '3'}
# 409 configmaps "settings" already exists
# found settings
