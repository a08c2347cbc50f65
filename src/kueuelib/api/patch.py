"""JSON merge patches (RFC 7386), and the making of JSON patches (RFC 6902), as pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def merge_patch(target: Any, patch: Any) -> Any:
    """The target with the patch applied; neither is changed.

    Objects are merged, a null removes a field, everything else replaces what was there. The
    result may share parts with both.
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = merge_patch(merged.get(key), value)
        else:
            merged[key] = value
    return merged


def diff_merge_patch(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The smallest merge patch that turns `old` into `new`; empty when they are equal.

    A merge patch cannot write a null, so a field that is null in `new` is removed.
    """
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if value is None:
            if key in old:
                patch[key] = None
        elif value is before:
            continue
        elif isinstance(value, dict) and isinstance(before, dict):
            if inner := diff_merge_patch(before, value):
                patch[key] = inner
        elif key not in old or not _same(before, value):
            patch[key] = value
    return patch


def diff_json_patch(
    old: dict[str, Any], new: dict[str, Any], path: str = ""
) -> Iterator[dict[str, Any]]:
    """The operations of a JSON patch that turn `old` into `new`; none when they are equal.

    A list that differs is replaced as a whole.

    Args:
        old: an object.
        new: what it becomes.
        path: of both; empty for the whole document.
    """
    for key in old.keys() - new.keys():
        yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
    for key, value in new.items():
        before = old.get(key)
        if before is value and (value is not None or key in old):  # shared: most of an object
            continue
        at = f"{path}/{_escaped(key)}"
        if isinstance(value, dict) and isinstance(before, dict):
            yield from diff_json_patch(before, value, at)
        elif key not in old:
            yield {"op": "add", "path": at, "value": value}
        elif not _same(before, value):
            yield {"op": "replace", "path": at, "value": value}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON, where 1, 1.0 and true differ."""
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(map(_same, one.values(), map(other.get, one)))
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
