"""Trees of cohorts on an embedded API server: quota, cycles, gauges, and a cluster without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kueuelib.api import kinds
from kueuelib.api.crd import crd
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.settings import FairSharingRules, Settings

if TYPE_CHECKING:
    from .conftest import World


async def cohort(world: World, name: str, parent: str = "", **quota: str) -> None:
    spec: dict[str, Any] = {"parentName": parent} if parent else {}
    if quota:
        row = {"name": "cpu", **quota}
        flavors = [{"name": "default", "resources": [row]}]
        spec["resourceGroups"] = [{"coveredResources": ["cpu"], "flavors": flavors}]
    await world.create(kinds.COHORTS, name, spec)


async def becomes(world: World, line: str, *, shown: bool = True) -> None:
    """Waits until the gauges show a line, or no longer do."""
    role = ',replica_role="standalone"'
    await world.until(
        lambda: (line in world.telemetry.render().decode().replace(role, "")) is shown, line
    )


async def test_a_queue_uses_the_quota_of_cohorts_above_it(world: World) -> None:
    await cohort(world, "top", nominalQuota="3")
    await cohort(world, "team", "top", nominalQuota="1", borrowingLimit="1")
    await world.queues(cpu="0", cohortName="team")
    async with world.running():
        await world.workload("first")
        await world.is_("first", "Admitted")
        await world.workload("second")
        await world.is_("second", "Admitted")
        await world.workload("third")
        await world.is_("third", "QuotaReserved", "False")
        row = {"name": "cpu", "nominalQuota": "1", "borrowingLimit": "2"}
        group = {
            "coveredResources": ["cpu"],
            "flavors": [{"name": "default", "resources": [row]}],
        }
        await world.patch(kinds.COHORTS, "team", {"spec": {"resourceGroups": [group]}})
        await world.is_("third", "Admitted")


async def test_gauges_follow_the_tree(world: World) -> None:
    await cohort(world, "top", nominalQuota="3")
    await cohort(world, "team", "top", nominalQuota="500m")
    await world.queues(cpu="1", cohortName="team")
    async with world.running():
        ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
        await world.workload("first", priority=1, priorityClassRef=ref)
        place = 'cluster_queue="cq",parent_cohort="team",root_cohort="top"'
        await becomes(world, f"kueue_cluster_queue_info{{{place}}} 1.0")
        await becomes(
            world, 'kueue_cohort_info{cohort="team",parent_cohort="top",root_cohort="top"} 1.0'
        )
        pair = 'flavor="default",resource="cpu"'
        for name, quota in (("top", 4.5), ("team", 1.5)):
            await becomes(world, f'kueue_cohort_subtree_quota{{cohort="{name}",{pair}}} {quota}')
            series = "kueue_cohort_subtree_resource_reservations"
            await becomes(world, f'{series}{{cohort="{name}",{pair}}} 1.0')
            series = "kueue_cohort_subtree_admitted_active_workloads"
            await becomes(world, f'{series}{{cohort="{name}"}} 1.0')
            series = "kueue_cohort_subtree_admitted_workloads_total"
            await becomes(world, f'{series}{{cohort="{name}",priority_class="high"}} 1.0')
        await world.patch(kinds.CLUSTER_QUEUES, "cq", {"spec": {"cohortName": "other"}})
        await becomes(
            world, 'kueue_cohort_info{cohort="other",parent_cohort="",root_cohort="other"}'
        )
        await becomes(world, f'kueue_cohort_subtree_quota{{cohort="top",{pair}}} 3.5')
        await world.delete(kinds.COHORTS, "team")
        await becomes(world, 'kueue_cohort_info{cohort="team"', shown=False)
        await becomes(world, f'kueue_cohort_subtree_quota{{cohort="team",{pair}}}', shown=False)
        await becomes(world, f'kueue_cohort_subtree_quota{{cohort="top",{pair}}} 3.0')


async def test_a_cycle_is_told_and_holds_up_its_members_only(world: World) -> None:
    await cohort(world, "x", "y")
    await cohort(world, "y", "x")
    await world.queues(cohortName="y")
    await world.cluster_queue("free", cohortName="z")
    await world.local_queue("beside", "free")
    async with world.running():

        async def is_active(status: str, reason: str) -> None:
            async def reached() -> bool:
                found = await world.active(kinds.CLUSTER_QUEUES, "cq")
                assert found == (status, reason), found
                return True

            await world.until(reached)

        await is_active("False", "CohortCycle")
        await world.workload("held")
        await world.is_("held", "QuotaReserved", "False")
        await world.workload("beside", queue="beside")
        await world.is_("beside", "Admitted")

        async def told() -> bool:
            for name in ("x", "y"):
                events = dict(await world.events(name))
                assert "x -> y -> x" in events["CohortCycle"]
            return True

        await world.until(told)
        await world.patch(kinds.COHORTS, "x", {"spec": {"parentName": None}})
        await is_active("True", "Ready")
        await world.is_("held", "Admitted")


async def test_shares_follow_usage_weights_and_quota_anywhere_in_the_tree(world: World) -> None:
    world.decisions = Settings(fair_sharing=FairSharingRules())
    await cohort(world, "top")
    await world.create(
        kinds.COHORTS, "team", {"parentName": "top", "fairSharing": {"weight": "0.3"}}
    )
    await world.queues(cpu="0", cohortName="team")
    await world.cluster_queue("other", cpu="4", cohortName="top")
    async with world.running():

        async def shares(**wanted: int) -> None:
            async def reached() -> bool:
                found = {
                    name: (await world.get(resource, name))["status"]["fairSharing"]
                    for resource, name in (
                        (kinds.COHORTS, "top"),
                        (kinds.COHORTS, "team"),
                        (kinds.CLUSTER_QUEUES, "cq"),
                        (kinds.CLUSTER_QUEUES, "other"),
                    )
                    if name in wanted
                }
                assert found == {name: {"weightedShare": each} for name, each in wanted.items()}
                return True

            await world.until(reached)

        await shares(top=0, team=0, cq=0, other=0)
        await world.workload("first")
        await shares(top=0, team=834, cq=250, other=0)
        await becomes(world, 'kueue_cohort_weighted_share{cohort="team"} 833.33')
        line = 'kueue_cluster_queue_weighted_share{cluster_queue="cq",cohort="team"} 250.0'
        await becomes(world, line)
        await world.patch(kinds.COHORTS, "team", {"spec": {"fairSharing": {"weight": 0}}})
        await shares(team=2**63 - 1, cq=250)
        await becomes(world, 'kueue_cohort_weighted_share{cohort="team"} NaN')
        row = {"name": "cpu", "nominalQuota": "8"}
        flavors = [{"name": "default", "resources": [row]}]
        groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
        await world.patch(kinds.CLUSTER_QUEUES, "other", {"spec": {"resourceGroups": groups}})
        await shares(team=2**63 - 1, cq=125)
        await world.patch(kinds.COHORTS, "team", {"spec": {"fairSharing": None}})
        await shares(team=125)


async def test_a_share_is_not_shown_while_fair_sharing_is_off(world: World) -> None:
    await cohort(world, "top")
    await world.queues(cohortName="top")
    left = {"status": {"fairSharing": {"weightedShare": 3}}}
    await world.patch(kinds.COHORTS, "top", left, subresource="status")
    await world.patch(kinds.CLUSTER_QUEUES, "cq", left, subresource="status")
    async with world.running():

        async def cleared() -> bool:
            for resource, name in ((kinds.COHORTS, "top"), (kinds.CLUSTER_QUEUES, "cq")):
                assert "fairSharing" not in (await world.get(resource, name))["status"]
            return True

        await world.until(cleared)


async def test_a_cluster_without_the_kind_keeps_working_until_it_comes(world: World) -> None:
    name = "cohorts.kueue.x-k8s.io"
    await world.delete(kinds.CRDS, name)
    await world.until(lambda: world.gone(kinds.CRDS, name))
    await world.queues(cpu="1", cohortName="top")
    async with world.running():
        await world.workload("first")
        await world.is_("first", "Admitted")
        await world.workload("second")
        await world.is_("second", "QuotaReserved", "False")
        definition = crd("Cohort")
        definition["spec"]["conversion"] = {"strategy": "None"}
        await world.client.create(kinds.CRDS, definition)

        async def created() -> bool:
            await cohort(world, "top", nominalQuota="1")
            return True

        await world.until(created)
        await world.is_("second", "Admitted")
        await world.client.delete(kinds.CRDS, ObjectKey("", name))
        await becomes(world, "kueue_cohort_subtree_quota", shown=True)
        await becomes(
            world, 'kueue_cohort_subtree_quota{cohort="top",flavor="default",resource="cpu"} 1.0'
        )
