"""The operator against an API server of its own."""

import pytest

from kueuelib.runtime import Client, ObjectKey, ObjectMeta, PatchType, errors, kinds
from kueuelib.testing import eventually, running
from team_space import BINDINGS, Spec, TeamSpace, app

BLUE, NOTE = ObjectKey("", "blue"), ObjectKey("default", "was-blue")


async def test_a_team_gets_its_space_and_leaves_a_note(client: Client) -> None:
    """Create, change, refuse, delete."""

    async def settled(generation: int) -> bool:
        return (await spaces.get(BLUE)).status.observed_generation == generation

    async def change(**spec: object) -> None:
        await client.patch(TeamSpace.resource, BLUE, {"spec": spec}, PatchType.MERGE)

    spaces = client.of(TeamSpace)
    async with running(app, client):
        blue = TeamSpace(metadata=ObjectMeta(name="blue"), spec=Spec(("ann", "bob")))
        assert (await spaces.create(blue)).spec == Spec(("ann", "bob"), cpu=4, owner="ann")
        await eventually(lambda: settled(1))
        await change(members=["ann"])
        await eventually(lambda: settled(2))
        (binding,) = (await client.list(BINDINGS, "blue")).items
        assert binding["metadata"]["name"] == "ann"
        with pytest.raises(errors.Forbidden, match="carl is not a member"):
            await change(owner="carl")
        await client.delete(TeamSpace.resource, BLUE)
        note = await eventually(lambda: client.get(kinds.CONFIG_MAPS, NOTE))
        assert note["data"] == {"owner": "ann"}
