"""What the mutating webhooks fill in when a queueing object is created.

The functions take and return raw objects of either version; the given object is not changed. A
value of the wrong type is left alone: the schema refuses it afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kueuelib.api.kinds import KUEUE, V1BETA1
from kueuelib.api.kueue import MAIN_POD_SET, MAY_STOP_SEARCH, NEVER, TRY_NEXT_FLAVOR
from kueuelib.api.meta import Obj
from kueuelib.api.names import IN_USE_FINALIZER

_PREEMPTION: Final = {"reclaimWithinCohort": NEVER, "withinClusterQueue": NEVER}
_BORROWING: Final = {"policy": NEVER}


def default_cluster_queue(obj: Obj) -> Obj:
    """The ClusterQueue with finalizer, preemption and fungibility policies."""
    obj = _with_finalizer(obj)
    spec = _child(obj, "spec")
    preemption = _child(spec, "preemption")
    _fill(preemption, _PREEMPTION)
    _fill(_child(preemption, "borrowWithinCohort"), _BORROWING)
    old = obj.get("apiVersion") == f"{KUEUE}/{V1BETA1}"
    borrow = "Borrow" if old else MAY_STOP_SEARCH
    fungibility = {"whenCanBorrow": borrow, "whenCanPreempt": TRY_NEXT_FLAVOR}
    _fill(_child(spec, "flavorFungibility"), fungibility)
    return obj


def default_resource_flavor(obj: Obj) -> Obj:
    """The ResourceFlavor with its finalizer."""
    return _with_finalizer(obj)


def default_workload(obj: Obj) -> Obj:
    """The Workload with a name for a single pod set without one."""
    spec = obj.get("spec")
    pod_sets = spec.get("podSets") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(pod_sets, list) or len(pod_sets) != 1:
        return obj
    (pod_set,) = pod_sets
    if not isinstance(pod_set, dict) or pod_set.get("name"):
        return obj
    return {**obj, "spec": {**spec, "podSets": [{**pod_set, "name": MAIN_POD_SET}]}}


def unchanged(obj: Obj) -> Obj:
    """The object itself, for kinds without defaults of the webhook."""
    return obj


def _with_finalizer(obj: Obj) -> Obj:
    obj = dict(obj)
    metadata = _child(obj, "metadata")
    finalizers = metadata.get("finalizers")
    if finalizers is None or (isinstance(finalizers, list) and IN_USE_FINALIZER not in finalizers):
        metadata["finalizers"] = [*(finalizers or ()), IN_USE_FINALIZER]
    return obj


def _child(parent: Obj, name: str) -> Obj:
    """A private copy of a child object, created if missing; detached if it is not an object."""
    child = parent.get(name)
    if child is not None and not isinstance(child, dict):
        return {}
    parent[name] = copied = dict(child or {})
    return copied


def _fill(target: Obj, defaults: Mapping[str, Any]) -> None:
    for key, value in defaults.items():
        if target.get(key) is None:
            target[key] = value
