"""When two JSON values are the same."""

from __future__ import annotations

import json
from typing import Any


def same_json(left: Any, right: Any) -> bool:
    """Deep equality in which `true` is not `1`; 1 and 1.0 are the same number."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(same_json(value, right[name]) for name, value in left.items())
        )
    if isinstance(left, list | tuple):
        return (
            isinstance(right, list | tuple)
            and len(left) == len(right)
            and all(same_json(one, other) for one, other in zip(left, right, strict=True))
        )
    return bool(left == right)


def canonical(value: Any) -> str:
    """One text for every JSON value: compact, keys sorted."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
