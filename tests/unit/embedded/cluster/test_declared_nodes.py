"""Nodes in racks and nodes of a file have the labels and the room that they list, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kueuelib.api.kinds import NODES
from kueuelib.embedded.cluster.nodes import declared_nodes, nodes_in_racks
from kueuelib.errors import ConfigError

if TYPE_CHECKING:
    from .conftest import Sandbox

BLOCK, RACK, HOST = "kueuelib.dev/block", "kueuelib.dev/rack", "kubernetes.io/hostname"


def labels(node: dict[str, Any]) -> list[str]:
    return [node["metadata"]["labels"].get(key, "") for key in (BLOCK, RACK, HOST)]


def test_nodes_are_in_racks_and_racks_in_blocks() -> None:
    flat = nodes_in_racks("2x3")
    assert len(flat) == 6
    assert labels(flat[4]) == ["", "rack-1", "rack-1-node-1"]
    assert flat[4]["metadata"]["name"] == "rack-1-node-1"
    deep = nodes_in_racks("2x2x2")
    assert labels(deep[5]) == ["block-1", "block-1-rack-0", "block-1-rack-0-node-1"]
    assert len({node["metadata"]["name"] for node in deep}) == 8


@pytest.mark.parametrize("shape", ["4", "4x", "0x8", "-1x8", "ax2", "2x2x2x2", "100x100"])
def test_other_shapes_are_refused(shape: str) -> None:
    with pytest.raises(ConfigError, match="write 4x8"):
        nodes_in_racks(shape)


GIVEN = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "big", "uid": "u", "labels": {RACK: "r", HOST: "big.example.com"}},
    "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "podCIDR": "10.0.0.0/24"},
    "status": {"capacity": {"cpu": "2", "pods": "3"}, "conditions": [{"type": "Ready"}]},
}


def test_of_a_given_node_its_labels_taints_and_capacity_count() -> None:
    (node,) = declared_nodes([GIVEN], "nodes.yaml")
    assert labels(node) == ["", "r", "big.example.com"]
    assert node["spec"] == {"taints": [{"key": "a", "effect": "NoSchedule"}]}
    assert node["status"] == {"capacity": {"cpu": "2", "pods": "3"}}
    assert "uid" not in node["metadata"]


@pytest.mark.parametrize("objects", [[], [{**GIVEN, "kind": "Pod"}]])
def test_a_file_holds_nodes_and_nothing_else(objects: list[Any]) -> None:
    with pytest.raises(ConfigError, match=r"nodes\.yaml"):
        declared_nodes(objects, "nodes.yaml")


async def test_pods_get_no_more_than_such_nodes_have(sandbox: Sandbox) -> None:
    untainted = {**GIVEN, "spec": {}}
    nodes = [*nodes_in_racks("1x1"), *declared_nodes([untainted], "nodes.yaml")]
    await sandbox.cluster.close()
    another = sandbox.restarted(nodes=nodes)
    async with another.cluster:
        await another.settle()
        here = await another.get(NODES, "big")
        assert here["status"]["allocatable"] == {"cpu": "2", "pods": "3"}
        assert here["status"]["conditions"][-1]["status"] == "True"
        select = {"nodeSelector": {RACK: "r"}}
        await another.job(parallelism=3, completions=3, pod=select)
        placed = [pod["spec"].get("nodeName") for pod in await another.pods()]
        assert sorted(filter(None, placed)) == ["big", "big"]
        await another.job("gpus", pod={**select, "containers": [gpu_container()]})
        pods = [pod for pod in await another.pods() if pod["metadata"]["name"].startswith("gpus")]
        (condition,) = pods[0]["status"]["conditions"]
        assert "Insufficient nvidia.com/gpu" in condition["message"]
        rack = {"nodeSelector": {RACK: "rack-0"}, "containers": [gpu_container()]}
        await another.job("racked", pod=rack)
        pods = [pod for pod in await another.pods() if pod["metadata"]["name"].startswith("racked")]
        assert pods[0]["spec"]["nodeName"] == "rack-0-node-0"


def gpu_container() -> dict[str, Any]:
    limits = {"nvidia.com/gpu": "8"}
    return {"name": "c", "image": "i", "resources": {"limits": limits}}
