"""The scheduler learns nodes and the pods on them, and only what counts of both."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from kueuelib.api.kinds import CLUSTER_QUEUES, NODES, PODS, RESOURCE_FLAVORS, TOPOLOGIES, WORKLOADS
from kueuelib.api.meta import ObjectKey, find_condition
from kueuelib.api.names import IN_USE_FINALIZER
from kueuelib.controllers.nodes import request_of, trimmed_node, trimmed_pod
from kueuelib.embedded.cluster.nodes import node_status, nodes_in_racks
from kueuelib.errors import Forbidden
from kueuelib.runtime.client import Client

if TYPE_CHECKING:
    from .conftest import World

Obj = dict[str, Any]
HOST, RACK, KUEUE = "kubernetes.io/hostname", "kueuelib.dev/rack", "kueue.x-k8s.io"
BUSY = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"a": "b"}},
    "spec": {
        "nodeName": "rack-0-node-0",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "7500m"}}}],
        "initContainers": [
            {"name": "i", "image": "i", "resources": {"requests": {"memory": "1Gi"}}}
        ],
    },
    "status": {"phase": "Running"},
}


def test_of_a_pod_its_node_and_what_it_takes_are_stored() -> None:
    stored = trimmed_pod(copy.deepcopy(BUSY))
    request = {"cpu": 7500, "memory": 1 << 30, "pods": 1}
    assert stored["spec"] == {"nodeName": "rack-0-node-0", "request": request}
    assert stored["metadata"] == {"name": "p", "namespace": "default", "uid": "u"}
    again = trimmed_pod(copy.deepcopy(BUSY))
    assert again["spec"]["request"] is stored["spec"]["request"]


@pytest.mark.parametrize(
    "name",
    [
        "podset-required-topology",
        "podset-preferred-topology",
        "podset-unconstrained-topology",
        "podset-slice-required-topology",
        "podset-slice-required-topology-constraints",
    ],
)
def test_a_pod_whose_workload_counts_takes_nothing_itself(name: str) -> None:
    pod = copy.deepcopy(BUSY)
    pod["metadata"]["annotations"] = {f"{KUEUE}/{name}": "x"}
    assert trimmed_pod(pod)["spec"] == {"nodeName": "rack-0-node-0"}


def test_a_pod_that_cannot_be_read_takes_its_slot() -> None:
    broken = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "many"}}}]}
    assert request_of(broken) == {"pods": 1}


def test_a_heartbeat_of_a_node_changes_nothing() -> None:
    (node,) = nodes_in_racks("1x1")
    first, second = (
        trimmed_node({**node, "status": node_status(node["status"], 0, at)}) for at in (1.0, 2.0)
    )
    assert first == second
    assert first["status"]["conditions"] == [{"type": "Ready", "status": "True"}]
    assert first["metadata"]["labels"][RACK] == "rack-0"


LEVELS = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]


async def cluster(world: World, racks: str = "2x2") -> None:
    """Nodes of 8 CPUs in racks, a Topology with a flavor, and a queue."""
    for number, node in enumerate(nodes_in_racks(racks)):
        status = node_status(node["status"], number, world.server.service.now())
        await world.client.create(NODES, {**node, "status": status})
        await world.patch(NODES, node["metadata"]["name"], {"spec": {"taints": None}})
    await world.create(TOPOLOGIES, "racks", {"levels": LEVELS})
    spec = {"nodeLabels": {"kueuelib.dev/simulated": "true"}, "topologyName": "racks"}
    await world.create(RESOURCE_FLAVORS, "default", spec)
    await world.cluster_queue(cpu="100")
    await world.local_queue()


async def job(world: World, name: str, count: int, **asked: Any) -> None:
    container = {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "4"}}}
    pod_set = {
        "name": "main",
        "count": count,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        "topologyRequest": asked,
    }
    spec = {"queueName": "main", "podSets": [pod_set], "active": True}
    await world.create(WORKLOADS, name, spec, "default")


async def hosts_of(world: World, name: str) -> Any:
    await world.is_(name, "Admitted")
    wl = await world.get(WORKLOADS, name, "default")
    (assignment,) = wl["status"]["admission"]["podSetAssignments"]
    return assignment["topologyAssignment"]["slices"]


async def test_workloads_get_places_where_others_leave_room(world: World) -> None:
    await cluster(world)
    async with world.running():
        await world.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **BUSY})
        await job(world, "first", 3, required=RACK)
        (first,) = await hosts_of(world, "first")
        assert first["domainCount"] == 2
        values = first["valuesPerLevel"][0]["individual"]
        assert values["prefix"].startswith("rack-1-node-")
        await job(world, "second", 3, required=RACK)
        waits = await world.is_("second", "QuotaReserved", "False")
        assert 'topology "racks" allows to fit only 2 out of 3 pod(s)' in waits["message"]
        await world.client.delete(PODS, ObjectKey("default", "p"), grace_period=0)
        (second,) = await hosts_of(world, "second")
        assert second["valuesPerLevel"][0]["individual"]["prefix"].startswith("rack-0-node-")


async def test_a_node_that_comes_back_wakes_who_waits(world: World) -> None:
    await cluster(world, "1x2")
    async with world.running():
        await world.patch(NODES, "rack-0-node-1", {"spec": {"unschedulable": True}})
        await job(world, "wide", 4, required=RACK)
        await world.is_("wide", "QuotaReserved", "False")
        await world.patch(NODES, "rack-0-node-1", {"spec": {"unschedulable": None}})
        await hosts_of(world, "wide")


@pytest.mark.parametrize("plural", ["nodes", "pods"])
async def test_a_queue_says_that_its_nodes_may_not_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch, plural: str
) -> None:
    refused, listed = True, Client.list

    async def list_(self: Any, resource: Any, *args: Any, **more: Any) -> Any:
        if refused and resource.plural == plural:
            raise Forbidden(f"{plural} is forbidden")
        return await listed(self, resource, *args, **more)

    await cluster(world)
    monkeypatch.setattr(Client, "list", list_)
    async with world.running():

        async def says(status: str) -> bool:
            queue = await world.get(CLUSTER_QUEUES, "cq")
            active = find_condition((queue.get("status") or {}).get("conditions"), "Active")
            if active.get("status") == "False":
                assert active["reason"] == "NodesUnreadable"
                assert f"which the manager may not read: {plural} is forbidden" in active["message"]
            return active.get("status") == status

        await world.until(lambda: says("False"))
        await job(world, "waits", 3, required=RACK)
        refused = False
        await world.until(lambda: says("True"))
        await hosts_of(world, "waits")


async def test_a_topology_stays_while_a_flavor_names_it(world: World) -> None:
    await cluster(world, "1x1")
    async with world.running():

        async def kept() -> bool:
            obj = await world.get(TOPOLOGIES, "racks")
            return IN_USE_FINALIZER in obj["metadata"].get("finalizers", ())

        await world.until(kept)
        await world.delete(TOPOLOGIES, "racks")
        await world.delete(CLUSTER_QUEUES, "cq")
        await world.delete(RESOURCE_FLAVORS, "default")
        await world.until(lambda: world.gone(TOPOLOGIES, "racks"))


async def test_nodes_are_not_read_without_a_flavor_that_has_a_topology(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    listed = Client.list

    async def noted(self: Any, resource: Any, *args: Any, **more: Any) -> Any:
        asked.append(resource.plural)
        return await listed(self, resource, *args, **more)

    monkeypatch.setattr(Client, "list", noted)
    await world.queues()
    async with world.running():
        await world.workload("wl")
        await world.is_("wl", "Admitted")
        assert not {"nodes", "pods"} & {*asked}
