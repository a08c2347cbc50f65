"""JSON merge patches (RFC 7386) as pure functions."""

from __future__ import annotations

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
        elif isinstance(value, dict) and isinstance(before, dict):
            if inner := diff_merge_patch(before, value):
                patch[key] = inner
        elif key not in old or not _same(before, value):
            patch[key] = value
    return patch


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON, where 1, 1.0 and true differ."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
