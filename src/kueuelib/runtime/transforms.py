"""What an informer makes of an object before it stores it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from sys import intern
from typing import Any, Final

import orjson

from kueuelib.api.meta import Obj

_ALIKE = (
    ("metadata", ("labels", "annotations", "finalizers")),
    ("spec", ("podSets",)),
    ("status", ("admission", "conditions")),
)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

RECENT: Final = 256
"""The number of different parts that later objects can share."""
_PARTS: Final[dict[bytes, Any]] = {}

Transform = Callable[[Obj], Obj]


def strip(obj: Obj) -> Obj:
    """Drop what controllers never read, and store once what many objects have alike
    (spec/framework 2.7).

    Changes its argument. Managed fields go, and the copy of itself that kubectl keeps. Workloads
    share equal pod sets and admissions, and all objects equal labels, annotations, finalizers and
    conditions, and the words of those that differ.
    """
    meta = obj["metadata"]
    meta.pop("managedFields", None)
    annotations = meta.get("annotations")
    if annotations and annotations.pop(_LAST_APPLIED, None) is not None and not annotations:
        del meta["annotations"]
    status = obj.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict):
            _share_words(condition, condition)
    _share_words(obj, ("apiVersion", "kind"))
    _share_words(meta, ("namespace", "creationTimestamp"))
    for part, names in _ALIKE:
        fields = obj.get(part)
        if isinstance(fields, dict):
            for name in names:
                if name in fields:
                    fields[name] = shared(fields[name])
    return obj


def metadata_of(obj: Obj) -> Obj:
    """An object reduced to its metadata."""
    return {name: obj[name] for name in ("apiVersion", "kind", "metadata")}


def shared(part: Any) -> Any:
    """A part of an object, or an equal one of an object that came shortly before."""
    known = _PARTS.setdefault(orjson.dumps(part), part)
    if len(_PARTS) > RECENT:
        del _PARTS[next(iter(_PARTS))]
    return known


def _share_words(fields: Obj, names: Iterable[str]) -> None:
    for name in names:
        word = fields.get(name)
        if type(word) is str:
            fields[name] = intern(word)
