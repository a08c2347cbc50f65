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


def forced_deletion_of(pod: Obj) -> str:
    """The command that removes a Pod whose node does not end it."""
    meta = pod["metadata"]
    return f"kubectl delete -n {meta['namespace']} pod {meta['name']} --force --grace-period=0"


def recreation_of(kind: str, obj: Obj, finalizers: Collection[str]) -> str:
    """The command that saves a deleted object, removes some finalizers from it, and creates it
    again without them as soon as nothing keeps it. It never replaces a file of an earlier run.

    Args:
        kind: what `kubectl` calls the kind.
        obj: the object, which still exists.
        finalizers: those to remove; the others are waited for.
    """
    meta = obj["metadata"]
    where = f"-n {meta['namespace']} " if meta.get("namespace") else ""
    file = f"{kind}-{meta['name']}.yaml"
    save = f"(set -C; kubectl get {where}{kind} {meta['name']} -o yaml > {file})"
    again = "kubectl replace --force --timeout=24h -f"
    present = [name for name in _finalizers(obj) if name in finalizers]
    if not present:
        return f"{save} && {again} {file}"
    lines = "; ".join(rf"\|^  - {name}$|d" for name in present)
    return f"{save} && {removal_of(kind, obj, present)} && sed '{lines}' {file} | {again} -"


def _finalizers(obj: Obj) -> list[str]:
    return obj["metadata"].get("finalizers") or []
