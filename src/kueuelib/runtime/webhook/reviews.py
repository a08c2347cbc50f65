"""Checks a review before a handler works with it: types of fields, number of values.

Shapes are structural schemas (OpenAPI v3 as CRDs use it), of which only types, required fields and
minimal lengths of texts count here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAX_VALUES: Final = 600_000
"""The maximum number of objects, lists and further fields of a review: each takes memory when
decoded.
"""
MAX_CONTAINERS: Final = 150_000
VALUE_BYTES: Final = 64
CONTAINER_BYTES: Final = 160
"""The memory of a decoded value, and what an object or list takes in addition."""
MAX_BODY: Final = 7 * 1024 * 1024
"""Bytes of the largest review that is read."""
MAX_MEMORY: Final = 3 * MAX_BODY
"""Bytes that an admission review may take."""

Shape = dict[str, Any]
Shapes = Mapping[str, Shape]
"""The shape of an object by its `apiVersion`; an empty key stands for all other versions."""

_TYPES: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "object": ((dict,), "an object"),
    "array": ((list,), "a list"),
    "string": ((str,), "a text"),
    "integer": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
}
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_TEXT: Final[Shape] = {"type": "string"}
_NEEDED: Final[Shape] = {"type": "string", "minLength": 1}
_ANYTHING: Final[Shape] = {"type": "object"}
_TEXTS: Final[Shape] = {"type": "array", "items": _TEXT}
_MAP: Final[Shape] = {"type": "object", "additionalProperties": _TEXT}


def _object(properties: Shapes, *required: str) -> Shape:
    return {"type": "object", "properties": properties, "required": required}


_OWNER: Final = _object(dict.fromkeys(("apiVersion", "kind", "name", "uid"), _TEXT))
_META: Final = _object(
    {
        **dict.fromkeys(("name", "generateName", "namespace", "uid"), _TEXT),
        **dict.fromkeys(("labels", "annotations"), _MAP),
        "finalizers": _TEXTS,
        "ownerReferences": {"type": "array", "items": _OWNER},
    }
)
_OBJECT: Final = _object(
    {
        **dict.fromkeys(("apiVersion", "kind"), _TEXT),
        **dict.fromkeys(("spec", "status"), _ANYTHING),
        "metadata": _META,
    }
)
"""The fields that every reviewed object has."""
_KIND: Final = _object(dict.fromkeys(("group", "version", "kind", "resource"), _TEXT))
_USER: Final = _object({"username": _TEXT, "uid": _TEXT, "groups": _TEXTS, "extra": _ANYTHING})
_ADMISSION: Final = _object(
    {
        **dict.fromkeys(("uid", "operation"), _NEEDED),
        **dict.fromkeys(("subResource", "namespace", "name"), _TEXT),
        **dict.fromkeys(("kind", "resource"), _KIND),
        **dict.fromkeys(("object", "oldObject"), _OBJECT),
        "userInfo": _USER,
        "options": _ANYTHING,
        "dryRun": {"type": "boolean"},
    },
    "uid",
    "operation",
)
_CONVERSION: Final = _object(
    {
        **dict.fromkeys(("uid", "desiredAPIVersion"), _NEEDED),
        "objects": {"type": "array", "items": {**_OBJECT, "required": ("metadata",)}},
    },
    "uid",
    "desiredAPIVersion",
)
_REVIEWS: Final[Shapes] = {
    kind: _object({"apiVersion": _TEXT, "request": request}, "apiVersion", "request")
    for kind, request in (("AdmissionReview", _ADMISSION), ("ConversionReview", _CONVERSION))
}
_OBJECTS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "CREATE": ("object",),
    "UPDATE": ("object", "oldObject"),
    "DELETE": ("oldObject",),
}


def is_too_much(body: bytes, kind: str) -> bool:
    """Whether a body has too many values, found before it is decoded.

    Args:
        body: of the request.
        kind: `AdmissionReview`, which has at most two objects, or `ConversionReview`.
    """
    containers = body.count(b"{") + body.count(b"[")
    values = containers + body.count(b",")
    if kind == "AdmissionReview":
        memory = 2 * len(body) + VALUE_BYTES * values + CONTAINER_BYTES * containers
        return memory > MAX_MEMORY
    return containers > MAX_CONTAINERS or values > MAX_VALUES


def types_of(schema: Shape, *, required: bool = False) -> Shape:
    """The types in a schema: the shape of objects that rules have not checked yet.

    Args:
        schema: structural.
        required: keep the fields that must be there, too.
    """
    shape: dict[str, Any] = {}
    for name, value in schema.items():
        if name in ("type", _INT_OR_STRING) or (required and name == "required"):
            shape[name] = value
        elif name == "properties":
            shape[name] = {
                each: types_of(inner, required=required) for each, inner in value.items()
            }
        elif name in ("items", "additionalProperties") and isinstance(value, dict):
            shape[name] = types_of(value, required=required)
    return shape


def shape_with(fields: Shapes, required: str = "") -> Shape:
    """The shape of objects that have these fields.

    Args:
        fields: their schemas, by path; what they require must be there.
        required: the path of a field that must be there.
    """
    shape: dict[str, Any] = {}
    for path, schema in fields.items():
        place = shape
        for name in path.split("."):
            place["type"] = "object"
            if path == required:
                place["required"] = [name]
            place = place.setdefault("properties", {}).setdefault(name, {})
        place.update(types_of(schema, required=True))
    return shape


def misfit(review: Any, kind: str) -> str:
    """What is wrong with a review, with the field; empty if it is fine.

    Args:
        review: a decoded body.
        kind: `AdmissionReview` or `ConversionReview`.
    """
    if not isinstance(review, dict) or review.get("kind") != kind:
        return f"send {'an' if kind.startswith('A') else 'a'} {kind}"
    if problem := _misfit(review, _REVIEWS[kind]):
        return problem.removeprefix(".")
    request = review["request"]
    for name in _OBJECTS_OF.get(request.get("operation", ""), ()):
        if request.get(name) is None:
            return f"request.{name} is missing"
        if request[name].get("metadata") is None:
            return f"request.{name}.metadata is missing"
    return ""


def misfit_of_objects(request: Mapping[str, Any], shapes: Shapes) -> str:
    """What is wrong with the objects of an admission review, with the field.

    Args:
        request: of a review without misfit.
        shapes: of the objects; none: any object will do.
    """
    for name, path in (("object", ""), ("oldObject", "oldObject")):
        obj = request.get(name)
        if obj is None or not shapes:
            continue
        shape = shapes.get(obj.get("apiVersion") or "", shapes.get(""))
        if shape is None:
            return f"{path}.apiVersion: {' or '.join(shapes)} is expected".removeprefix(".")
        if problem := _misfit(obj, shape):
            return f"{path}{problem}".removeprefix(".")
    return ""


def _misfit(value: Any, shape: Shape) -> str:
    """What is wrong with a value, after the path from it to the field; empty if it fits."""
    if shape.get(_INT_OR_STRING):
        fits = isinstance(value, int | str) and not isinstance(value, bool)
        return "" if fits else ": a whole number or a text is expected"
    wanted = shape.get("type")
    if wanted is not None:
        types, words = _TYPES[wanted]
        if not isinstance(value, types) or (isinstance(value, bool) and wanted != "boolean"):
            return f": {words} is expected"
    if isinstance(value, dict):
        return _misfit_inside(value, shape)
    if isinstance(value, list) and (inner := shape.get("items")):
        for i, each in enumerate(value):
            if problem := _misfit(each, inner):
                return f"[{i}]{problem}"
    if not value and shape.get("minLength"):
        return " is missing"
    if "enum" in shape and value not in shape["enum"]:
        return f": {' or '.join(shape['enum'])} is expected"
    return ""


def _misfit_inside(value: dict[str, Any], shape: Shape) -> str:
    for name in shape.get("required", ()):
        if value.get(name) is None:
            return f".{name} is missing"
    properties = shape.get("properties", {})
    for name in value.keys() & properties.keys():
        each, inner = value[name], properties[name]
        if each is None or (type(each) is str and inner == _TEXT):  # most fields, without a call
            continue
        if problem := _misfit(each, inner):
            return f".{name}{problem}"
    if inner := shape.get("additionalProperties"):
        for name, each in value.items():
            if not (type(each) is str and inner == _TEXT) and (problem := _misfit(each, inner)):
                return f"[{name}]{problem}"
    return ""
