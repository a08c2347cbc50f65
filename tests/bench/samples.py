"""Objects as a real API server sends them: with statuses, defaults and managed fields."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

Obj = dict[str, Any]
NOW = "2030-01-01T00:00:00Z"
_NAMES = uuid.UUID(int=7)


def _metadata(name: str, labels: Obj, fields: Obj, **more: Any) -> Obj:
    managed = [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
            **({"subresource": "status"} if manager == "kubelet" else {}),
        }
        for manager in ("kube-controller-manager", "kubelet")
    ]
    return {
        "name": name,
        "namespace": f"team-{len(name) % 5}",
        "uid": str(uuid.uuid5(_NAMES, name)),
        "resourceVersion": "1",
        "creationTimestamp": NOW,
        "labels": labels,
        "managedFields": managed,
        **more,
    }


def _template(name: str) -> Obj:
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccountName": "default",
        "containers": [
            {
                "name": "work",
                "image": "registry.example/team/work:2030.1",
                "imagePullPolicy": "IfNotPresent",
                "command": ["python", "-m", "work", "--shard", name],
                "env": [{"name": f"OPTION_{each}", "value": f"value-{each}"} for each in range(6)],
                "resources": {
                    "requests": {"cpu": "500m", "memory": "1Gi"},
                    "limits": {"cpu": "1", "memory": "2Gi"},
                },
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            }
        ],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{each}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for each in ("not-ready", "unreachable")
        ],
    }


def _condition(type_: str, reason: str, message: str = "") -> Obj:
    return {
        "type": type_,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": NOW,
        "observedGeneration": 1,
    }


def _fields(spec: Obj) -> Obj:
    """Ownership of every field, in the form of `fieldsV1`."""
    return {
        f"f:{name}": _fields(value) if isinstance(value, dict) else {}
        for name, value in spec.items()
    }


def pod(index: int) -> Obj:
    """A running Pod of a Job."""
    name = f"job-{index // 4:05d}-{index:06d}"
    spec = {**_template(name), "nodeName": f"node-{index % 50}", "enableServiceLinks": True}
    labels = {
        "batch.kubernetes.io/job-name": f"job-{index // 4:05d}",
        "batch.kubernetes.io/controller-uid": str(uuid.uuid5(_NAMES, f"job-{index // 4}")),
        "kueue.x-k8s.io/managed": "true",
    }
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    status = {
        "phase": "Running",
        "conditions": [_condition(type_, "") for type_ in types],
        "hostIP": "10.0.0.1",
        "podIP": f"10.1.{index // 250 % 250}.{index % 250}",
        "startTime": NOW,
        "qosClass": "Burstable",
        "containerStatuses": [
            {
                "name": "work",
                "image": "registry.example/team/work:2030.1",
                "imageID": "registry.example/team/work@sha256:" + "0" * 64,
                "containerID": "containerd://" + f"{index:064d}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": NOW}},
                "lastState": {},
            }
        ],
    }
    meta = _metadata(name, labels, _fields({"spec": spec, "status": status}))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def workload(index: int) -> Obj:
    """An admitted Workload of a Job."""
    name = f"job-{index:05d}"
    meta = _metadata(
        f"{name}-4f1c2",
        {"kueue.x-k8s.io/job-uid": str(uuid.uuid5(_NAMES, name))},
        _fields({"spec": {"podSets": {}, "queueName": ""}, "status": {"admission": {}}}),
        generation=1,
        finalizers=["kueue.x-k8s.io/resource-in-use"],
        ownerReferences=[
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": name,
                "uid": str(uuid.uuid5(_NAMES, name)),
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    )
    spec = {
        "active": True,
        "queueName": "team",
        "priority": 0,
        "podSets": [{"name": "main", "count": 4, "template": {"spec": _template(name)}}],
    }
    assignment = {
        "name": "main",
        "count": 4,
        "flavors": {"cpu": "on-demand", "memory": "on-demand"},
        "resourceUsage": {"cpu": "2", "memory": "4Gi"},
    }
    status = {
        "admission": {"clusterQueue": "team", "podSetAssignments": [assignment]},
        "conditions": [
            _condition("QuotaReserved", "QuotaReserved", "Quota reserved in ClusterQueue team"),
            _condition("Admitted", "Admitted", "The workload is admitted"),
        ],
    }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": meta,
        "spec": spec,
        "status": status,
    }


def job(index: int) -> Obj:
    """A running Job."""
    name = f"job-{index:05d}"
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    uid = str(uuid.uuid5(_NAMES, name))
    own = {"controller-uid": uid, "job-name": name}
    own |= {f"batch.kubernetes.io/{key}": value for key, value in own.items()}
    spec = {
        "parallelism": 4,
        "completions": 4,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}},
        "template": {
            "metadata": {"labels": own},
            "spec": _template(name),
        },
    }
    status = {"active": 4, "ready": 4, "startTime": NOW, "uncountedTerminatedPods": {}}
    meta = _metadata(name, labels, _fields({"spec": spec, "status": status}), generation=1)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": spec,
        "status": status,
    }


MAKERS: dict[str, Callable[[int], Obj]] = {"pods": pod, "workloads": workload, "jobs": job}
