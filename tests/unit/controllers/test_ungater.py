"""Pods of placed Workloads start in their domains, each with one write."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kueuelib.api.kinds import PODS, RESOURCE_FLAVORS, WORKLOADS
from kueuelib.api.meta import ObjectKey
from kueuelib.controllers.ungater import is_placed, trimmed, ungating, workload_of
from kueuelib.runtime.queries import PatchType

if TYPE_CHECKING:
    from .conftest import World

Obj = dict[str, Any]
KUEUE, HOST = "kueue.x-k8s.io", "kubernetes.io/hostname"
INDEX = "batch.kubernetes.io/job-completion-index"
AT = "2024-01-01T00:00:00Z"
GATES = [{"name": "example.com/other"}, {"name": f"{KUEUE}/topology"}]


def condition(type: str, status: str = "True") -> Obj:
    return {
        "type": type,
        "status": status,
        "reason": type,
        "message": "",
        "lastTransitionTime": AT,
    }


def place(*domains: tuple[str, int]) -> Obj:
    slices = [
        {
            "domainCount": 1,
            "valuesPerLevel": [{"universal": host}],
            "podCounts": {"universal": count},
        }
        for host, count in domains
    ]
    return {"levels": [HOST], "slices": slices}


def status(*domains: tuple[str, int], admitted: str = "True") -> Obj:
    count = sum(number for _, number in domains)
    assignment = {"name": "main", "count": count, "topologyAssignment": place(*domains)}
    return {
        "conditions": [condition("QuotaReserved"), condition("Admitted", admitted)],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
    }


def workload(*domains: tuple[str, int]) -> Obj:
    pod_sets = [{"name": "main", "count": 9, "topologyRequest": {"podIndexLabel": INDEX}}]
    meta = {"name": "wl", "namespace": "default"}
    typed = {"apiVersion": f"{KUEUE}/v1beta2", "kind": "Workload"}
    return {**typed, "metadata": meta, "spec": {"podSets": pod_sets}, "status": status(*domains)}


def pod(index: int, **spec: Any) -> Obj:
    labels = {f"{KUEUE}/podset": "main", INDEX: str(index)}
    notes = {f"{KUEUE}/workload": "wl", "other": "x"}
    meta = {"name": f"p{index}", "namespace": "default", "labels": labels, "annotations": notes}
    containers = [{"name": "c", "image": "i"}]
    return {
        "metadata": meta,
        "spec": {"containers": containers, "schedulingGates": GATES, **spec},
    }


def selectors(wl: Obj, *pods: Obj) -> dict[str, str]:
    return {one["metadata"]["name"]: selector[HOST] for one, selector in ungating(wl, pods)}


def test_pods_start_by_their_ranks() -> None:
    assert selectors(workload(("a", 1), ("b", 2)), pod(2), pod(0)) == {"p0": "a", "p2": "b"}


def test_pods_that_ended_leave_their_place_to_others() -> None:
    ended = {**pod(0), "status": {"phase": "Failed"}}
    assert selectors(workload(("a", 1)), ended, {**pod(0), "status": {}}) == {"p0": "a"}


def test_a_workload_without_domains_starts_nothing() -> None:
    wl = workload(("a", 1))
    assert is_placed(wl)
    del wl["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
    assert not is_placed(wl)
    assert not is_placed({**wl, "status": status(("a", 1), admitted="False")})


def test_what_is_stored_of_a_pod_is_what_decides() -> None:
    given = pod(3, nodeSelector={"a": "b"}, nodeName="n")
    stored = trimmed(given)
    assert workload_of(stored) == ObjectKey("default", "wl")
    kept = {"schedulingGates": GATES, "nodeSelector": {"a": "b"}, "nodeName": "n"}
    assert stored["spec"] == kept
    assert stored["metadata"]["annotations"] == {f"{KUEUE}/workload": "wl"}
    assert stored["metadata"]["labels"][INDEX] == "3"


@pytest.fixture
async def placed(world: World) -> World:
    """An admitted Workload with 40 pods on two hosts, and a flavor with a topology."""
    spec = {"nodeLabels": {"a": "b"}, "topologyName": "racks"}
    await world.create(RESOURCE_FLAVORS, "default", spec)
    made = await world.workload("wl")
    pod_set = made["spec"]["podSets"][0] | {
        "count": 40,
        "topologyRequest": {"podIndexLabel": INDEX},
    }
    await world.patch(WORKLOADS, "wl", {"spec": {"podSets": [pod_set]}}, "default")
    body = {"status": status(("a", 20), ("b", 20))}
    await world.patch(WORKLOADS, "wl", body, "default", "status")
    return world


async def started(world: World, count: int) -> dict[str, str]:
    async def ungated() -> Any:
        pods = (await world.client.list(PODS, "default")).items
        hosts = {
            each["metadata"]["name"]: each["spec"]["nodeSelector"][HOST]
            for each in pods
            if each["spec"].get("schedulingGates") == GATES[:1]
        }
        assert len(hosts) == count, hosts
        return hosts

    return await world.until(ungated, f"{count} pods did not start")


async def create(world: World, *indices: int) -> None:
    await asyncio.gather(
        *(
            world.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod(index)})
            for index in indices
        )
    )


async def test_each_pod_is_written_once_and_a_recreated_one_again(
    placed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[str] = []
    patch = type(placed.client).patch

    async def counted(self: Any, resource: Any, key: ObjectKey, *args: Any, **more: Any) -> Any:
        if resource == PODS and args[1] is PatchType.MERGE:
            writes.append(key.name)
        return await patch(self, resource, key, *args, **more)

    monkeypatch.setattr(type(placed.client), "patch", counted)
    await create(placed, *range(10))
    async with placed.running():
        await create(placed, *range(10, 40))
        hosts = await started(placed, 40)
        assert hosts == {f"p{index}": "ab"[index // 20] for index in range(40)}
        assert sorted(writes) == sorted(hosts)
        await placed.client.delete(PODS, ObjectKey("default", "p7"), grace_period=0)
        await create(placed, 7)
        assert (await started(placed, 40))["p7"] == "a"
        assert len(writes) == 41


async def test_pods_wait_while_no_flavor_has_a_topology(world: World) -> None:
    async with world.running():
        await create(world, 0)
        made = await world.workload("wl")
        pod_set = made["spec"]["podSets"][0] | {"topologyRequest": {"podIndexLabel": INDEX}}
        await world.patch(WORKLOADS, "wl", {"spec": {"podSets": [pod_set]}}, "default")
        body = {"status": status(("a", 1))}
        await world.patch(WORKLOADS, "wl", body, "default", "status")
        spec = {"nodeLabels": {"a": "b"}, "topologyName": "racks"}
        await world.create(RESOURCE_FLAVORS, "default", spec)
        assert await started(world, 1) == {"p0": "a"}
