"""What makes the pods of a group again when they are gone: a StatefulSet.

The parent owns the Workload of the group instead of its pods, so the Workload outlives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from kueuelib.api.kinds import STATEFUL_SETS
from kueuelib.api.meta import Obj, ObjectKey, annotations_of, controller_of
from kueuelib.api.names import SUSPENDING_PARENT, workload_name
from kueuelib.api.patterns import LABEL_LIMIT
from kueuelib.machinery.store import Store

STATEFUL_SET = "statefulset"
"""The name of the integration, and what pods say about their parent."""


def group_name(name: str) -> str:
    """The group of the pods of a StatefulSet, given its name; it fits into a label."""
    kind = STATEFUL_SETS
    return workload_name(kind.kind, kind.group, name, "", LABEL_LIMIT - 1)


@attrs.frozen
class Parent:
    """The parent of a group.

    Attributes:
        ref: an owner reference to it, not as the controller.
        replicas: how many pods it makes.
    """

    ref: Obj
    replicas: int


def replicas_of(obj: Mapping[str, Any]) -> int:
    """How many pods a raw parent makes."""
    found = obj["spec"].get("replicas")
    return 1 if found is None else int(found)


def parent_of(
    pods: Iterable[Obj], workload: Obj | None, namespace: str, parents: Store[Obj] | None
) -> Parent | None:
    """The parent of a group, None for a group without one; a missing parent makes 0 pods.

    Args:
        pods: the raw pods of the group.
        workload: its raw Workload.
        namespace: where it is.
        parents: the queued StatefulSets; None when they are not an enabled kind.
    """
    if parents is None:
        return None
    refs = [
        ref
        for pod in pods
        if annotations_of(pod).get(SUSPENDING_PARENT) == STATEFUL_SET
        and (ref := controller_of(pod)) is not None
    ]
    refs += () if workload is None else workload["metadata"].get("ownerReferences") or ()
    for ref in refs:
        if (ref["apiVersion"], ref["kind"]) == (STATEFUL_SETS.api_version, STATEFUL_SETS.kind):
            kept = {key: ref[key] for key in ("apiVersion", "kind", "name", "uid")}
            found = parents.get(ObjectKey(namespace, ref["name"]))
            if found is None or found["metadata"]["uid"] != ref["uid"]:
                return Parent(kept, 0)
            return Parent(kept, replicas_of(found))
    return None
