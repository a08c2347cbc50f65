"""What a review may look like, before anybody works with it: types of fields, number of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAX_VALUES: Final = 600_000
"""So many objects, lists and further fields may be in a review: each takes memory when decoded."""
MAX_CONTAINERS: Final = 150_000
_NAMES: Final = {str: "a text", dict: "an object", list: "a list", bool: "true or false"}
_KIND: Final[Mapping[str, Any]] = dict.fromkeys(("group", "version", "kind", "resource"), str)
_META: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("name", "namespace", "uid"), str),
    **dict.fromkeys(("labels", "annotations"), dict),
}
_OBJECT: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("apiVersion", "kind"), str),
    **dict.fromkeys(("spec", "status"), dict),
    "metadata": _META,
}
_REQUEST: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("uid", "operation", "subResource", "namespace", "name"), str),
    "desiredAPIVersion": str,
    "kind": _KIND,
    "resource": _KIND,
    "object": _OBJECT,
    "oldObject": _OBJECT,
    "objects": [_OBJECT],
    "userInfo": {"username": str, "uid": str, "groups": list, "extra": dict},
    "options": dict,
    "dryRun": bool,
}
NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "AdmissionReview": ("uid", "operation"),
    "ConversionReview": ("uid", "desiredAPIVersion"),
}


def is_too_much(body: bytes) -> bool:
    """Whether a body has more values than anybody needs, which is known before it is decoded."""
    containers = body.count(b"{") + body.count(b"[")
    return containers > MAX_CONTAINERS or containers + body.count(b",") > MAX_VALUES


def misfit(review: Any, kind: str) -> str:
    """What is wrong with a review, with the field; empty when nothing is."""
    if not isinstance(review, dict) or review.get("kind") != kind:
        return f"send a {kind}"
    if not isinstance(review.get("apiVersion"), str):
        return "apiVersion: a text is expected"
    request = review.get("request")
    if not isinstance(request, dict):
        return f"the {kind} has no request"
    for name in NEEDED[kind]:
        if not request.get(name):
            return f"request.{name} is missing"
    return _misfit(request, _REQUEST, "request")


def _misfit(value: Any, wanted: Any, path: str) -> str:
    if isinstance(wanted, type):
        return "" if isinstance(value, wanted) else f"{path}: {_NAMES[wanted]} is expected"
    if not isinstance(value, type(wanted)):
        return f"{path}: {_NAMES[type(wanted)]} is expected"
    if isinstance(wanted, list):
        inside = [(each, wanted[0], f"[{i}]") for i, each in enumerate(value)]
    else:
        inside = [(value.get(name), each, f".{name}") for name, each in wanted.items()]
    for inner, expected, name in inside:
        if inner is None or (isinstance(expected, type) and isinstance(inner, expected)):
            continue
        if found := _misfit(inner, expected, path + name):
            return found
    return ""
