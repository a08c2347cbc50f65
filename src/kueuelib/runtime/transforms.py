"""What an informer makes of an object before it stores it."""

from __future__ import annotations

from collections.abc import Callable

from kueuelib.api.meta import Obj

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

Transform = Callable[[Obj], Obj]


def strip(obj: Obj) -> Obj:
    """Drop what controllers never read and what fills memory (spec/framework 2.7).

    Changes its argument: managed fields, and the copy of itself that kubectl keeps.
    """
    meta = obj["metadata"]
    meta.pop("managedFields", None)
    annotations = meta.get("annotations")
    if annotations and annotations.pop(_LAST_APPLIED, None) is not None and not annotations:
        del meta["annotations"]
    return obj


def metadata_of(obj: Obj) -> Obj:
    """An object reduced to its metadata."""
    return {name: obj[name] for name in ("apiVersion", "kind", "metadata")}
