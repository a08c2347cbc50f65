"""The decay of past usage: the older it is, the less it counts (KEP-4136).

After a half-life, half of an amount is left. With constant demand, past usage approaches the demand
by half of the difference in each half-life. Amounts are whole billionths, the finest step of a
Kubernetes quantity, and are rounded down. Equal histories give equal amounts on every machine,
because floats are used only for instants.
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
"""The number of half-lives after which nothing is left of any possible amount."""


@lru_cache(maxsize=1024)
def left(elapsed: float, half_life: float) -> int:
    """The remaining part of an amount, in 2^64ths.

    Args:
        elapsed: seconds, not negative.
        half_life: seconds; with 0 nothing is ever left.
    """
    halvings = Fraction(elapsed) / Fraction(half_life) if half_life else _HALVINGS
    if halvings >= _HALVINGS:
        return 0
    whole, rest = divmod(halvings, 1)
    power = _DIGITS.divide(Decimal(rest.numerator), Decimal(rest.denominator))
    part = _DIGITS.exp(_DIGITS.multiply(power, -_LN_2))
    return int(_DIGITS.multiply(part, Decimal(ONE))) >> whole


def decayed(amounts: Nanos, elapsed: float, half_life: float) -> dict[str, int]:
    """The remaining past usage.

    Args:
        amounts: the earlier amounts.
        elapsed: seconds since then.
        half_life: seconds.
    """
    return times(amounts, left(elapsed, half_life))


def gained(amounts: Nanos, elapsed: float, half_life: float) -> dict[str, int]:
    """The past usage from constant use of some amounts; 0 with a half-life of 0.

    Args:
        amounts: the amounts in use.
        elapsed: seconds of use.
        half_life: seconds.
    """
    return times(amounts, ONE - left(elapsed, half_life)) if half_life else {}


def times(amounts: Nanos, factor: int) -> dict[str, int]:
    """Amounts times a factor in 2^64ths."""
    scaled = ((name, amount * factor // ONE) for name, amount in amounts.items())
    return {name: amount for name, amount in scaled if amount}


def total(parts: Iterable[Nanos]) -> dict[str, int]:
    """The sum of several amounts."""
    sums: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            sums[name] = sums.get(name, 0) + amount
    return {name: amount for name, amount in sums.items() if amount}
