"""Exact quantities, and the formats of names."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import attrs

from kueuelib.api.quantity import Quantity
from kueuelib.embedded.builtins import naming
from kueuelib.embedded.cel.budget import traversal
from kueuelib.embedded.cel.errors import EvalError
from kueuelib.embedded.cel.library import Library
from kueuelib.embedded.cel.network import parse_url, parses
from kueuelib.embedded.cel.times import parse_timestamp
from kueuelib.embedded.cel.values import INT_MAX, INT_MIN, NANO, NONE, Optional
from kueuelib.embedded.schema.formats import fits
from kueuelib.errors import InvalidQuantity

QUANTITY: Final = "kubernetes.Quantity"


def _parse(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except InvalidQuantity:
        raise EvalError(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from None


def _is_integer(value: Quantity) -> bool:
    return value.nanos % NANO == 0 and INT_MIN <= value.nanos // NANO <= INT_MAX


def _as_integer(value: Quantity) -> int:
    if not _is_integer(value):
        raise EvalError("cannot convert value to integer")
    return value.nanos // NANO


def _as_float(value: Quantity) -> float:
    try:
        return float(value.fraction())
    except OverflowError:
        raise EvalError("cannot convert value to a floating point number") from None


def install(library: Library) -> None:
    """Adds them."""
    function, method = library.function, library.method
    function("quantity", "string", QUANTITY, _parse, traversal)
    function("isQuantity", "string", "bool", parses(_parse), traversal)
    method("sign", QUANTITY, "int", lambda value: (value.nanos > 0) - (value.nanos < 0))
    method("isInteger", QUANTITY, "bool", _is_integer)
    method("asInteger", QUANTITY, "int", _as_integer)
    method("asApproximateFloat", QUANTITY, "double", _as_float)
    pair = f"{QUANTITY};{QUANTITY}"
    method("isGreaterThan", pair, "bool", lambda a, b: a.nanos > b.nanos)
    method("isLessThan", pair, "bool", lambda a, b: a.nanos < b.nanos)
    method("compareTo", pair, "int", lambda a, b: (a.nanos > b.nanos) - (a.nanos < b.nanos))
    method("add", pair, QUANTITY, lambda a, b: a + b)
    method("sub", pair, QUANTITY, lambda a, b: a - b)
    method("add", f"{QUANTITY};int", QUANTITY, lambda a, b: a + Quantity.of(b))
    method("sub", f"{QUANTITY};int", QUANTITY, lambda a, b: a - Quantity.of(b))
    kind = "kubernetes.NamedFormat"
    for name in _FORMATS:
        function(f"format.{name}", "", kind, partial(NamedFormat, name))
    function("format.named", "string", f"optional<{kind}>", _named)
    pair, result = f"{kind};string", "optional<list<string>>"
    method("validate", pair, result, _validate, lambda _, text: len(text) + 1)


# ---- formats of names


@attrs.frozen
class NamedFormat:
    """`format.dns1123Label()`."""

    name: str
    cel_type = "kubernetes.NamedFormat"


def _prefixed(check: Callable[[str], list[str]], text: str) -> list[str]:
    return check(f"{text[:-1]}a" if text.endswith("-") else text)


def _as(kind: str, problem: str) -> Callable[[str], list[str]]:
    return lambda text: [] if fits(kind, text) else [problem]


def _parsed(parse: Callable[[str], object], problem: str = "") -> Callable[[str], list[str]]:
    """The problem of a text that the parser refuses; empty if there is none."""

    def check(text: str) -> list[str]:
        try:
            parse(text)
        except (EvalError, binascii.Error, ValueError) as error:
            return [problem or str(error)]
        return []

    return check


_DECODE: Final = partial(base64.b64decode, validate=True)
_FORMATS: Mapping[str, Callable[[str], list[str]]] = {
    "dns1123Label": naming.label,
    "dns1123Subdomain": naming.subdomain,
    "dns1035Label": naming.label_1035,
    "qualifiedName": naming.qualified_name,
    "dns1123LabelPrefix": partial(_prefixed, naming.label),
    "dns1123SubdomainPrefix": partial(_prefixed, naming.subdomain),
    "dns1035LabelPrefix": partial(_prefixed, naming.label_1035),
    "labelValue": naming.label_value,
    "uri": _parsed(parse_url),
    "uuid": _as("uuid", "does not match the UUID format"),
    "byte": _parsed(_DECODE, "invalid base64"),
    "date": _as("date", "invalid date"),
    "datetime": _parsed(parse_timestamp, "invalid datetime"),
}


def _validate(format_: NamedFormat, text: str) -> Optional:
    problems = _FORMATS[format_.name](text)
    return Optional(problems) if problems else NONE


def _named(name: str) -> Optional:
    return Optional(NamedFormat(name)) if name in _FORMATS else NONE
