"""Exact Kubernetes quantities: `1`, `100m`, `1.5Gi`, `1e3`.

A quantity is a whole number of nano units, which is the finest step Kubernetes knows, and the
family of suffixes it was written in. There is no float anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Literal

import attrs

from kueuelib.api.struct import frozen
from kueuelib.errors import InvalidQuantity

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
"""The pattern of a quantity in API schemas; it allows a little more than can be parsed."""

NOT_NEGATIVE: Final[Mapping[str, Any]] = {
    "minimum": 0,
    "pattern": PATTERN.replace(r"^(\+|-)?", r"^\+?", 1),
}
"""Keywords of the schema of a quantity that is 0 or more, as a number and as text."""

MAX_AMOUNT: Final = 2**63 - 1
"""The largest amount that is written to the API."""

_NANO: Final = 10**9
_MICRO_OF_MILLI: Final = 10**6
_DECIMAL: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX: Final = ("", *_BINARY)
_LARGEST_EXPONENT: Final = 400
_LONGEST: Final = 1000
"""The maximum number of characters in a quantity that is read."""
_SHAPE: Final = re.compile(
    r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))"
    r"(?:([KMGTPE]i)|[eE]([+-]?[0-9]+)|([numkMGTPE]?))",
    re.ASCII,
)


def _away_from_zero(amount: int, unit: int) -> int:
    """`amount / unit`, rounded away from zero."""
    return -(-amount // unit) if amount >= 0 else amount // unit


def _check_nanos(_: Any, __: Any, given: Any) -> None:
    if not isinstance(given, int):
        fix = f"write Quantity.parse({given!r})"
        raise InvalidQuantity(f"Quantity({given!r}): the argument is a number of nano units; {fix}")


@frozen(order=True)
class Quantity:
    """An exact amount; equal, ordered and hashed by value, whatever its format.

    `Quantity.parse("1Gi")` and `Quantity.of(3)` make one.

    Attributes:
        nanos: the amount in units of 10^-9.
        format: the family of suffixes used for printing.
    """

    nanos: int = attrs.field(validator=_check_nanos)
    format: Format = attrs.field(default="DecimalSI", eq=False, order=False)

    @classmethod
    def parse(cls, text: str | float) -> Quantity:
        """The quantity of a text, or of a number as JSON delivers it.

        Digits finer than nano are rounded away from zero, as Kubernetes does.

        Raises:
            InvalidQuantity: the text is not a quantity.
        """
        if isinstance(text, str):
            return _parse(text)
        if isinstance(text, bool):
            raise InvalidQuantity(f"{text!r} is not a quantity")
        if isinstance(text, int):
            return cls(text * _NANO)
        if isinstance(text, float):
            return _parse(repr(text))
        raise InvalidQuantity(f"{text!r} is not a quantity")

    @classmethod
    def of(cls, units: int, format: Format = "DecimalSI") -> Quantity:
        """The quantity of that many whole units."""
        return cls(units * _NANO, format)

    @classmethod
    def of_milli(cls, milli: int, format: Format = "DecimalSI") -> Quantity:
        """The quantity of that many thousandths."""
        return cls(milli * _MICRO_OF_MILLI, format)

    def value(self) -> int:
        """Whole units, rounded away from zero."""
        return _away_from_zero(self.nanos, _NANO)

    def milli(self) -> int:
        """Thousandths, rounded away from zero."""
        return _away_from_zero(self.nanos, _MICRO_OF_MILLI)

    def fraction(self) -> Fraction:
        """The exact value."""
        return Fraction(self.nanos, _NANO)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos + other.nanos, self.format if self.nanos else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos, self.format if self.nanos else other.format)

    def __mul__(self, times: int) -> Quantity:
        return Quantity(self.nanos * times, self.format)

    __rmul__ = __mul__

    def __neg__(self) -> Quantity:
        return Quantity(-self.nanos, self.format)

    def __str__(self) -> str:
        """The canonical text: the largest suffix that leaves a whole number."""
        return _canonical(self.nanos, self.format)


ZERO: Final = Quantity(0)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    match = _SHAPE.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise InvalidQuantity(
            f"{text[:_LONGEST]!r} is not a quantity; write a number with an optional suffix: "
            "500m, 2, 1.5Gi"
        )
    sign, whole, places, only_places, binary, exponent, decimal = match.groups()
    digits = places or only_places or ""
    number = int((whole or "0") + digits)
    numerator, denominator = number * _NANO, 10 ** len(digits)
    family: Format = "DecimalSI"
    if binary:
        family = "BinarySI"
        numerator <<= _BINARY[binary]
    else:
        if exponent is not None:
            family = "DecimalExponent"
        power = int(exponent) if exponent is not None else _DECIMAL[decimal or ""]
        if abs(power) > _LARGEST_EXPONENT:
            raise InvalidQuantity(f"{text!r} is not a quantity: its exponent is out of range")
        if power >= 0:
            numerator *= 10**power
        else:
            denominator *= 10**-power
    nanos = -(-numerator // denominator)
    return Quantity(-nanos if sign == "-" else nanos, family)


@lru_cache(maxsize=4096)
def _canonical(nanos: int, format: Format) -> str:
    if nanos == 0:
        return "0"
    if format == "BinarySI" and nanos % _NANO == 0 and abs(nanos) >= 1024 * _NANO:
        units, step = nanos // _NANO, 0
        while units % 1024 == 0 and step < len(_BINARY):
            units, step = units // 1024, step + 1
        return f"{units}{_BINARY_SUFFIX[step]}"
    amount, power = nanos, -9
    top = _LARGEST_EXPONENT if format == "DecimalExponent" else 18
    while amount % 1000 == 0 and power < top:
        amount, power = amount // 1000, power + 3
    if format == "DecimalExponent":
        return f"{amount}e{power}" if power else str(amount)
    return f"{amount}{_DECIMAL_SUFFIX[power]}"


def is_binary(resource_name: str) -> bool:
    """Whether amounts of the resource are printed with binary suffixes."""
    return resource_name in ("memory", "ephemeral-storage") or resource_name.startswith(
        "hugepages-"
    )


def amount_of(resource_name: str, quantity: Quantity) -> int:
    """The integer that scheduling uses: thousandths for cpu, units for everything else."""
    return quantity.milli() if resource_name == "cpu" else quantity.value()


@lru_cache(maxsize=4096)
def quantity_of(resource_name: str, amount: int) -> Quantity:
    """The quantity of a scheduling amount, cut to what the API can hold."""
    amount = max(-MAX_AMOUNT, min(amount, MAX_AMOUNT))
    if resource_name == "cpu":
        return Quantity.of_milli(amount)
    return Quantity.of(amount, "BinarySI" if is_binary(resource_name) else "DecimalSI")


def format_amount(resource_name: str, amount: int) -> str:
    """The canonical text of a scheduling amount."""
    return str(quantity_of(resource_name, amount))
