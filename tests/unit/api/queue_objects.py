"""Valid objects of every queueing kind with most of their fields, in `v1beta2`."""

from __future__ import annotations

import copy
from typing import Any

TIME = "2024-01-01T00:00:00Z"


def condition(type: str, status: str = "True") -> dict[str, Any]:
    raw = {"type": type, "status": status, "reason": "Because", "message": ""}
    return {**raw, "lastTransitionTime": TIME}


def group(*resources: str, flavors: tuple[str, ...] = ("default",), **more: Any) -> dict[str, Any]:
    rows = [{"name": name, "nominalQuota": "4", **more} for name in resources]
    offered = [{"name": name, "resources": copy.deepcopy(rows)} for name in flavors]
    return {"coveredResources": list(resources), "flavors": offered}


def pod_set(name: str, count: int = 2, **more: Any) -> dict[str, Any]:
    requests = {"requests": {"cpu": "1"}}
    containers = [{"name": "c", "image": "i", "resources": requests}]
    first = copy.deepcopy(containers)
    template = {
        "spec": {"restartPolicy": "Never", "initContainers": first, "containers": containers}
    }
    return {"name": name, "count": count, "template": template, **more}


PLACED = {
    "levels": ["example.com/rack", "kubernetes.io/hostname"],
    "slices": [
        {
            "domainCount": 2,
            "valuesPerLevel": [
                {"universal": "r1"},
                {"individual": {"prefix": "node-", "roots": ["1", "2"]}},
            ],
            "podCounts": {"universal": 1},
        },
        {
            "domainCount": 1,
            "valuesPerLevel": [{"universal": "r2"}, {"universal": "node-3"}],
            "podCounts": {"individual": [1]},
        },
    ],
}
ASKED = {
    "required": "example.com/rack",
    "unconstrained": False,
    "podIndexLabel": "example.com/index",
    "subGroupIndexLabel": "example.com/group",
    "subGroupCount": 2,
    "podSetGroupName": "both",
    "podSetSliceRequiredTopology": "example.com/rack",
    "podSetSliceSize": 1,
    "podsetSliceRequiredTopologyConstraints": [{"topology": "example.com/rack", "size": 1}],
}
TOLERATION = {"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoExecute"}

_OBJECTS: dict[str, dict[str, Any]] = {
    "ClusterQueue": {
        "spec": {
            "cohortName": "all",
            "resourceGroups": [
                group("cpu", "memory", flavors=("on-demand", "spot"), borrowingLimit="2"),
                group("example.com/gpu", flavors=("gpu",), lendingLimit="1"),
            ],
            "namespaceSelector": {
                "matchLabels": {"team": "a"},
                "matchExpressions": [{"key": "x/y", "operator": "In", "values": ["b"]}],
            },
            "flavorFungibility": {
                "whenCanBorrow": "TryNextFlavor",
                "whenCanPreempt": "TryNextFlavor",
                "preference": "PreemptionOverBorrowing",
            },
            "preemption": {
                "reclaimWithinCohort": "Any",
                "withinClusterQueue": "LowerPriority",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 5},
            },
            "admissionChecksStrategy": {
                "admissionChecks": [{"name": "budget", "onFlavors": ["spot"]}]
            },
            "stopPolicy": "None",
            "fairSharing": {"weight": "2"},
            "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
        }
    },
    "Cohort": {
        "spec": {
            "parentName": "top",
            "resourceGroups": [group("cpu", flavors=("spot",), lendingLimit="9")],
            "fairSharing": {"weight": "500m"},
        }
    },
    "LocalQueue": {
        "spec": {"clusterQueue": "cq", "stopPolicy": "None", "fairSharing": {"weight": 1}}
    },
    "ResourceFlavor": {
        "spec": {
            "nodeLabels": {"example.com/pool": "spot"},
            "nodeTaints": [
                {"key": "spot", "value": "yes", "effect": "NoSchedule"},
                {"key": "spot", "value": "yes", "effect": "NoExecute"},
            ],
            "tolerations": [TOLERATION, {"operator": "Exists"}],
            "topologyName": "racks",
        }
    },
    "Topology": {
        "spec": {
            "levels": [{"nodeLabel": "example.com/rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
        }
    },
    "Workload": {
        "spec": {
            "podSets": [pod_set("main"), pod_set("side", minCount=1, topologyRequest=ASKED)],
            "queueName": "main",
            "priority": 3,
            "priorityClassRef": {
                "group": "kueue.x-k8s.io",
                "kind": "WorkloadPriorityClass",
                "name": "high",
            },
            "active": True,
            "maximumExecutionTimeSeconds": 60,
        },
        "status": {
            "conditions": [condition("QuotaReserved"), condition("Admitted", "False")],
            "admission": {
                "clusterQueue": "cq",
                "podSetAssignments": [
                    {
                        "name": name,
                        "count": 2,
                        "flavors": {"cpu": "spot"},
                        "resourceUsage": {"cpu": "2"},
                        "topologyAssignment": copy.deepcopy(PLACED),
                        "delayedTopologyRequest": "Ready",
                    }
                    for name in ("main", "side")
                ],
            },
            "unhealthyNodes": [{"name": "node-1"}],
            "requeueState": {"count": 1, "requeueAt": TIME},
            "reclaimablePods": [{"name": "main", "count": 1}],
            "admissionChecks": [
                {
                    "name": "budget",
                    "state": "Pending",
                    "lastTransitionTime": TIME,
                    "message": "",
                    "podSetUpdates": [
                        {"name": "main", "labels": {"a": "b"}, "tolerations": [TOLERATION]},
                        {"name": "side", "nodeSelector": {"a": "b"}},
                    ],
                }
            ],
        },
    },
    "AdmissionCheck": {
        "spec": {
            "controllerName": "example.com/budget",
            "retryDelayMinutes": 5,
            "parameters": {"apiGroup": "example.com", "kind": "Budget", "name": "main"},
            "preemptionPolicy": "Anytime",
        },
        "status": {"conditions": [condition("Active")]},
    },
    "WorkloadPriorityClass": {"value": 7, "description": "high"},
    "ProvisioningRequestConfig": {
        "spec": {
            "provisioningClassName": "check-capacity.example.com",
            "parameters": {"zone": "a"},
            "managedResources": ["example.com/gpu"],
            "retryStrategy": {"backoffLimitCount": 1},
            "podSetUpdates": {
                "nodeSelector": [{"key": "a/b", "valueFromProvisioningClassDetail": "node"}]
            },
            "podSetMergePolicy": "IdenticalPodTemplates",
        }
    },
}
KINDS = tuple(_OBJECTS)


def queue_object(kind: str, name: str = "a") -> dict[str, Any]:
    """A fresh copy of the valid object of a kind."""
    metadata = {"name": name}
    if kind in ("LocalQueue", "Workload"):
        metadata["namespace"] = "default"
    head = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata}
    return {**head, **copy.deepcopy(_OBJECTS[kind])}
