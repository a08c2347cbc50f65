"""Two LocalQueues of one ClusterQueue on an embedded API server, ordered by past usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kueuelib.api import kinds
from kueuelib.api.codec import decode
from kueuelib.api.kueue import LocalQueue
from kueuelib.scheduler.quota.past_usage import UsageRule
from kueuelib.scheduler.settings import Settings

if TYPE_CHECKING:
    from .conftest import World

BY_USAGE = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
GAUGE = 'kueue_local_queue_admission_fair_sharing_usage{cluster_queue="cq",name="main"'


async def past_usage(world: World, queue: str) -> Any:
    found = decode(LocalQueue, await world.get(kinds.LOCAL_QUEUES, queue, "default"))
    sharing = found.status.fair_sharing
    return None if sharing is None else sharing.admission_fair_sharing_status


async def set_up(world: World, interval: float) -> None:
    world.decisions = Settings(past_usage=UsageRule(half_life=3600.0, interval=interval))
    await world.queues(cpu="1", **BY_USAGE)
    await world.local_queue("other")


async def test_who_used_less_is_admitted_first_also_after_a_restart(world: World) -> None:
    await set_up(world, interval=1.0)
    async with world.running():
        await world.workload("first")
        await world.is_("first", "Admitted")
        await world.until(lambda: past_usage(world, "main"), "usage in the status")
        assert await past_usage(world, "other") is None
        assert GAUGE in world.telemetry.render().decode()
        await world.workload("again", priority=9)
        await world.is_("again", "QuotaReserved", "False")
        await world.workload("rival", queue="other")
        await world.is_("rival", "QuotaReserved", "False")
    async with world.running():
        assert [info.key.name for info in world.engine.pending("cq")] == ["rival", "again"]
        await world.finish("first")
        await world.is_("rival", "Admitted")
        await world.finish("rival")
        await world.is_("again", "Admitted")


async def test_a_workload_behind_a_blocked_head_names_the_queue_that_used_less(
    world: World,
) -> None:
    await set_up(world, interval=3600.0)
    body = {"spec": {"queueingStrategy": "StrictFIFO"}}
    await world.patch(kinds.CLUSTER_QUEUES, "cq", body)
    async with world.running():
        await world.workload("first")
        await world.is_("first", "Admitted")
        await world.workload("rival", queue="other")
        await world.is_("rival", "QuotaReserved", "False")
        await world.workload("again", priority=9)
        found = await world.is_("again", "QuotaReserved", "False")
        assert "workload default/rival was the head" in found["message"]
        assert "LocalQueue default/other used less" in found["message"]
