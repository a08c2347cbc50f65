"""The queueing controllers at work on an embedded API server."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest

from kueuelib.api import kinds
from kueuelib.api.meta import ObjectKey, Resource, find_condition
from kueuelib.api.names import IN_USE_FINALIZER
from kueuelib.runtime.client import Client
from kueuelib.workload import states
from kueuelib.workload.writer import write_status

if TYPE_CHECKING:
    from .conftest import World

OFF = {"stopPolicy": "HoldAndDrain"}
ON = {"stopPolicy": "None"}
AT = "2024-01-01T00:00:00Z"


def active_check(status: str = "True") -> dict[str, Any]:
    condition = {"type": "Active", "status": status, "reason": "Active", "message": "m"}
    return {"status": {"conditions": [{**condition, "lastTransitionTime": "2024-01-01T00:00:00Z"}]}}


async def set_check(world: World, name: str, state: str) -> None:
    wl = await world.get(kinds.WORKLOADS, name, "default")
    (entry,) = wl["status"]["admissionChecks"]
    body = {"status": {"admissionChecks": [{**entry, "state": state}]}}
    await world.patch(kinds.WORKLOADS, name, body, "default", "status")


async def release(world: World, name: str) -> None:
    """What a job reconciler does once the job has stopped."""

    async def released() -> bool:
        wl = await world.get(kinds.WORKLOADS, name, "default")
        await write_status(world.client, wl, states.release(wl, 1_700_000_000.0))
        return True

    await world.until(released)


async def test_a_workload_that_fits_is_admitted_with_one_patch(world: World) -> None:
    await world.queues()
    async with world.running():
        created = await world.workload("wl")
        await world.is_("wl", "Admitted")
        wl = await world.get(kinds.WORKLOADS, "wl", "default")
        (assignment,) = wl["status"]["admission"]["podSetAssignments"]
        assert assignment["flavors"] == {"cpu": "default"}
        assert assignment["resourceUsage"] == {"cpu": "1"}
        managers = {entry["manager"] for entry in wl["metadata"]["managedFields"]}
        assert managers == {"kueuelib", "kueue-admission"}
        versions = (
            int(wl["metadata"]["resourceVersion"]),
            int(created["metadata"]["resourceVersion"]),
        )
        assert versions[0] > versions[1]
        text = world.telemetry.render().decode()
        assert 'kueuelib_status_writes_total{purpose="admission",result="ok"} 1.0' in text
        labels = 'cluster_queue="cq",priority_class="",replica_role="standalone"'
        assert f"kueue_admitted_workloads_total{{{labels}}} 1.0" in text

        async def told() -> bool:
            events = dict(await world.events("wl"))
            assert "cq" in events["QuotaReserved"]
            assert "cq" in events["Admitted"]
            return True

        await world.until(told)


async def test_a_workload_that_waits_says_why_once_and_follows_the_first(world: World) -> None:
    await world.queues(cpu="1")
    async with world.running():
        await world.workload("first")
        await world.is_("first", "Admitted")
        await world.workload("second")
        found = await world.is_("second", "QuotaReserved", "False")
        assert found["reason"] == "WaitingForQuota"
        await world.workload("large", cpu="2")
        assert (await world.is_("large", "QuotaReserved", "False"))["reason"] == "ExceedsMaxQuota"

        async def told() -> bool:
            return "WaitingForQuota" in dict(await world.events("second"))

        await world.until(told)
        await world.finish("first")
        await world.is_("second", "Admitted")
        assert not states.has_quota(await world.get(kinds.WORKLOADS, "large", "default"))


async def test_queues_show_counts_usage_and_activity(world: World) -> None:
    async with world.running():
        await world.cluster_queue(cpu="1")
        await world.local_queue()

        async def is_active(status: str, reason: str) -> None:
            async def reached() -> bool:
                found = await world.active(kinds.CLUSTER_QUEUES, "cq")
                assert found == (status, reason), found
                return True

            await world.until(reached)

        await is_active("False", "FlavorNotFound")
        await world.workload("first")
        inactive = await world.is_("first", "QuotaReserved", "False")
        assert inactive["reason"] == "Misconfigured"
        await world.flavor()
        await is_active("True", "Ready")
        await world.is_("first", "Admitted")
        await world.workload("second")
        await world.is_("second", "QuotaReserved", "False")

        async def counted() -> bool:
            for resource, namespace in (
                (kinds.CLUSTER_QUEUES, ""),
                (kinds.LOCAL_QUEUES, "default"),
            ):
                name = "cq" if resource is kinds.CLUSTER_QUEUES else "main"
                status = (await world.get(resource, name, namespace))["status"]
                counts = [
                    status[f"{kind}Workloads"] for kind in ("pending", "reserving", "admitted")
                ]
                assert counts == [1, 1, 1], counts
                (row,) = status["flavorsUsage"]
                assert row["name"] == "default"
                assert row["resources"][0]["total"] == "1"
            return True

        await world.until(counted)
        labels = 'cluster_queue="cq",replica_role="standalone",status="inadmissible"'
        line = f"kueue_pending_workloads{{{labels}}} 1.0"
        assert line in world.telemetry.render().decode()


async def test_a_local_queue_tells_about_its_cluster_queue(world: World) -> None:
    async with world.running():
        await world.local_queue()

        async def is_active(status: str, reason: str) -> None:
            async def reached() -> bool:
                found = await world.active(kinds.LOCAL_QUEUES, "main", "default")
                assert found == (status, reason), found
                return True

            await world.until(reached)

        await is_active("False", "ClusterQueueDoesNotExist")
        await world.flavor()
        await world.cluster_queue()
        await is_active("True", "Ready")
        await world.patch(kinds.CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        await is_active("False", "ClusterQueueIsInactive")


async def test_a_missing_local_queue_is_named_until_it_comes(world: World) -> None:
    async with world.running():
        await world.workload("wl", queue="later")
        found = await world.is_("wl", "QuotaReserved", "False")
        assert found["reason"] == "Misconfigured"
        assert "later" in found["message"]
        await world.flavor()
        await world.cluster_queue()
        await world.local_queue("later")
        await world.is_("wl", "Admitted")


async def test_used_objects_are_kept_until_nobody_needs_them(world: World) -> None:
    await world.queues()
    await world.create(kinds.ADMISSION_CHECKS, "check", {"controllerName": "example.com/c"})
    async with world.running():
        for resource, name in (
            (kinds.RESOURCE_FLAVORS, "default"),
            (kinds.CLUSTER_QUEUES, "cq"),
            (kinds.ADMISSION_CHECKS, "check"),
        ):

            async def guarded(resource: Any = resource, name: str = name) -> bool:
                found = await world.get(resource, name)
                return IN_USE_FINALIZER in found["metadata"].get("finalizers", [])

            await world.until(guarded)
        await world.delete(kinds.ADMISSION_CHECKS, "check")
        await world.until(lambda: world.gone(kinds.ADMISSION_CHECKS, "check"))
        await world.workload("wl")
        await world.is_("wl", "Admitted")
        await world.delete(kinds.RESOURCE_FLAVORS, "default")
        await world.delete(kinds.CLUSTER_QUEUES, "cq")

        async def terminating() -> bool:
            return await world.active(kinds.CLUSTER_QUEUES, "cq") == ("False", "Terminating")

        await world.until(terminating)
        assert not await world.gone(kinds.RESOURCE_FLAVORS, "default")
        await world.finish("wl")
        await world.until(lambda: world.gone(kinds.CLUSTER_QUEUES, "cq"))
        await world.until(lambda: world.gone(kinds.RESOURCE_FLAVORS, "default"))


async def test_deactivation_evicts_and_reactivation_queues_again(world: World) -> None:
    await world.queues()
    async with world.running():
        await world.workload("wl")
        await world.is_("wl", "Admitted")
        await world.patch(kinds.WORKLOADS, "wl", {"spec": {"active": False}}, "default")
        assert (await world.is_("wl", "Evicted"))["reason"] == "Deactivated"
        assert world.engine.cache.reserving("cq") == 1
        await release(world, "wl")
        await world.is_("wl", "Admitted", "False")
        await world.until(lambda: world.engine.cache.reserving("cq") == 0)
        await world.patch(kinds.WORKLOADS, "wl", {"spec": {"active": True}}, "default")
        await world.is_("wl", "Admitted")
        assert (await world.condition("wl", "Evicted"))["status"] == "False"

        async def told() -> bool:
            return "EvictedDueToDeactivated" in dict(await world.events("wl"))

        await world.until(told)


async def test_draining_a_queue_evicts_and_restarting_admits_again(world: World) -> None:
    await world.queues()
    async with world.running():
        await world.workload("wl")
        await world.is_("wl", "Admitted")
        await world.patch(kinds.CLUSTER_QUEUES, "cq", {"spec": OFF})
        assert (await world.is_("wl", "Evicted"))["reason"] == "ClusterQueueStopped"
        await release(world, "wl")
        await world.patch(kinds.CLUSTER_QUEUES, "cq", {"spec": ON})
        await world.is_("wl", "Admitted")
        assert (await world.condition("wl", "Requeued"))["reason"] == "ClusterQueueRestarted"
        await world.patch(kinds.CLUSTER_QUEUES, "cq", {"spec": OFF})
        await world.is_("wl", "Evicted")
        wl = await world.get(kinds.WORKLOADS, "wl", "default")
    assert states.evictions_of(wl) == {("ClusterQueueStopped", ""): 2}
    text = world.telemetry.render().decode()
    labels = 'priority_class="",reason="ClusterQueueStopped"'
    for name, count in (("", 2), ("_once", 1)):
        (line,) = re.findall(f"kueue_evicted_workloads{name}_total{{.*{labels}.*", text)
        assert line.endswith(f" {count}.0")


async def test_a_check_holds_admission_back_and_retry_takes_the_quota(world: World) -> None:
    await world.flavor()
    await world.create(kinds.ADMISSION_CHECKS, "check", {"controllerName": "example.com/c"})
    await world.patch(kinds.ADMISSION_CHECKS, "check", active_check(), subresource="status")
    strategy = {"admissionChecks": [{"name": "check"}]}
    await world.cluster_queue(admissionChecksStrategy=strategy)
    await world.local_queue()
    async with world.running():
        await world.workload("wl")
        await world.is_("wl", "QuotaReserved")

        async def listed() -> bool:
            wl = await world.get(kinds.WORKLOADS, "wl", "default")
            return states.checks_in(wl, "Pending") == ("check",)

        await world.until(listed)
        assert await world.condition("wl", "Admitted") == {}
        await set_check(world, "wl", "Ready")
        await world.is_("wl", "Admitted")
        await set_check(world, "wl", "Retry")
        assert (await world.is_("wl", "Evicted"))["reason"] == "AdmissionCheck"
        await release(world, "wl")
        await world.is_("wl", "QuotaReserved", "False")
        await asyncio.sleep(0.2)
        assert not states.has_quota(await world.get(kinds.WORKLOADS, "wl", "default"))
        await set_check(world, "wl", "Pending")
        await world.is_("wl", "QuotaReserved")
        await set_check(world, "wl", "Rejected")

        async def deactivated() -> bool:
            wl = await world.get(kinds.WORKLOADS, "wl", "default")
            return wl["spec"]["active"] is False and states.is_evicted(wl)

        await world.until(deactivated)
        await release(world, "wl")
        wl = await world.get(kinds.WORKLOADS, "wl", "default")
        assert states.checks_in(wl, "Pending") == ("check",)


@pytest.mark.parametrize("gone", [False, True])
async def test_nobody_is_preempted_before_a_late_check_is_even_listed(
    world: World, *, gone: bool
) -> None:
    await world.flavor()
    late = {"controllerName": "example.com/c", "preemptionPolicy": "AfterCheckPassedOrOnDemand"}
    await world.create(kinds.ADMISSION_CHECKS, "check", late)
    await world.patch(kinds.ADMISSION_CHECKS, "check", active_check(), subresource="status")
    strategy = {"admissionChecks": [{"name": "check"}]}
    preemption = {"withinClusterQueue": "LowerPriority"}
    await world.cluster_queue(cpu="1", preemption=preemption, admissionChecksStrategy=strategy)
    await world.local_queue()
    wl = await world.workload("low")
    admission = {
        "clusterQueue": "cq",
        "podSetAssignments": [
            {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}}
        ],
    }
    low = states.sync_admitted(states.reserve(wl, admission, (), 1_700_000_000.0), 1_700_000_000.0)
    ready = {"name": "check", "state": "Ready", "message": "", "lastTransitionTime": AT}
    low["status"]["admissionChecks"] = [ready]
    await write_status(world.client, wl, low)
    wl = await world.workload("high", priority=10)
    # What is seen between two writes: quota, and no word yet about the check.
    await write_status(world.client, wl, states.reserve(wl, admission, ("check",), 1_700_000_001.0))
    async with world.running():

        async def listed() -> bool:
            found = await world.get(kinds.WORKLOADS, "high", "default")
            return states.checks_in(found, "Pending") == ("check",)

        await world.until(listed)
        await asyncio.sleep(0.2)
        assert await world.condition("low", "Evicted") == {}
        if gone:  # by force: its finalizer would keep it while it is in use
            bare = {"metadata": {"finalizers": None}}
            await world.patch(kinds.ADMISSION_CHECKS, "check", bare)
            await world.client.delete(kinds.ADMISSION_CHECKS, ObjectKey("", "check"))
            await asyncio.sleep(0.5)
            assert await world.condition("low", "Evicted") == {}
            return
        await set_check(world, "high", "Ready")
        assert (await world.is_("low", "Evicted"))["reason"] == "Preempted"


async def test_victims_are_evicted_sixteen_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing: set[str] = set()
    most, all_begun = 0, asyncio.Event()
    patch = Client.patch

    async def slow(
        client: Client, resource: Resource, key: ObjectKey, *args: Any, **more: Any
    ) -> Any:
        nonlocal most
        conditions = args[0].get("status", {}).get("conditions")
        if find_condition(conditions, "Preempted").get("status") != "True":
            return await patch(client, resource, key, *args, **more)
        writing.add(key.name)
        most = max(most, len(writing))
        if most == 16:
            all_begun.set()
        await all_begun.wait()
        try:
            return await patch(client, resource, key, *args, **more)
        finally:
            writing.remove(key.name)

    await world.queues(cpu="20", preemption={"withinClusterQueue": "LowerPriority"})
    async with world.running():
        names = [f"low-{number}" for number in range(20)]
        for name in names:
            await world.workload(name)
        for name in names:
            await world.is_(name, "Admitted")
        monkeypatch.setattr(Client, "patch", slow)
        await world.workload("high", cpu="20", priority=1)
        await asyncio.wait_for(all_begun.wait(), 60)
        for name in names:
            await world.is_(name, "Evicted")
    assert most == 16


async def test_an_orphan_that_is_deleted_goes(world: World) -> None:
    await world.queues()
    await world.workload("wl")
    body = {"metadata": {"finalizers": [IN_USE_FINALIZER]}}
    await world.patch(kinds.WORKLOADS, "wl", body, "default")
    async with world.running():
        await world.is_("wl", "Admitted")
        await world.delete(kinds.WORKLOADS, "wl", "default")
        await world.until(lambda: world.gone(kinds.WORKLOADS, "wl", "default"))
        await world.until(lambda: world.engine.cache.reserving("cq") == 0)


async def test_a_restarted_manager_knows_what_was_admitted(world: World) -> None:
    await world.queues(cpu="1")
    async with world.running():
        await world.workload("first")
        await world.is_("first", "Admitted")
    async with world.running():
        assert world.engine.cache.holder(ObjectKey("default", "first")) is not None
        await world.workload("second")
        await world.is_("second", "QuotaReserved", "False")
        await world.finish("first")
        await world.is_("second", "Admitted")


async def test_many_workloads_never_exceed_the_quota(world: World) -> None:
    await world.queues(cpu="3")
    async with world.running():
        names = [f"wl-{number}" for number in range(12)]
        for name in names:
            await world.workload(name)
        done: set[str] = set()
        while len(done) < len(names):
            page = await world.client.list(kinds.WORKLOADS, "default")
            holding = [
                wl["metadata"]["name"] for wl in page.items if states.phase_of(wl).holds_quota
            ]
            assert len(holding) <= 3
            for wl in page.items:
                assert states.violations(wl) == ()
            for name in holding:
                await world.finish(name)
                done.add(name)
            await asyncio.sleep(0.01)
        text = world.telemetry.render().decode()
        assert 'kueuelib_status_writes_total{purpose="admission",result="ok"} 12.0' in text


BAD_SPECS: list[dict[str, Any]] = [
    {"nodeSelector": {"kueuelib.dev/pool": ""}},
    {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["1"]}]},
                        {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}]},
                        {"matchExpressions": [{"key": "a", "operator": "In"}]},
                        {},
                    ]
                }
            }
        }
    },
    {"tolerations": [{"operator": "Like"}, {}]},
    {"runtimeClassName": "missing", "overhead": {"cpu": "-1"}},
    {"containers": [{"name": "c", "resources": {"requests": {"cpu": "-5"}, "limits": {}}}]},
    {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1e30"}}}]},
    {"initContainers": [{"name": "i", "restartPolicy": "Always"}], "containers": []},
]


async def test_strange_workloads_stop_nobody(world: World) -> None:
    await world.flavor()
    await world.patch(
        kinds.RESOURCE_FLAVORS,
        "default",
        {
            "spec": {
                "nodeLabels": {"a": "b"},
                "nodeTaints": [{"key": "t", "value": "v", "effect": "NoSchedule"}],
                "tolerations": [{"operator": "Exists"}],
            }
        },
    )
    await world.cluster_queue(cpu="100")
    await world.local_queue()
    async with world.running():
        for number, spec in enumerate(BAD_SPECS):
            container = {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "1"}}}
            template = {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}
            pod_sets = [{"name": "main", "count": 1, "template": template}]
            await world.workload(f"strange-{number}", podSets=pod_sets)
        await world.workload("sound")
        await world.is_("sound", "Admitted")
