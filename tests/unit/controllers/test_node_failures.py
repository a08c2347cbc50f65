"""Workloads name the nodes that they lost, and pods that wait for such a node end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kueuelib.api.kinds import EVENTS, NODES, PODS, WORKLOADS
from kueuelib.api.meta import ObjectKey, find_condition
from kueuelib.errors import ApiError, Forbidden, ServerError
from kueuelib.runtime.client import Client
from kueuelib.runtime.queries import PatchType

from .test_nodes import RACK, cluster, hosts_of, job

if TYPE_CHECKING:
    from .conftest import World

Obj = dict[str, Any]
HOST, KUEUE = "kubernetes.io/hostname", "kueue.x-k8s.io"
NODE = "rack-0-node-0"


async def pod(world: World, name: str, host: str, *, bound: bool = True) -> None:
    meta = {
        "name": name,
        "namespace": "default",
        "labels": {f"{KUEUE}/podset": "main"},
        "annotations": {f"{KUEUE}/workload": "wl", f"{KUEUE}/podset-required-topology": RACK},
    }
    spec: Obj = {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {HOST: host}}
    if bound:
        spec["nodeName"] = host
    await world.client.create(
        PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    )


async def ready(world: World, status: str) -> None:
    node = await world.get(NODES, NODE)
    conditions = [{**one, "status": status} for one in node["status"]["conditions"]]
    await world.patch(NODES, NODE, {"status": {"conditions": conditions}}, subresource="status")


async def placed(world: World, count: int = 2) -> None:
    """A Workload with all its pods on one of two nodes."""
    await job(world, "wl", count, required=RACK)
    (one,) = await hosts_of(world, "wl")
    assert one["valuesPerLevel"] == [{"universal": NODE}]


@pytest.fixture
def marks(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The unhealthy nodes of each write of a Workload's status that names any."""
    found: list[list[str]] = []
    patch = Client.patch

    async def noted(
        self: Any, resource: Any, key: ObjectKey, body: Any, *more: Any, **kw: Any
    ) -> Any:
        answer = await patch(self, resource, key, body, *more, **kw)
        named = (body.get("status") or {}).get("unhealthyNodes") if resource == WORKLOADS else None
        if named:
            found.append([one["name"] for one in named])
        return answer

    monkeypatch.setattr(Client, "patch", noted)
    return found


async def test_a_node_that_is_gone_is_named_though_a_pod_seems_to_run_there(
    world: World, marks: list[list[str]]
) -> None:
    await cluster(world, "1x2")
    async with world.running():
        await placed(world)
        await pod(world, "p", NODE)
        await world.delete(NODES, NODE)
        await world.until(lambda: marks == [[NODE]])


async def test_a_node_that_is_not_ready_is_named_once_its_pods_leave(
    world: World, marks: list[list[str]]
) -> None:
    await cluster(world, "1x2")
    async with world.running():
        await placed(world)
        await pod(world, "runs", NODE)
        await ready(world, "Unknown")
        await pod(world, "waits", NODE, bound=False)

        async def ended() -> bool:
            waits = await world.get(PODS, "waits", "default")
            told = find_condition(waits["status"].get("conditions"), "TerminatedByKueue")
            assert told["reason"] == "UnschedulableOnAssignedNode"
            assert (told["status"], waits["status"]["phase"]) == ("True", "Failed")
            events = (await world.client.list(EVENTS, "default")).items
            return any(one["reason"] == "PodTerminatedByKueue" for one in events)

        await world.until(ended)
        assert marks == []
        await world.client.delete(PODS, ObjectKey("default", "runs"), grace_period=0)
        await world.until(lambda: marks == [[NODE]])


async def test_nodes_that_may_not_be_read_are_not_taken_for_gone(
    world: World, marks: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster(world, "1x2")
    async with world.running():
        await placed(world)
    listed = Client.list

    async def forbidden(self: Any, resource: Any, *args: Any, **more: Any) -> Any:
        if resource == NODES:
            raise Forbidden("nodes is forbidden")
        return await listed(self, resource, *args, **more)

    monkeypatch.setattr(Client, "list", forbidden)
    async with world.running():
        await world.workload("other")
        await world.is_("other", "QuotaReserved", "False")
        assert marks == []


@pytest.mark.parametrize("error", [ServerError("try again"), Forbidden("not now")])
async def test_a_refused_write_is_repeated(
    world: World, marks: list[list[str]], monkeypatch: pytest.MonkeyPatch, error: ApiError
) -> None:
    await cluster(world, "1x2")
    patch, failures = Client.patch, [error, error]

    async def failing(self: Any, resource: Any, key: Any, body: Any, *more: Any, **kw: Any) -> Any:
        status = (body.get("status") or {}) if more and more[0] is PatchType.APPLY else {}
        if resource == WORKLOADS and status.get("unhealthyNodes") and failures:
            raise failures.pop()
        return await patch(self, resource, key, body, *more, **kw)

    async with world.running():
        await placed(world)
        monkeypatch.setattr(Client, "patch", failing)
        await world.delete(NODES, NODE)
        await world.until(lambda: marks == [[NODE]])


async def test_what_was_missed_while_no_manager_ran_is_made_up_for(
    world: World, marks: list[list[str]]
) -> None:
    await cluster(world, "1x2")
    async with world.running():
        await placed(world)
    await world.patch(NODES, NODE, {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}})
    async with world.running():
        await world.until(lambda: marks == [[NODE]])
