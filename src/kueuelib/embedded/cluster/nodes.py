"""The nodes of the simulated cluster and their statuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj, format_micro_time, format_time, labels_of
from kueuelib.embedded.cluster.contract import HOSTNAME, POOL, POOLS, SIMULATED
from kueuelib.embedded.release import VERSION

CAPACITY: Mapping[str, str] = {
    "cpu": "100k",
    "memory": "1Pi",
    "ephemeral-storage": "1Pi",
    "pods": "5k",
}
"""The listed capacity of a simulated node; other resources are unlimited.

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


def simulated_node(index: int, now: float) -> Obj:
    """One of the initial nodes; their pools alternate."""
    name = f"{PREFIX}{index}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                HOSTNAME: name,
                POOL: POOLS[index % len(POOLS)],
                SIMULATED: "true",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
            },
        },
        "status": node_status({}, index, now),
    }


def node_status(status: Mapping[str, Any], index: int, now: float) -> Obj:
    """The status of a healthy node; its capacity is kept."""
    capacity = dict(status.get("capacity") or CAPACITY)
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
    return {
        **status,
        "capacity": capacity,
        "allocatable": dict(status.get("allocatable") or capacity),
        "conditions": [*others, ready],
        "addresses": [{"type": "InternalIP", "address": f"10.0.{index // 250}.{index % 250 + 1}"}],
        "nodeInfo": dict(NODE_INFO),
    }


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


def is_simulated(node: Mapping[str, Any]) -> bool:
    """Whether the node has a simulated kubelet."""
    return labels_of(node).get(SIMULATED) == "true"
