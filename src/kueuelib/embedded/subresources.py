"""Subresources that are neither the object nor its status: binding, eviction, scale, finalize."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj, ObjectKey, format_time
from kueuelib.api.names import DISRUPTION_TARGET
from kueuelib.embedded import failures
from kueuelib.embedded.builtins.fields import invalid, required, section, shown
from kueuelib.embedded.decoding import copy_json
from kueuelib.embedded.registry.cells import selector_text
from kueuelib.embedded.registry.kinds import Kind, KindVersion
from kueuelib.embedded.schema.mismatch import json_type
from kueuelib.errors import BadRequest, FieldError, ServerError

SCALE = "scale"


ACTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "binding": ("core.Binding", ("v1",)),
    "eviction": ("policy.Eviction", ("policy/v1", "policy/v1beta1")),
}
"""The actions that are posted to a pod: the type of the body, and its API versions."""


def action_of(key: ObjectKey, subresource: str, body: Any) -> Obj:
    """The body of an action on a pod.

    Raises:
        BadRequest: it has another type, or is about another pod.
    """
    type_, versions = ACTIONS[subresource]
    wanted = type_.partition(".")[2]
    action: Any = {} if body is None else body
    if not isinstance(action, dict):
        raise BadRequest(
            f"the object provided is unrecognized (must be of type {wanted}): couldn't get "
            "version/kind; json parse error"
        )
    given, at = action.get("kind") or wanted, action.get("apiVersion") or versions[0]
    if given != wanted or at not in versions:
        version = str(at).rpartition("/")[2]
        raise BadRequest(
            f'{given} in version "{version}" cannot be handled as a {wanted}: '
            f"converting ({version}.{given}) to ({type_}): unknown conversion"
        )
    meta = section(action, "metadata")
    if (meta.get("name") or "") != key.name:
        raise BadRequest(f"name in URL does not match name in {wanted} object")
    if meta.get("namespace") not in (None, "", key.namespace):
        raise failures.other_namespace()
    head = {"apiVersion": at, "kind": given, "metadata": {**meta, "namespace": key.namespace}}
    return {**action, **head}


def check_binding(binding: Mapping[str, Any]) -> None:
    """Checks the target of a binding.

    Raises:
        ServerError: it is not a node; as in Kubernetes, the status is not that of a client error.
    """
    target = section(binding, "target")
    errors = []
    if target.get("kind") not in (None, "", "Node"):
        supported = 'supported values: "Node", "<empty>"'
        text = f"Unsupported value: {shown(target['kind'])}: {supported}"
        errors.append(FieldError("target.kind", "FieldValueNotSupported", text))
    if not target.get("name"):
        errors.append(required("target.name"))
    if errors:
        text = ", ".join(str(each) for each in errors)
        raise ServerError(text if len(errors) == 1 else f"[{text}]", reason="")


def bind(kind: Kind, pod: Obj, binding: Mapping[str, Any], now: float) -> Obj:
    """The pod bound to its node.

    Raises:
        Conflict: the pod is bound already, is being deleted, or has scheduling gates.
    """
    meta, spec = pod["metadata"], pod.get("spec") or {}
    name = meta["name"]
    target = binding["target"]
    about = binding.get("metadata") or {}
    if about.get("uid") and about["uid"] != meta["uid"]:
        raise failures.other_uid(kind, name, about["uid"], meta["uid"])
    why = ""
    if meta.get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f"pod {name} is already assigned to node {spec['nodeName']!r}"
    elif spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise failures.conflict(kind, name, why)
    new: Obj = copy_json(pod)
    new["spec"]["nodeName"] = target["name"]
    new["status"] = _with_true(new.get("status") or {}, "PodScheduled", now)
    return new


def disrupted_status(pod: Mapping[str, Any], reason: str, message: str, now: float) -> Obj:
    """The status of a pod that something other than a request to delete it is about to delete."""
    return _with_true(
        pod.get("status") or {}, DISRUPTION_TARGET, now, reason=reason, message=message
    )


def _with_true(status: Mapping[str, Any], type_: str, now: float, **details: str) -> Obj:
    """The status of a pod in which a condition is True, in the place of an earlier one."""
    others = [each for each in status.get("conditions") or () if each["type"] != type_]
    condition = {
        "type": type_,
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": format_time(now),
        **details,
    }
    return {**status, "conditions": [*others, condition]}


def _at(obj: Obj, path: str) -> Any:
    value: Any = obj
    for part in path.strip(".").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def scale_of(version: KindVersion, obj: Obj) -> Obj:
    """The `Scale` view of an object."""
    paths = version.scale or {}
    meta = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    selector = _at(obj, paths.get("labelSelectorPath", "")) or ""
    if isinstance(selector, dict):
        selector = selector_text(selector)
    status: Obj = {"replicas": _at(obj, paths.get("statusReplicasPath", "")) or 0}
    replicas = _at(obj, paths.get("specReplicasPath", ""))
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _placed(version: KindVersion, obj: Obj, replicas: Any) -> Obj:
    *parts, last = (version.scale or {})["specReplicasPath"].strip(".").split(".")
    inner: Any = obj
    for part in parts:
        inner = inner.setdefault(part, {})
    inner[last] = replicas
    return obj


def applied(kind: Kind, version: KindVersion, scale: Any) -> Obj:
    """The applied fields of an object, from an apply of its `Scale`.

    Raises:
        BadRequest: it is not a `Scale`.
    """
    given = scale if isinstance(scale, dict) else {}
    group, name = given.get("apiVersion") or "/", given.get("kind") or ""
    if (group, name) != ("autoscaling/v1", "Scale"):
        raise BadRequest(f"invalid object type: {group}, Kind={name}")
    config = {"apiVersion": kind.api_version(version.name), "kind": kind.kind}
    if "metadata" in given:
        config["metadata"] = given["metadata"]
    replicas = section(given, "spec").get("replicas")
    return config if replicas is None else _placed(version, config, replicas)


def _unreadable(shown: str) -> BadRequest:
    return BadRequest(
        'Scale in version "v1" cannot be handled as a Scale: json: cannot unmarshal '
        f"{shown} into Go struct field ScaleSpec.spec.replicas of type int32"
    )


def scaled(kind: Kind, version: KindVersion, obj: Obj, scale: Mapping[str, Any]) -> Obj:
    """An object with the number of replicas of a `Scale`.

    Raises:
        BadRequest: it is not a number of 32 bits.
        Invalid: it is negative.
    """
    wanted = section(scale, "spec").get("replicas") or 0
    if not isinstance(wanted, int) or isinstance(wanted, bool):
        raise _unreadable(json_type(wanted))
    if not -(2**31) <= wanted < 2**31:
        raise _unreadable(f"number {wanted}")
    if wanted < 0:
        if not kind.builtin:
            path = (version.scale or {})["specReplicasPath"]
            error = invalid(path, wanted, "should be a non-negative integer")
            raise failures.invalid(kind, obj["metadata"]["name"], [error])
        errors = [invalid("spec.replicas", wanted, "must be greater than or equal to 0")]
        raise failures.invalid_named("Scale", "autoscaling", obj["metadata"]["name"], errors)
    new = _placed(version, copy_json(obj), wanted)
    about = scale.get("metadata") or {}
    if about.get("resourceVersion"):
        new["metadata"]["resourceVersion"] = about["resourceVersion"]
    return new
