"""The operator against an API server of its own."""

import pytest

from kueuelib.runtime import Client, ObjectKey, errors, kinds
from kueuelib.testing import eventually, running, settled
from team_space import BINDINGS, Spec, TeamSpace, app


async def test_a_team_gets_its_space_and_leaves_a_note(kube_client: Client) -> None:
    """Create, change, refuse, delete."""
    spaces, note = kube_client.of(TeamSpace), ObjectKey("default", "was-blue")
    async with running(app, kube_client):
        new = TeamSpace.new("blue", spec=Spec(("ann", "bob")))
        blue = await settled(kube_client, await spaces.create(new))
        assert blue.spec == Spec(("ann", "bob"), cpu=4, owner="ann")
        smaller = blue.evolve(spec=blue.spec.evolve(members=("ann",)))
        blue = await settled(kube_client, await spaces.replace(smaller))
        (binding,) = (await kube_client.list(BINDINGS, "blue")).items
        assert binding["metadata"]["name"] == "ann"
        with pytest.raises(errors.Forbidden, match="carl is not a member"):
            await spaces.replace(blue.evolve(spec=blue.spec.evolve(owner="carl")))
        await spaces.delete(blue.key)
        config_map = await eventually(lambda: kube_client.get(kinds.CONFIG_MAPS, note))
        assert config_map["data"] == {"owner": "ann"}
