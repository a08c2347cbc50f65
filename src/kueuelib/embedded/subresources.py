"""Subresources that are neither the object nor its status: binding, eviction, scale, finalize."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj, format_time
from kueuelib.embedded import failures
from kueuelib.embedded.decoding import copy_json
from kueuelib.embedded.registry.kind import Kind, Version

SCALE = "scale"


def bind(kind: Kind, pod: Obj, binding: Mapping[str, Any], now: float) -> Obj:
    """A pod that has got its node.

    Raises:
        BadRequest: the binding names no node, or another pod.
        Conflict: the pod is bound already, is being deleted, or has scheduling gates.
    """
    meta, spec = pod["metadata"], pod.get("spec") or {}
    name = meta["name"]
    target = binding.get("target") or {}
    about = binding.get("metadata") or {}
    if about.get("name") != name:
        raise failures.bad_request("name in URL does not match name in Binding object")
    if target.get("kind") not in (None, "", "Node") or not target.get("name"):
        raise failures.bad_request("target.name: Required value: a node is expected")
    if about.get("uid") and about["uid"] != meta["uid"]:
        raise failures.conflict(
            kind,
            name,
            f"Precondition failed: UID in precondition: {about['uid']}, "
            f"UID in object meta: {meta['uid']}",
        )
    if meta.get("deletionTimestamp"):
        raise failures.conflict(
            kind, name, f"pod {name} is being deleted, cannot be assigned to a host"
        )
    if spec.get("nodeName"):
        raise failures.conflict(
            kind, name, f"pod {name} is already assigned to node {spec['nodeName']!r}"
        )
    if spec.get("schedulingGates"):
        raise failures.conflict(kind, name, f"pod {name} has non-empty .spec.schedulingGates")
    new: Obj = copy_json(pod)
    new["spec"]["nodeName"] = target["name"]
    status = new.setdefault("status", {})
    others = [each for each in status.get("conditions") or () if each["type"] != "PodScheduled"]
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": format_time(now),
    }
    status["conditions"] = [*others, scheduled]
    return new


def _at(obj: Obj, path: str) -> Any:
    found: Any = obj
    for part in path.strip(".").split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def scale_of(version: Version, obj: Obj) -> Obj:
    """The `Scale` view of an object."""
    paths = version.scale or {}
    meta = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    selector = _at(obj, paths.get("labelSelectorPath", "")) or ""
    if isinstance(selector, dict):
        labels = selector.get("matchLabels") or {}
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    status: Obj = {"replicas": _at(obj, paths.get("statusReplicasPath", "")) or 0}
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {"replicas": _at(obj, paths.get("specReplicasPath", "")) or 0},
        "status": status,
    }


def scaled(version: Version, obj: Obj, scale: Mapping[str, Any]) -> Obj:
    """An object with the wanted number of replicas of a `Scale`.

    Raises:
        BadRequest: the number is none.
    """
    wanted = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 0:
        raise failures.bad_request("spec.replicas: must be greater than or equal to 0")
    new: Obj = copy_json(obj)
    parts = (version.scale or {})["specReplicasPath"].strip(".").split(".")
    inner: Any = new
    for part in parts[:-1]:
        inner = inner.setdefault(part, {})
    inner[parts[-1]] = wanted
    about = scale.get("metadata") or {}
    if about.get("resourceVersion"):
        new["metadata"]["resourceVersion"] = about["resourceVersion"]
    return new
