"""The nodes of the simulated cluster: what they are and say of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj, format_micro_time, format_time, is_true, labels_of
from kueuelib.embedded.cluster.contract import HOSTNAME, POOL, POOLS, SIMULATED
from kueuelib.embedded.release import VERSION

CAPACITY: Mapping[str, str] = {
    "cpu": "100k",
    "memory": "1Pi",
    "ephemeral-storage": "1Pi",
    "pods": "5k",
}
"""What a simulated node lists; whatever else is asked of it, it has without end.

The number of pods is what keeps the memory of the server bounded.
"""

NODE_INFO: Mapping[str, str] = {
    **dict.fromkeys(("machineID", "systemUUID", "bootID"), "simulated"),
    **dict.fromkeys(("kernelVersion", "osImage", "containerRuntimeVersion"), "simulated"),
    **dict.fromkeys(("kubeletVersion", "kubeProxyVersion"), VERSION),
    "operatingSystem": "linux",
    "architecture": "amd64",
}
"""Every field that clients may take for granted."""

PREFIX = "simulated-node-"
LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 3600
RENEW_SECONDS = 1200.0


def simulated_node(index: int, now: float) -> Obj:
    """One of the nodes that exist from the start; their pools alternate."""
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
    """The status of a node that is well; what it says of its size is kept."""
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
    """The Lease by which a node says that it is alive; renewed rarely, as nobody watches it."""
    name = node["metadata"]["name"]
    at = format_micro_time(now)
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": at,
        },
    }


def is_simulated(node: Mapping[str, Any]) -> bool:
    """Whether the node has a simulated kubelet."""
    return labels_of(node).get(SIMULATED) == "true"


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether the node says that it is well."""
    return is_true(node, "Ready")
