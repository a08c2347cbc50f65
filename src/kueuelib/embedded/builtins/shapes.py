"""The types of the fields that rules look at: no rule ever meets a text where a map belongs.

A shape is a type (`str`, `int`, `bool`), `AMOUNT` (a quantity), `TIME`, `[shape]` for a list,
`{str: shape}` for a map, or `{"field": shape, ...}` for an object, whose other fields are not
looked at. Null is allowed everywhere, as in Kubernetes, where it means absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import parse_time
from kueuelib.api.quantity import Quantity
from kueuelib.errors import BadRequest, InvalidQuantity

AMOUNT = object()
"""A quantity: a text or a number."""
TIME = object()
"""An RFC 3339 text."""

Shape = Any

TEXTS: Shape = {str: str}
AMOUNTS: Shape = {str: AMOUNT}

METADATA: Shape = {
    "name": str,
    "generateName": str,
    "namespace": str,
    "uid": str,
    "labels": TEXTS,
    "annotations": TEXTS,
    "finalizers": [str],
    "ownerReferences": [
        {"apiVersion": str, "kind": str, "name": str, "uid": str, "controller": bool}
    ],
}
REQUIREMENT: Shape = {"key": str, "operator": str, "values": [str]}
SELECTOR: Shape = {"matchLabels": TEXTS, "matchExpressions": [REQUIREMENT]}
NODE_TERM: Shape = {"matchExpressions": [REQUIREMENT], "matchFields": [REQUIREMENT]}
RESOURCES: Shape = {"requests": AMOUNTS, "limits": AMOUNTS}
HANDLER: Shape = {"httpGet": {"path": str, "scheme": str}}
PROBE: Shape = {**HANDLER, "timeoutSeconds": int, "periodSeconds": int, "grpc": {"service": str}}
FIELD_ITEMS: Shape = [{"fieldRef": {"apiVersion": str}}]
VOLUME: Shape = {
    "name": str,
    "secret": {"defaultMode": int},
    "configMap": {"defaultMode": int},
    "downwardAPI": {"defaultMode": int, "items": FIELD_ITEMS},
    "projected": {
        "defaultMode": int,
        "sources": [
            {"serviceAccountToken": {"path": str}, "downwardAPI": {"items": FIELD_ITEMS}},
        ],
    },
    "hostPath": {"path": str, "type": str},
}
CONTAINER: Shape = {
    "name": str,
    "image": str,
    "imagePullPolicy": str,
    "restartPolicy": str,
    "command": [str],
    "args": [str],
    "env": [{"name": str, "value": str, "valueFrom": {"fieldRef": {"apiVersion": str}}}],
    "ports": [{"name": str, "containerPort": int, "hostPort": int, "protocol": str}],
    "volumeMounts": [{"name": str, "mountPath": str}],
    "resources": RESOURCES,
    "livenessProbe": PROBE,
    "readinessProbe": PROBE,
    "startupProbe": PROBE,
    "lifecycle": {"postStart": HANDLER, "preStop": HANDLER},
}
TOLERATION: Shape = {
    "key": str,
    "operator": str,
    "value": str,
    "effect": str,
    "tolerationSeconds": int,
}
POD_SPEC: Shape = {
    "containers": [CONTAINER],
    "initContainers": [CONTAINER],
    "ephemeralContainers": [CONTAINER],
    "volumes": [VOLUME],
    "restartPolicy": str,
    "terminationGracePeriodSeconds": int,
    "activeDeadlineSeconds": int,
    "dnsPolicy": str,
    "nodeSelector": TEXTS,
    "serviceAccountName": str,
    "serviceAccount": str,
    "nodeName": str,
    "hostNetwork": bool,
    "hostname": str,
    "subdomain": str,
    "schedulerName": str,
    "priorityClassName": str,
    "priority": int,
    "preemptionPolicy": str,
    "runtimeClassName": str,
    "overhead": AMOUNTS,
    "tolerations": [TOLERATION],
    "schedulingGates": [{"name": str}],
    "topologySpreadConstraints": [{"topologyKey": str}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [NODE_TERM]},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": int, "preference": NODE_TERM}
            ],
        }
    },
}
CONDITIONS: Shape = [{"type": str, "status": str, "reason": str, "message": str}]
POD_TEMPLATE: Shape = {"metadata": METADATA, "spec": POD_SPEC}
POD: Shape = {
    "metadata": METADATA,
    "spec": POD_SPEC,
    "status": {"phase": str, "conditions": CONDITIONS, "containerStatuses": [{"name": str}]},
}
JOB: Shape = {
    "metadata": METADATA,
    "spec": {
        "parallelism": int,
        "completions": int,
        "activeDeadlineSeconds": int,
        "backoffLimit": int,
        "backoffLimitPerIndex": int,
        "maxFailedIndexes": int,
        "ttlSecondsAfterFinished": int,
        "completionMode": str,
        "suspend": bool,
        "manualSelector": bool,
        "podReplacementPolicy": str,
        "managedBy": str,
        "selector": SELECTOR,
        "template": POD_TEMPLATE,
        "podFailurePolicy": {"rules": [{"action": str}]},
        "successPolicy": {"rules": [{"succeededIndexes": str}]},
    },
    "status": {
        "active": int,
        "ready": int,
        "succeeded": int,
        "failed": int,
        "terminating": int,
        "startTime": TIME,
        "completionTime": TIME,
        "completedIndexes": str,
        "failedIndexes": str,
        "conditions": CONDITIONS,
    },
}
NAMESPACE: Shape = {
    "metadata": METADATA,
    "spec": {"finalizers": [str]},
    "status": {"phase": str, "conditions": CONDITIONS},
}
NODE: Shape = {
    "metadata": METADATA,
    "spec": {
        "unschedulable": bool,
        "taints": [{"key": str, "value": str, "effect": str}],
    },
    "status": {"allocatable": AMOUNTS, "capacity": AMOUNTS, "conditions": CONDITIONS},
}
LIMIT_RANGE: Shape = {
    "metadata": METADATA,
    "spec": {
        "limits": [
            {
                "type": str,
                "min": AMOUNTS,
                "max": AMOUNTS,
                "default": AMOUNTS,
                "defaultRequest": AMOUNTS,
                "maxLimitRequestRatio": AMOUNTS,
            }
        ]
    },
}
PRIORITY_CLASS: Shape = {
    "metadata": METADATA,
    "value": int,
    "globalDefault": bool,
    "preemptionPolicy": str,
    "description": str,
}
EVENT: Shape = {
    "metadata": METADATA,
    "involvedObject": {"kind": str, "name": str, "namespace": str, "uid": str, "apiVersion": str},
    "reason": str,
    "message": str,
    "type": str,
    "count": int,
    "source": {"component": str, "host": str},
}


def check_shape(obj: Mapping[str, Any], shape: Shape) -> None:
    """Compares an object with a shape.

    Raises:
        BadRequest: a field has the wrong type; the text names it.
    """
    problem = _problem(obj, shape, "")
    if problem:
        kind, version = obj.get("kind"), obj.get("apiVersion", "")
        short = str(version).rpartition("/")[2]
        raise BadRequest(f'{kind} in version "{short}" cannot be handled as a {kind}: {problem}')


def _problem(value: Any, shape: Shape, path: str) -> str:
    if value is None:
        return ""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return _mismatch(value, path, "map[string]string" if str in shape else "object")
        if str in shape:
            inner = shape[str]
            for found in value.values():
                problem = _problem(found, inner, path)
                if problem:
                    return problem
            return ""
        for key, inner in shape.items():
            found = value.get(key)
            if found is not None:
                problem = _problem(found, inner, f"{path}.{key}" if path else key)
                if problem:
                    return problem
        return ""
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _mismatch(value, path, "slice")
        for found in value:
            if found is None and isinstance(shape[0], dict):
                return _mismatch(found, path, "object")
            problem = _problem(found, shape[0], path)
            if problem:
                return problem
        return ""
    return _scalar_problem(value, shape, path)


def _scalar_problem(value: Any, shape: Shape, path: str) -> str:
    if shape is AMOUNT:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return _mismatch(value, path, "resource.Quantity")
        try:
            Quantity.parse(value if isinstance(value, int) else str(value))
        except InvalidQuantity:
            return (
                "quantities must match the regular expression "
                "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            )
        return ""
    if shape is TIME:
        if not isinstance(value, str):
            return _mismatch(value, path, "time.Time")
        try:
            parse_time(value)
        except ValueError:
            return f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}"'
        return ""
    if shape is int:
        if isinstance(value, bool) or not isinstance(value, int):
            return _mismatch(value, path, "int32")
        return ""
    if not isinstance(value, shape):
        return _mismatch(value, path, "string" if shape is str else shape.__name__)
    return ""


def _mismatch(value: Any, path: str, wanted: str) -> str:
    names: dict[type, str] = {dict: "object", list: "array", str: "string", bool: "bool"}
    given = names.get(type(value), "number" if value is not None else "null")
    return f"json: cannot unmarshal {given} into Go struct field {path} of type {wanted}"
