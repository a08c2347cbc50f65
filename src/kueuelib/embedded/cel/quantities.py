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
from kueuelib.embedded.cel.network import parse_url
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


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except InvalidQuantity:
        return False
    return True


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


def _sign(value: Quantity) -> int:
    return (value.nanos > 0) - (value.nanos < 0)


def _units(amount: int) -> Quantity:
    return Quantity.of(amount)


def install(library: Library) -> None:
    """Adds them."""
    function, method = library.function, library.method
    function("quantity", "string", QUANTITY, _parse, traversal)
    function("isQuantity", "string", "bool", _is_quantity, traversal)
    method("sign", QUANTITY, "int", _sign)
    method("isInteger", QUANTITY, "bool", _is_integer)
    method("asInteger", QUANTITY, "int", _as_integer)
    method("asApproximateFloat", QUANTITY, "double", _as_float)
    pair = f"{QUANTITY};{QUANTITY}"
    method("isGreaterThan", pair, "bool", lambda a, b: a.nanos > b.nanos)
    method("isLessThan", pair, "bool", lambda a, b: a.nanos < b.nanos)
    method("compareTo", pair, "int", lambda a, b: (a.nanos > b.nanos) - (a.nanos < b.nanos))
    method("add", pair, QUANTITY, lambda a, b: a + b)
    method("sub", pair, QUANTITY, lambda a, b: a - b)
    method("add", f"{QUANTITY};int", QUANTITY, lambda a, b: a + _units(b))
    method("sub", f"{QUANTITY};int", QUANTITY, lambda a, b: a - _units(b))
    _install_formats(library)


# ---- formats of names


@attrs.frozen
class NamedFormat:
    """`format.dns1123Label()`."""

    name: str
    cel_type = "kubernetes.NamedFormat"


def _prefixed(check: Callable[[str], list[str]], text: str) -> list[str]:
    return check(f"{text[:-1]}a" if text.endswith("-") else text)


def _uri(text: str) -> list[str]:
    try:
        parse_url(text)
    except EvalError as error:
        return [str(error)]
    return []


def _base64(text: str) -> list[str]:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return ["invalid base64"]
    return []


def _date(text: str) -> list[str]:
    return [] if fits("date", text) else ["invalid date"]


def _datetime(text: str) -> list[str]:
    try:
        parse_timestamp(text)
    except EvalError:
        return ["invalid datetime"]
    return []


def _uuid(text: str) -> list[str]:
    return [] if fits("uuid", text) else ["does not match the UUID format"]


_FORMATS: Mapping[str, Callable[[str], list[str]]] = {
    "dns1123Label": lambda text: list(naming.label(text)),
    "dns1123Subdomain": lambda text: list(naming.subdomain(text)),
    "dns1035Label": lambda text: list(naming.label_1035(text)),
    "qualifiedName": lambda text: list(naming.qualified_name(text)),
    "dns1123LabelPrefix": partial(_prefixed, lambda text: list(naming.label(text))),
    "dns1123SubdomainPrefix": partial(_prefixed, lambda text: list(naming.subdomain(text))),
    "dns1035LabelPrefix": partial(_prefixed, lambda text: list(naming.label_1035(text))),
    "labelValue": lambda text: list(naming.label_value(text)),
    "uri": _uri,
    "uuid": _uuid,
    "byte": _base64,
    "date": _date,
    "datetime": _datetime,
}


def _validate(format_: NamedFormat, text: str) -> Optional:
    problems = _FORMATS[format_.name](text)
    return Optional(problems) if problems else NONE


def _named(name: str) -> Optional:
    return Optional(NamedFormat(name)) if name in _FORMATS else NONE


def _install_formats(library: Library) -> None:
    kind = "kubernetes.NamedFormat"
    for name in _FORMATS:
        library.function(f"format.{name}", "", kind, partial(NamedFormat, name))
    library.function("format.named", "string", f"optional<{kind}>", _named)
    library.method("validate", f"{kind};string", "optional<list<string>>", _validate, _cost)


def _cost(_: NamedFormat, text: str) -> int:
    return len(text) + 1
