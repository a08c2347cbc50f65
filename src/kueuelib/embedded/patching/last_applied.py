"""Moves from client-side to server-side apply.

`kubectl apply` without `--server-side` stores the last applied configuration in an annotation. A
client that then uses `--server-side` keeps its fields without conflicts, and the annotation stays
correct for clients that switch back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from kueuelib.api.meta import Obj
from kueuelib.embedded.patching.compare import compare
from kueuelib.embedded.patching.fieldsets import NO_FIELDS, FieldSet, fields_of
from kueuelib.embedded.schema.node import SchemaNode

KUBECTL: Final = "kubectl"
"""The only manager to which this applies."""
ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
ANNOTATIONS_LIMIT: Final = 256 * 1024
"""Bytes of all annotations together."""
_ESCAPES: Final = {
    ord(letter): f"\\u{ord(letter):04x}" for letter in ("<", ">", "&", "\u2028", "\u2029")
}


def given_up(node: SchemaNode, live: Obj | None, manager: str, version: str) -> FieldSet:
    """The fields that a manager may take from others without force.

    Those that it applied on the client's side and that have not changed since.

    Args:
        node: the schema at the version.
        live: the present state at the version.
        manager: the manager.
        version: the apiVersion of the apply.
    """
    text = _annotations(live).get(ANNOTATION)
    if manager != KUBECTL or not text:
        return NO_FIELDS
    try:
        last = json.loads(text)
    except (ValueError, RecursionError):
        return NO_FIELDS
    if not isinstance(last, dict) or last.get("apiVersion") != version:
        return NO_FIELDS
    change = compare(node, last, live)
    return fields_of(node, last) - change.modified - change.added - change.removed


def renewed(obj: Obj, config: Mapping[str, Any], manager: str) -> Obj:
    """The object with its annotation updated to this apply, if it has the annotation.

    Args:
        obj: the object after an apply; it is not changed.
        config: the applied configuration as sent.
        manager: the field manager of the apply.
    """
    annotations = _annotations(obj)
    if manager != KUBECTL or not annotations.get(ANNOTATION):
        return obj
    text = _encoded(config)
    others = {name: each for name, each in annotations.items() if name != ANNOTATION}
    size = sum(len(name.encode()) + len(each.encode()) for name, each in others.items())
    if size + len(ANNOTATION) + len(text.encode()) <= ANNOTATIONS_LIMIT:
        others[ANNOTATION] = text
    if others == annotations:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "annotations": others}}


def _encoded(config: Mapping[str, Any]) -> str:
    """The configuration in the form of a Go client, without the annotation itself."""
    meta = config.get("metadata")
    annotations = _annotations(config)
    if isinstance(meta, Mapping) and annotations:
        others = {name: each for name, each in annotations.items() if name != ANNOTATION}
        config = {**config, "metadata": {**meta, "annotations": others}}
    text = json.dumps(config, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return text.translate(_ESCAPES) + "\n"


def _annotations(obj: Mapping[str, Any] | None) -> Mapping[str, Any]:
    meta = (obj or {}).get("metadata")
    annotations = meta.get("annotations") if isinstance(meta, Mapping) else None
    return annotations if isinstance(annotations, Mapping) else {}
