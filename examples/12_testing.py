"""A test of an operator with a webhook, against an API server of its own: it needs no cluster."""

import asyncio

from kueuelib import runtime as rt
from kueuelib.embedded import ApiServer
from kueuelib.testing import eventually, running

app = rt.Operator("rooms")


@rt.crd("example.com", "v1", plural="rooms")
@rt.frozen
class Room(rt.KubeObject):
    """A room with seats."""

    seats: int = 1


@app.reconciles(Room, owns=[rt.kinds.CONFIG_MAPS])
async def sign(room: Room, context: rt.Context) -> None:
    """Write the sign at the door."""
    text = {"seats": str(room.seats)}
    await context.apply(rt.kinds.CONFIG_MAPS.new(room.name, data=text))


@app.validates(Room)
def keeps_seats(new: Room | None, old: Room | None, _: rt.AdmissionRequest) -> list[rt.FieldError]:
    """A room may grow, and not shrink."""
    if new is None or old is None or new.seats >= old.seats:
        return []
    return [rt.FieldError("seats", "FieldValueInvalid", f"{old.seats} are taken")]


async def test_a_room_does_not_shrink(kube_client: rt.Client) -> None:
    """With pytest, `kube_client` is a fixture."""
    async with running(app, kube_client):
        room = await kube_client.of(Room).apply(Room.new("blue", "default", seats=3))

        written = await eventually(lambda: kube_client.get(rt.kinds.CONFIG_MAPS, room.key))
        assert written["data"] == {"seats": "3"}
        try:
            await kube_client.of(Room).apply(room.evolve(seats=2))
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
