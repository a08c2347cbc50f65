"""Errors for values of the wrong JSON type, in the words of the two decoders of Kubernetes.

Most requests are decoded into Go structs, those of server-side apply into typed values.
"""

from __future__ import annotations

import json
from typing import Any, Final

from kueuelib.embedded.schema.messages import go_texts
from kueuelib.errors import BadRequest

HEAD: Final = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\""; '
    r'Kind string "json:\"kind,omitempty\"" }'
)
"""The Go type into which the version and kind of a body are decoded."""
_NAMES: Final = {dict: "object", list: "array", str: "string", bool: "bool", type(None): "null"}
_TEXTS: Final = ("string", "[]uint8")
_SCALARS: Final = {"bool": "boolean", "int32": "numeric (int or float)"}
_GO_TYPES: Final = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
}
_LONG: Final = 1_000_000
"""Go writes whole numbers below this without an exponent, whatever their type."""
_KINDS: Final = {dict: "map", list: "slice", str: "string", bool: "bool", int: "int64"}


def json_type(value: Any) -> str:
    """The name of a JSON type in Go's decoder."""
    return _NAMES.get(type(value), "number")


class Mismatch(BadRequest):
    """A field has the wrong type.

    Args:
        message: for requests that are decoded into structs.
        path: of the field.
        wanted: the Go type of the field.
        value: the value.
    """

    def __init__(self, message: str, path: str, wanted: str, value: Any) -> None:
        super().__init__(message)
        self.path = path
        self._wanted = wanted
        self._value = value

    @property
    def typed(self) -> str:
        """The message for requests that are decoded into typed values."""
        wanted = self._wanted
        if wanted in _TEXTS or wanted in go_texts():
            expected = "string"
        elif wanted.startswith("[]"):
            expected = "list"
        elif wanted.startswith(("map[", "v1.")):
            expected = "map"
        else:
            expected = _SCALARS.get(wanted.replace("64", "32"), "numeric (int or float)")
        if expected in ("map", "list"):
            return f"expected {expected}, got &{{{shown(self._value)}}}"
        if expected.startswith("numeric"):
            return f"expected {expected}, got {_GO_TYPES[type(self._value)]}"
        inner = _written(self._value)
        if wanted == "time.Time":
            return f"expected any scalar, got &{{{shown(self._value)}}}"
        return f"expected {expected}, got &value.valueUnstructured{{Value:{inner}}}"

    @property
    def restored(self) -> str:
        """The message for strategic merge patches, whose objects are made of maps."""
        source = _KINDS.get(type(self._value), "float64")
        wanted = self._wanted
        if wanted == "string" or wanted in go_texts():
            if source == "int64":
                return f"cannot convert int64 to {wanted}"
            return "unrecognized type: string"
        if source == "float64" and wanted.startswith("int"):
            return f"cannot convert float64 to {wanted}"
        if wanted.startswith("[]"):
            return f"cannot restore slice from {source}"
        if wanted.startswith("map[") or wanted == "v1.ResourceList":
            return f"cannot restore map from {source}"
        if wanted.startswith("v1."):
            return f"cannot restore struct from: {source}"
        return f"unrecognized type: {wanted}"


def _written(value: Any) -> str:
    """JSON data as Go source code."""
    if isinstance(value, dict):
        pairs = (f"{json.dumps(name)}:{_written(value[name])}" for name in sorted(value))
        return f"map[string]interface {{}}{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_written, value))}}}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return "interface {}(nil)" if value is None else shown(value)


def shown(value: Any) -> str:
    """JSON data in Go's notation."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{shown(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(shown, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = float(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < _LONG:
        value = int(value)
    return "<nil>" if value is None else str(value)
