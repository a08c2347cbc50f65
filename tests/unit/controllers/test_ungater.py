"""Pods of placed Workloads start in their domains, each with one write."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kueuelib.api.kinds import PODS, RESOURCE_FLAVORS, WORKLOADS
from kueuelib.api.meta import ObjectKey
from kueuelib.controllers.ungater import (
    STALE_PAUSE,
    UngaterReconciler,
    is_placed,
    trimmed,
    ungating,
    workload_of,
)
from kueuelib.errors import Conflict, NotFound
from kueuelib.runtime.controller import DONE, Result
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.telemetry import Telemetry

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
    ended["metadata"] = {**ended["metadata"], "name": "ended"}
    later = {**pod(0), "status": {}}
    wl = workload(("a", 1), ("b", 1))
    assert selectors(wl, ended, later, pod(1)) == {"p0": "a", "p1": "b"}


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


KEY = ObjectKey("default", "wl")


class Shell:
    """An ungater that knows a Workload with its pods, and what becomes of its writes."""

    def __init__(self, wl: Obj, *pods: Obj) -> None:
        self.known = {KEY: wl}
        self.bodies: dict[str, Obj] = {}
        self.learned: list[Any] = []
        self.errors: list[Exception] = []
        self.evicts = False
        store = SimpleNamespace(get=self.known.get, by_index=lambda *_: pods)
        client: Any = SimpleNamespace(patch=self.patch)
        informer: Any = SimpleNamespace(store=store)
        told: Any = SimpleNamespace(learn=self.learned.append, learn_gone=self.learned.append)
        self.reconciler = UngaterReconciler(client, informer, informer, told, Telemetry())

    async def patch(self, resource: Any, key: ObjectKey, body: Obj, kind: PatchType) -> str:
        assert (resource, kind) == (PODS, PatchType.MERGE)
        self.bodies[key.name] = body
        if self.evicts:
            self.known.clear()
        if self.errors:
            raise self.errors.pop()
        return key.name


def stored(index: int) -> Obj:
    made = pod(index)
    return {**made, "metadata": {**made["metadata"], "uid": f"u{index}"}}


async def test_a_write_names_the_pod_that_was_seen_and_keeps_the_gates_of_others() -> None:
    shell = Shell(workload(("a", 1)), stored(0))
    assert await shell.reconciler.reconcile(KEY) == DONE
    spec = {"schedulingGates": GATES[:1], "nodeSelector": {HOST: "a"}}
    assert shell.bodies == {"p0": {"metadata": {"uid": "u0"}, "spec": spec}}
    assert shell.learned == ["p0"]


async def test_no_pod_starts_once_its_workload_was_seen_to_be_evicted() -> None:
    shell = Shell(workload(("a", 9)), *map(stored, range(9)))
    shell.evicts = True
    await shell.reconciler.reconcile(KEY)
    assert [*shell.bodies] == ["p0"]


async def test_a_pod_that_was_changed_is_looked_at_again_and_one_that_is_gone_is_not() -> None:
    shell = Shell(workload(("a", 1)), stored(0))
    shell.errors = [NotFound("gone"), Conflict("changed")]
    assert await shell.reconciler.reconcile(KEY) == Result(requeue_after=STALE_PAUSE)
    assert shell.learned == []
    assert await shell.reconciler.reconcile(KEY) == DONE
    assert shell.learned == [stored(0)]


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
