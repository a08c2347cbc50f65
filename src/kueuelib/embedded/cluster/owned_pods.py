"""What belongs to a controller, and the pods among it: pure functions of raw objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from kueuelib.api.meta import (
    Obj,
    annotations_of,
    controller_of,
    find_condition,
    is_true,
    labels_of,
    owner_reference,
    parse_time,
)
from kueuelib.embedded.builtins.workloads import selects
from kueuelib.embedded.cluster.pod_life import is_terminal, phase
from kueuelib.embedded.decoding import copy_json

# ---- adoption and release ------------------------------------------------------------------------


@attrs.frozen
class Claims:
    """What a controller finds of one kind in its namespace.

    Attributes:
        kept: what it owns and selects.
        adopted: what it selects and nothing owns.
        released: what it owns and no longer selects.
    """

    kept: tuple[Obj, ...] = ()
    adopted: tuple[Obj, ...] = ()
    released: tuple[Obj, ...] = ()


def is_deleted(obj: Mapping[str, Any]) -> bool:
    """Whether the deletion of an object was requested."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def claims(owner: Mapping[str, Any], owned: Iterable[Obj], orphans: Iterable[Obj]) -> Claims:
    """The claims of an owner with a label selector; one that is being deleted changes none."""
    selector, ending = owner["spec"].get("selector") or {}, is_deleted(owner)
    kept, released = list[Obj](), list[Obj]()
    for each in owned:
        (kept if ending or selects(selector, labels_of(each)) else released).append(each)
    free = (each for each in orphans if not ending and not is_deleted(each))
    adopted = (each for each in free if selects(selector, labels_of(each)))
    return Claims(tuple(kept), tuple(adopted), tuple(released))


def with_owner(obj: Obj, ref: Obj | None) -> Obj:
    """The merge patch by which an object gets a controller, or (None) loses the one it has."""
    meta = obj["metadata"]
    present = controller_of(obj)
    others = [each for each in meta.get("ownerReferences") or () if each is not present]
    refs = [*others, ref] if ref is not None else others
    return {"metadata": {"resourceVersion": meta["resourceVersion"], "ownerReferences": refs}}


# ---- pods ----------------------------------------------------------------------------------------

_PHASES = ("Pending", "Unknown", "Running")
_COST = "controller.kubernetes.io/pod-deletion-cost"


def is_active(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is active for its controller."""
    return not is_terminal(pod) and not is_deleted(pod)


def is_terminating(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is being deleted and has not ended yet."""
    return not is_terminal(pod) and is_deleted(pod)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether the pod is ready."""
    return is_true(pod, "Ready")


def ready_since(pod: Mapping[str, Any]) -> float:
    """Since when a ready pod is ready, in seconds since the epoch; 0 if that is not reported."""
    condition = find_condition((pod.get("status") or {}).get("conditions"), "Ready")
    since = condition.get("lastTransitionTime")
    return parse_time(since) if since else 0.0


def deletion_cost(pod: Mapping[str, Any]) -> int:
    """The number by which a user orders the deletion of surplus pods of a ReplicaSet."""
    try:
        return int(annotations_of(pod).get(_COST, 0))
    except ValueError:
        return 0


def first_to_go(pod: Mapping[str, Any], cost: int = 0, crowd: int = 0) -> tuple[Any, ...]:
    """The sort key of surplus pods: those that lose least by it are deleted first.

    Args:
        pod: the pod.
        cost: its `deletion_cost`, where that counts.
        crowd: how many pods of the same owner are on its node.
    """
    spec, meta, status = pod["spec"], pod["metadata"], pod.get("status") or {}
    ready, now = is_ready(pod), phase(pod)
    restarts = (each.get("restartCount", 0) for each in status.get("containerStatuses") or ())
    return (
        bool(spec.get("nodeName")),
        _PHASES.index(now) if now in _PHASES else 0,
        ready,
        cost,
        -crowd,
        -ready_since(pod) if ready else 0.0,
        -max(restarts, default=0),
        tuple(-ord(letter) for letter in meta.get("creationTimestamp") or ""),
        meta["name"],
    )


def from_template(owner: Mapping[str, Any]) -> Obj:
    """A pod without a name from the template of its raw controller."""
    meta, template = owner["metadata"], owner["spec"]["template"]
    given = template.get("metadata") or {}
    pod: Obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": meta["namespace"],
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": copy_json(template["spec"]),
    }
    for key in ("labels", "annotations"):
        if given.get(key):
            pod["metadata"][key] = dict(given[key])
    if given.get("finalizers"):
        pod["metadata"]["finalizers"] = list(given["finalizers"])
    return pod
