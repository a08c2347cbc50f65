"""What is left of past usage: the older it is, the less it counts (KEP-4136).

After a half-life, half of an amount is left; the past usage of constant demand approaches it, half
of the way in each half-life. Amounts are whole billionths, the finest step of a quantity of
Kubernetes, and are rounded down. Equal histories give equal amounts on every machine: no float
takes part, but for the given instants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

Nanos = Mapping[str, int]
"""Billionths of each resource, without zeros."""

Value = Fraction | float
"""Past usage as one number; the only float is infinity, for weight 0."""

UNUSED: Final[Value] = Fraction(0)
"""The usage of an unknown LocalQueue."""

ONE: Final = 2**64
"""The scale of factors."""

_DIGITS: Final = Context(prec=40)
_LN_2: Final = _DIGITS.ln(Decimal(2))
_HALVINGS: Final = 128
"""After so many half-lives nothing is left of any amount that an object can hold."""


@lru_cache(maxsize=1024)
def left(elapsed: float, half_life: float) -> int:
    """Which part of an amount is left, in 2^64ths.

    Args:
        elapsed: seconds, not negative.
        half_life: seconds; with 0 nothing is left, not even at once.
    """
    halvings = Fraction(elapsed) / Fraction(half_life) if half_life else _HALVINGS
    if halvings >= _HALVINGS:
        return 0
    whole, rest = divmod(halvings, 1)
    power = _DIGITS.divide(Decimal(rest.numerator), Decimal(rest.denominator))
    part = _DIGITS.exp(_DIGITS.multiply(power, -_LN_2))
    return int(_DIGITS.multiply(part, Decimal(ONE))) >> whole


def decayed(amounts: Nanos, elapsed: float, half_life: float) -> dict[str, int]:
    """What is left of past usage.

    Args:
        amounts: what it was.
        elapsed: how many seconds ago.
        half_life: seconds.
    """
    return times(amounts, left(elapsed, half_life))


def gained(amounts: Nanos, elapsed: float, half_life: float) -> dict[str, int]:
    """What the use of some amounts all the time adds; with a half-life of 0 nothing counts.

    Args:
        amounts: what was in use.
        elapsed: for how many seconds.
        half_life: seconds.
    """
    return times(amounts, ONE - left(elapsed, half_life)) if half_life else {}


def times(amounts: Nanos, factor: int) -> dict[str, int]:
    """A part of some amounts; the factor is in 2^64ths."""
    scaled = ((name, amount * factor // ONE) for name, amount in amounts.items())
    return {name: amount for name, amount in scaled if amount}


def total(parts: Iterable[Nanos]) -> dict[str, int]:
    """The sum of several amounts."""
    sums: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            sums[name] = sums.get(name, 0) + amount
    return {name: amount for name, amount in sums.items() if amount}
