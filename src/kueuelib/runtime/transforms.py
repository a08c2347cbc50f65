"""What an informer makes of an object before it stores it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import orjson

from kueuelib.api.meta import Obj
from kueuelib.machinery.texts import once

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

RECENT: Final = 256
"""The number of different parts that later objects can share."""
_LONGEST: Final = 1024
"""Bytes of the JSON of labels, annotations or finalizers that objects share."""
_PARTS: Final[dict[bytes, Any]] = {}
_METADATA: Final[dict[bytes, Any]] = {}
"""Apart, since many objects have labels like nobody else's, and would displace pod sets."""

Transform = Callable[[Obj], Obj]


def strip(obj: Obj) -> Obj:
    """Drop what controllers never read, and store once what many objects have alike.

    Changes its argument. Managed fields go, and the copy of itself that kubectl keeps. Workloads
    share equal pod sets and admissions, and all objects equal labels, annotations and finalizers,
    and the words of their conditions. So a transform that changes more has to do that before.
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
    for name in ("labels", "annotations", "finalizers"):
        if name in meta:
            meta[name] = _shared(meta[name], _METADATA, _LONGEST)
    for part, name in (("spec", "podSets"), ("status", "admission")):
        fields = obj.get(part)
        if isinstance(fields, dict) and name in fields:
            fields[name] = shared(fields[name])
    return obj


def metadata_of(obj: Obj) -> Obj:
    """An object reduced to its metadata."""
    return {name: obj[name] for name in ("apiVersion", "kind", "metadata")}


def shared(part: Any) -> Any:
    """A part of an object, or an equal one of an object that came shortly before."""
    return _shared(part, _PARTS)


def _shared(part: Any, known: dict[bytes, Any], longest: int | None = None) -> Any:
    text = orjson.dumps(part)
    if longest is not None and len(text) > longest:
        return part
    known[text] = part = known.pop(text, part)
    if len(known) > RECENT:
        del known[next(iter(known))]
    return part


def _share_words(fields: Obj, names: Iterable[str]) -> None:
    for name in names:
        word = fields.get(name)
        if type(word) is str:
            fields[name] = once(word)
