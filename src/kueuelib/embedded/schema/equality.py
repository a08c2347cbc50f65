"""Equality of JSON values."""

from __future__ import annotations

import json
from typing import Any

import orjson


def same_json(left: Any, right: Any) -> bool:
    """Deep equality in which `true` is not `1`; 1 and 1.0 are the same number."""
    if left is right:
        return True
    if left != right:
        return False
    if type(left) is type(right) is str:
        return True
    # Python finds 1 and True equal, so the texts are compared as well, which are mostly equal.
    return _same_text(left, right) or _same(left, right)


def _same_text(left: Any, right: Any) -> bool:
    try:
        return orjson.dumps(left) == orjson.dumps(right)
    except orjson.JSONEncodeError:
        return False  # a number of more than 64 bits, for example: the slow way knows


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(_same(value, right[name]) for name, value in left.items())
        )
    if isinstance(left, list | tuple):
        return (
            isinstance(right, list | tuple)
            and len(left) == len(right)
            and all(_same(one, other) for one, other in zip(left, right, strict=True))
        )
    return bool(left == right)


def canonical(value: Any) -> str:
    """The canonical text of a JSON value: compact, with sorted keys."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
