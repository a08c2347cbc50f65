"""Conversions such as `int(x)` and `string(x)`."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

from kueuelib.embedded.cel import times
from kueuelib.embedded.cel.errors import EvalError, traversal
from kueuelib.embedded.cel.types import Library
from kueuelib.embedded.cel.values import (
    INT_MAX,
    INT_MIN,
    NANO,
    UINT_MAX,
    TypeValue,
    Uint,
    integer,
    moment,
    type_name,
    unsigned,
)

_WHOLE = re.compile(r"[+-]?[0-9]{1,25}")
_REAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_SPECIAL = re.compile(r"([+-]?)(inf|infinity)|nan", re.IGNORECASE)
_KINDS = ("int", "uint", "double", "bool", "string", "bytes", "timestamp", "duration")
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def same(value: Any) -> Any:
    """A value as it is."""
    return value


def format_double(value: float, plain_below: int = 6) -> str:
    """The shortest text of the number, like Go's `%g`.

    Args:
        value: the number.
        plain_below: the power of ten from which on an exponent is used.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) + exponent - 1
    if text == "0":
        return "-0" if sign else "0"
    if -4 <= power < plain_below:
        plain = format(Decimal(repr(value)), "f")
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02}"


def _whole(text: str, kind: str, low: int, high: int) -> int:
    if not _WHOLE.fullmatch(text) or (not low and text[0] in "+-"):
        raise EvalError(f'strconv.Parse{kind}: parsing "{text[:40]}": invalid syntax')
    if not low <= int(text) <= high:
        raise EvalError(f'strconv.Parse{kind}: parsing "{text[:40]}": value out of range')
    return int(text)


def _int_of_double(value: float) -> int:
    if math.isnan(value) or not -(2.0**63) < value < 2.0**63:
        raise EvalError("integer overflow")
    return int(value)


def _uint_of_double(value: float) -> Uint:
    if math.isnan(value) or not 0 <= value < 2.0**64:
        raise EvalError("unsigned integer overflow")
    return Uint(int(value))


def _double_of_text(text: str) -> float:
    if _REAL.fullmatch(text):
        value = float(text)
        if not math.isinf(value):
            return value
        raise EvalError(f'strconv.ParseFloat: parsing "{text[:40]}": value out of range')
    if _SPECIAL.fullmatch(text):
        return float(text)
    raise EvalError(f'strconv.ParseFloat: parsing "{text[:40]}": invalid syntax')


def _bool_of_text(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise EvalError(f'strconv.ParseBool: parsing "{text[:40]}": invalid syntax')


def _text_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvalError("invalid UTF-8 in bytes, cannot convert to string") from None


def add_conversions(library: Library) -> None:
    """Adds them to a library."""
    add = library.function
    for kind in _KINDS:
        add(kind, kind, kind, same)
    add("int", "uint", "int", lambda v: integer(int(v)))
    add("int", "double", "int", _int_of_double)
    add("int", "string", "int", lambda v: _whole(v, "Int", INT_MIN, INT_MAX))
    add("int", "timestamp", "int", lambda v: v.nanos // NANO)
    add("int", "duration", "int", lambda v: v.nanos)
    add("uint", "int", "uint", unsigned)
    add("uint", "double", "uint", _uint_of_double)
    add("uint", "string", "uint", lambda v: Uint(_whole(v, "Uint", 0, UINT_MAX)))
    add("double", "int", "double", float)
    add("double", "uint", "double", float)
    add("double", "string", "double", _double_of_text, traversal)
    add("bool", "string", "bool", _bool_of_text)
    add("string", "int", "string", str)
    add("string", "uint", "string", lambda v: str(int(v)))
    add("string", "double", "string", format_double)
    add("string", "bool", "string", lambda v: "true" if v else "false")
    add("string", "bytes", "string", _text_of_bytes, traversal)
    add("string", "timestamp", "string", times.format_timestamp)
    add("string", "duration", "string", times.format_duration)
    add("bytes", "string", "bytes", lambda v: v.encode(errors="replace"), traversal)
    add("timestamp", "string", "timestamp", times.parse_timestamp)
    add("timestamp", "int", "timestamp", lambda v: moment(v * NANO))
    add("duration", "string", "duration", times.parse_duration)
    add("dyn", "A", "dyn", same)
    add("type", "A", "type", lambda v: TypeValue(type_name(v)))
