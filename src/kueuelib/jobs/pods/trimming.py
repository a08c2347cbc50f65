"""Reduces pods for the cache: to what decisions need, or for a waiting pod, to its whole spec.

Workloads and patches are made from waiting pods. For a running one, only its shape and marks
matter, so a thousand running pods cost little.
"""

from __future__ import annotations

from typing import Any

from kueuelib.api.meta import Obj, parse_time
from kueuelib.jobs.pods.reading import FAILED, ends_of, is_gated
from kueuelib.runtime.transforms import shared, strip

_CONDITIONS = frozenset({"Ready", "ContainersReady", "TerminationTarget", "DisruptionTarget"})
_SPEC = (
    *("nodeName", "nodeSelector", "tolerations", "schedulingGates", "priority"),
    *("priorityClassName", "runtimeClassName", "overhead", "resources"),
)
_CONTAINER = ("name", "resources", "ports", "restartPolicy")
_ALIKE = ("tolerations", "initContainers", "containers")
"""The largest parts, which the pods of a group have in common."""


def trim(obj: Obj) -> Obj:
    """The parts of a pod that are stored; changes its argument."""
    status = obj.get("status") or {}
    kept: Obj = {"phase": status["phase"]} if status.get("phase") else {}
    conditions = [each for each in status.get("conditions") or () if each["type"] in _CONDITIONS]
    if conditions:
        kept["conditions"] = conditions
    ends = ends_of(status) if kept.get("phase") == FAILED else ()
    if ends:
        last = max(ends, key=parse_time)
        kept["containerStatuses"] = [{"state": {"terminated": {"finishedAt": last}}}]
    elif kept.get("phase") == FAILED and status.get("startTime"):
        kept["startTime"] = status["startTime"]
    obj["status"] = kept
    strip(obj)
    obj["status"] = shared(kept)
    spec = obj["spec"]
    if not is_gated(obj):
        small: dict[str, Any] = {field: spec[field] for field in _SPEC if field in spec}
        for kind in ("initContainers", "containers"):
            if spec.get(kind):
                small[kind] = [
                    {field: each[field] for field in _CONTAINER if field in each}
                    for each in spec[kind]
                ]
        spec = obj["spec"] = small
    for part in _ALIKE:
        if part in spec:
            spec[part] = shared(spec[part])
    return obj


def trim_missed(obj: Obj) -> Obj:
    """The same for pods that are only checked for missing marks."""
    trim(obj)
    if not is_gated(obj):
        obj["spec"] = {"schedulingGates": obj["spec"].get("schedulingGates") or []}
    return obj
