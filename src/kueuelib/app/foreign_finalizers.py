"""Finalizers of other programs on queueing objects, which keep a deleted object and its kind."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final

from kueuelib.api.meta import Obj
from kueuelib.api.names import IN_USE_FINALIZER, POD_FINALIZER

OURS: Final = (IN_USE_FINALIZER, POD_FINALIZER)
_OF_SERVER: Final = (
    "foregroundDeletion",
    "orphan",
    "customresourcecleanup.apiextensions.k8s.io",
)
"""What Kubernetes adds to an object when it is deleted, and removes by itself."""


def foreign_finalizers(obj: Obj) -> list[str]:
    """The finalizers of an object that neither a manager nor Kubernetes removes.

    Args:
        obj: a queueing object, or the definition of its kind.
    """
    return [name for name in _finalizers(obj) if name not in (*OURS, *_OF_SERVER)]


def removal_of(kind: str, obj: Obj, finalizers: Collection[str]) -> str:
    """The command that removes some finalizers from an object, and nothing that came meanwhile.

    Args:
        kind: what `kubectl` calls the kind.
        obj: the object.
        finalizers: those to remove.
    """
    changes: list[Obj] = []
    for place, name in reversed([*enumerate(_finalizers(obj))]):
        if name in finalizers:
            path = f"/metadata/finalizers/{place}"
            changes.append({"op": "test", "path": path, "value": name})
            changes.append({"op": "remove", "path": path})
    meta = obj["metadata"]
    where = f"-n {meta['namespace']} " if meta.get("namespace") else ""
    body = json.dumps(changes, separators=(",", ":"))
    return f"kubectl patch {where}{kind} {meta['name']} --type=json -p '{body}'"


def _finalizers(obj: Obj) -> list[str]:
    return obj["metadata"].get("finalizers") or []
