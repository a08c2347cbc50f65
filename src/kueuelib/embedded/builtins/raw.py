"""Helpers for raw objects, in which null means absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.api.meta import Obj, find_condition

_MAPS = frozenset(
    {"annotations", "labels", "limits", "matchLabels", "nodeSelector", "overhead", "requests"}
)


def meaning(value: Any) -> Any:
    """A value without parts that mean the same as absent ones: nulls, empty lists, empty maps of
    texts.

    Objects with the same meaning are equal for Kubernetes, from any writer.
    """
    if isinstance(value, dict):
        meanings = {key: meaning(each) for key, each in value.items()}
        return {
            key: each
            for key, each in meanings.items()
            if each is not None and each != [] and (each != {} or key not in _MAPS)
        }
    if isinstance(value, list):
        return [meaning(each) for each in value]
    return value


def section(obj: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The mapping at a path of keys; empty if there is none."""
    value: Any = obj
    for key in keys:
        value = value.get(key) if isinstance(value, dict | Mapping) else None
    return value if isinstance(value, dict | Mapping) else {}


def holds(status: Mapping[str, Any], type_: str) -> bool:
    """Whether a condition is True."""
    return find_condition(status.get("conditions"), type_).get("status") == "True"


def listed(obj: Mapping[str, Any], key: str) -> Sequence[Any]:
    """The list of that key; empty if it is absent or null."""
    return obj.get(key) or ()


def keep(obj: Obj, old: Mapping[str, Any], *keys: str) -> None:
    """Restore fields to what they were before, also if they were absent."""
    for key in keys:
        if key in old:
            obj[key] = old[key]
        else:
            obj.pop(key, None)


def setdefault(obj: Obj, key: str, value: Any) -> None:
    """Like `dict.setdefault`, but null counts as absent, as in Kubernetes."""
    if obj.get(key) is None:
        obj[key] = value


def subobject(obj: Obj, key: str) -> Obj:
    """The mapping of that key, which is created if it is absent or null."""
    child = obj.get(key)
    if child is None:
        child = obj[key] = {}
    return child
