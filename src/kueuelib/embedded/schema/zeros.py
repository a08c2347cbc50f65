"""What an object of a built-in kind has before anything is written to it.

In Go a struct that is not a pointer is always there, and so is a number or text that is written
even when it is zero. A create is compared with such an object: who makes it does not own what it
does not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kueuelib.api.meta import Obj

Zeros = Mapping[str, Any]

_EMPTY: Final[Zeros] = {}
_SPEC: Final[Zeros] = {"spec": {}}
_TEMPLATE: Final[Zeros] = {"metadata": {}, "spec": {"containers": []}}
_REPLICATED: Final[Zeros] = {"template": _TEMPLATE}
_UPDATED: Final[Zeros] = {**_REPLICATED, "updateStrategy": {}}
_ZEROS: Final[Mapping[str, Zeros]] = {
    **dict.fromkeys(("Lease", "LimitRange", "Namespace", "Node", "PersistentVolume"), _SPEC),
    **dict.fromkeys(("Ingress", "ReplicationController", "ResourceQuota", "Service"), _SPEC),
    **{kind: {"spec": _REPLICATED} for kind in ("Job", "ReplicaSet")},
    **{kind: {"spec": _UPDATED} for kind in ("DaemonSet", "StatefulSet")},
    "APIService": {"spec": {"groupPriorityMinimum": 0, "versionPriority": 0}},
    "CronJob": {"spec": {"schedule": "", "jobTemplate": {"metadata": {}, "spec": _REPLICATED}}},
    "CustomResourceDefinition": {
        "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": ""}
    },
    "Deployment": {"spec": {**_REPLICATED, "strategy": {}}},
    "Event": {"source": {}, "reportingComponent": "", "reportingInstance": ""},
    "PersistentVolumeClaim": {"spec": {"resources": {}}},
    "Pod": {"spec": {"containers": []}},
    "PodTemplate": {"template": _TEMPLATE},
    "PriorityClass": {"value": 0, "globalDefault": False},
    "RuntimeClass": {"handler": ""},
}


def zero(kind: str, *, builtin: bool) -> Obj:
    """An object of a kind to which nothing was written; not to be changed."""
    return {"metadata": {}, **(_ZEROS.get(kind, _EMPTY) if builtin else _EMPTY)}
