"""`flavorFungibility.preference` decides, as it was stored by an API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kueuelib.api import kinds
from kueuelib.api.meta import find_condition

if TYPE_CHECKING:
    from .conftest import World


def group(own: str, shared: str) -> dict[str, Any]:
    flavors = [("shared", shared), ("own", own)]
    return {
        "coveredResources": ["cpu"],
        "flavors": [
            {"name": name, "resources": [{"name": "cpu", "nominalQuota": quota}]}
            for name, quota in flavors
        ],
    }


@pytest.mark.parametrize(
    ("preference", "flavor"),
    [("BorrowingOverPreemption", "shared"), ("PreemptionOverBorrowing", "own")],
)
async def test_the_preference_of_a_stored_queue_decides(
    world: World, preference: str, flavor: str
) -> None:
    """In one flavor the workload would have to borrow, in the other to preempt."""
    rules = {
        "whenCanBorrow": "TryNextFlavor",
        "whenCanPreempt": "TryNextFlavor",
        "preference": preference,
    }
    for name in ("own", "shared"):
        await world.flavor(name)
    common = {"namespaceSelector": {}, "cohortName": "all"}
    await world.create(
        kinds.CLUSTER_QUEUES, "lender", {**common, "resourceGroups": [group("0", "2")]}
    )
    mine = {
        **common,
        "resourceGroups": [group("2", "0")],
        "flavorFungibility": rules,
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    stored = await world.create(kinds.CLUSTER_QUEUES, "cq", mine)
    assert stored["spec"]["flavorFungibility"] == rules
    await world.local_queue()
    async with world.running():
        await world.workload("low", cpu="2", priority=1)
        await world.is_("low", "Admitted")
        assert await used(world, "low") == "own"
        await world.workload("high", cpu="2", priority=2)
        if flavor == "shared":
            await world.is_("high", "Admitted")
            assert await used(world, "high") == "shared"
            assert await world.condition("low", "Evicted") == {}
        else:
            evicted = await world.is_("low", "Evicted")
            assert evicted["reason"] == "Preempted"
            found = await world.get(kinds.WORKLOADS, "high", "default")
            reserved = find_condition((found.get("status") or {}).get("conditions"), "Admitted")
            assert reserved.get("status") != "True"


async def used(world: World, name: str) -> str:
    found = await world.get(kinds.WORKLOADS, name, "default")
    (assignment,) = found["status"]["admission"]["podSetAssignments"]
    return str(assignment["flavors"]["cpu"])
