"""The nodes of the simulated cluster and their statuses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from kueuelib.api.meta import (
    Obj,
    find_condition,
    format_micro_time,
    format_time,
    labels_of,
    parse_time,
    with_raw_condition,
)
from kueuelib.embedded.cluster.contract import BLOCK, HOSTNAME, POOL, POOLS, RACK, SIMULATED
from kueuelib.embedded.registry.builtin_kinds import VERSION
from kueuelib.errors import ConfigError

CAPACITY: Mapping[str, str] = {
    "cpu": "100k",
    "memory": "1Pi",
    "ephemeral-storage": "1Pi",
    "pods": "5k",
}
"""The listed capacity of a node without one of its own; other resources are unlimited.

The number of pods bounds the memory of the server.
"""

NODE_INFO: Mapping[str, str] = {
    **dict.fromkeys(("machineID", "systemUUID", "bootID"), "simulated"),
    **dict.fromkeys(("kernelVersion", "osImage", "containerRuntimeVersion"), "simulated"),
    **dict.fromkeys(("kubeletVersion", "kubeProxyVersion"), VERSION),
    "operatingSystem": "linux",
    "architecture": "amd64",
}
"""Every field that clients may rely on."""

PREFIX = "simulated-node-"
LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 3600
RENEW_SECONDS = 1200.0
GRACE_SECONDS = 50.0
"""The default of `--node-monitor-grace-period` of kube-controller-manager."""
_UNKNOWN = "NodeStatusUnknown"


def simulated_node(index: int) -> Obj:
    """One of the nodes that are there if none are declared; their pools alternate."""
    return _node(f"{PREFIX}{index}", {POOL: POOLS[index % len(POOLS)]}, {})


RACK_CAPACITY: Mapping[str, str] = {
    "cpu": "8",
    "memory": "32Gi",
    "ephemeral-storage": "1Ti",
    "nvidia.com/gpu": "8",
    "pods": "110",
}
"""The capacity of a node in a rack."""
_MOST_NODES = 5000


def nodes_in_racks(shape: str) -> list[Obj]:
    """Nodes with labels for the levels of a topology.

    Args:
        shape: `4x8` for 4 racks of 8 nodes each, `2x4x8` for 2 blocks of 4 racks of 8 nodes.

    Raises:
        ConfigError: it is neither, or has too many nodes.
    """
    sizes = [int(text) if text.isascii() and text.isdigit() else 0 for text in shape.split("x")]
    if len(sizes) not in (2, 3) or not all(sizes) or math.prod(sizes) > _MOST_NODES:
        raise ConfigError(
            f"racks {shape!r}",
            f"not RACKSxNODES with at most {_MOST_NODES} nodes",
            "write 4x8, or 2x4x8 for 2 blocks of 4 racks",
        )
    prefixes = ("block", "rack", "node")[-len(sizes) :]
    made = []
    for numbers in product(*map(range, sizes)):
        words = [f"{word}-{number}" for word, number in zip(prefixes, numbers, strict=True)]
        names = ["-".join(words[: end + 1]) for end in range(len(words))]
        labels = dict(zip((BLOCK, RACK)[-len(sizes) + 1 :], names, strict=False))
        made.append(_node(names[-1], labels, {"capacity": dict(RACK_CAPACITY)}))
    return made


def declared_nodes(objects: Iterable[Obj], source: str) -> list[Obj]:
    """Nodes of manifests, which get a simulated kubelet; only their labels, taints and capacity
    count.

    Args:
        objects: raw objects.
        source: where they come from, for messages.

    Raises:
        ConfigError: one of them is not a Node, or there are none.
    """
    made = []
    for obj in objects:
        if (obj.get("apiVersion"), obj.get("kind")) != ("v1", "Node"):
            problem = f"contains {obj.get('kind')}, but only v1 Nodes are allowed"
            raise ConfigError(source, problem, "give other objects to --load")
        status = obj.get("status") or {}
        kept = {name: status[name] for name in ("capacity", "allocatable") if status.get(name)}
        node = _node(obj["metadata"]["name"], labels_of(obj), kept)
        taints = (obj.get("spec") or {}).get("taints")
        made.append({**node, "spec": {"taints": taints}} if taints else node)
    if not made:
        raise ConfigError(source, "contains no Nodes", "write at least one, or leave out --nodes")
    return made


def _node(name: str, labels: Mapping[str, str], status: Obj) -> Obj:
    own = {HOSTNAME: name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    meta = {"name": name, "labels": {**own, **labels, SIMULATED: "true"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}


def is_endless(node: Mapping[str, Any]) -> bool:
    """Whether a node has any amount of resources that it does not list: a simulated one without a
    capacity of its own.
    """
    return is_simulated(node) and (node.get("status") or {}).get("capacity") == CAPACITY


def node_status(status: Mapping[str, Any], index: int, now: float) -> Obj:
    """The status of a healthy node; its capacity is kept."""
    capacity = dict(status.get("capacity") or CAPACITY)
    return {
        **ready_status(status, now),
        "capacity": capacity,
        "allocatable": dict(status.get("allocatable") or capacity),
        "addresses": [{"type": "InternalIP", "address": f"10.0.{index // 250}.{index % 250 + 1}"}],
        "nodeInfo": dict(NODE_INFO),
    }


def ready_status(status: Mapping[str, Any], now: float) -> Obj:
    """The status of a node with the condition Ready; everything else is kept."""
    at = format_time(now)
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "simulated",
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }
    others = [one for one in status.get("conditions") or () if one.get("type") != "Ready"]
    return {**status, "conditions": [*others, ready]}


def node_lease(node: Mapping[str, Any], now: float) -> Obj:
    """The Lease of a node as its sign of life; renewed rarely, because it is not watched."""
    name = node["metadata"]["name"]
    at = format_micro_time(now)
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": at},
    }


def silent_at(node: Mapping[str, Any], lease: Mapping[str, Any] | None) -> float | None:
    """When a node counts as unreachable if its Lease is not renewed, in seconds since the epoch.

    Args:
        node: raw.
        lease: its Lease, or None.

    Returns:
        None if it has none, or is unknown already.
    """
    ready = find_condition((node.get("status") or {}).get("conditions"), "Ready")
    renewed = ((lease or {}).get("spec") or {}).get("renewTime")
    if not renewed or ready.get("status", "Unknown") == "Unknown":
        return None
    return parse_time(renewed) + GRACE_SECONDS


def unknown_status(node: Mapping[str, Any], now: float) -> Obj:
    """The status of a node that has been silent for too long."""
    status = node["status"]
    conditions: Iterable[Mapping[str, Any]] = status["conditions"]
    for each in status["conditions"]:
        text = "Kubelet stopped posting node status."
        conditions = with_raw_condition(conditions, each["type"], None, _UNKNOWN, text, now=now)
    return {**status, "conditions": conditions}


def is_lost(node: Mapping[str, Any]) -> bool:
    """Whether a node has been silent for too long."""
    ready = find_condition((node.get("status") or {}).get("conditions"), "Ready")
    return ready.get("reason") == _UNKNOWN


def is_simulated(node: Mapping[str, Any]) -> bool:
    """Whether the node has a simulated kubelet."""
    return labels_of(node).get(SIMULATED) == "true"
