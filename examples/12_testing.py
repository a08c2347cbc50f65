"""A test of an operator with a webhook, against an API server of its own: it needs no cluster."""

import asyncio

from kueuelib import runtime as rt
from kueuelib.embedded import ApiServer
from kueuelib.testing import eventually, running

app, MERGE = rt.Operator("rooms"), rt.PatchType.MERGE


@rt.crd("example.com", "v1", plural="rooms")
@rt.frozen
class Room(rt.KubeObject):
    """A room with seats."""

    seats: int = 1


@app.reconciles(Room, owns=[rt.kinds.CONFIG_MAPS])
async def room(found: Room, context: rt.Context) -> None:
    """Write the sign at the door."""
    sign = {"seats": str(found.seats)}
    await context.apply(rt.kinds.CONFIG_MAPS.new(found.name, data=sign))


@app.validates(Room)
def keeps_seats(new: Room | None, old: Room | None, _: rt.AdmissionRequest) -> list[rt.FieldError]:
    """A room may grow, and not shrink."""
    if new is None or old is None or new.seats >= old.seats:
        return []
    return [rt.FieldError("seats", "FieldValueInvalid", f"{old.seats} are taken")]


async def test_a_room_does_not_shrink(client: rt.Client) -> None:
    """With pytest, `client` is a fixture."""
    key = rt.ObjectKey("default", "blue")
    async with running(app, client):
        await client.of(Room).create(Room(metadata=rt.ObjectMeta(name="blue", namespace="default")))
        await client.patch(Room.resource, key, {"seats": 3}, MERGE)

        async def grown() -> bool:
            return "3" in (await client.get(rt.kinds.CONFIG_MAPS, key))["data"].values()

        await eventually(grown)
        try:
            await client.patch(Room.resource, key, {"seats": 2}, MERGE)
        except rt.errors.Forbidden as refused:
            print(refused.message)


async def main() -> None:
    """Do what the fixture does."""
    async with ApiServer() as server, server.client() as client:
        await test_a_room_does_not_shrink(client)


if __name__ == "__main__":
    rt.configure_logs(level="error")
    asyncio.run(main())

# Prints:
# admission webhook "validate.rooms.example.com" denied the request: seats: 3 are taken
