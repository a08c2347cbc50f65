"""Quantities against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from kueuelib.api.quantity import Quantity, amount_of, format_amount

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
    **{f"{e}{n}": Fraction(10) ** n for e in "eE" for n in range(-12, 13)},
    "e+3": Fraction(1000),
}
NANO = 10**9


def away_from_zero(value: Fraction) -> int:
    return math.ceil(value) if value >= 0 else math.floor(value)


@st.composite
def texts(draw):
    """A quantity's text and its exact value, rounded to nano as Kubernetes does."""
    digits = st.text("0123456789", min_size=0, max_size=12)
    whole, places = draw(digits), draw(digits)
    if not whole and not places:
        whole = "7"
    number = whole + ("." + places if places or (whole and draw(st.booleans())) else "")
    sign = draw(st.sampled_from(["", "+", "-"]))
    suffix = draw(st.sampled_from(sorted(SUFFIXES)))
    padded = Fraction(int((whole or "0") + places), 10 ** len(places))
    exact = padded * SUFFIXES[suffix] * (-1 if sign == "-" else 1)
    return sign + number + suffix, Fraction(away_from_zero(exact * NANO), NANO)


quantities = texts().map(lambda pair: Quantity.parse(pair[0]))


@given(texts())
def test_a_text_is_worth_exactly_what_it_says(pair):
    text, value = pair
    assert Quantity.parse(text).fraction() == value


@given(texts())
def test_the_canonical_text_keeps_value_and_family_and_is_stable(pair):
    quantity = Quantity.parse(pair[0])
    again = Quantity.parse(str(quantity))
    assert again == quantity
    assert str(again) == str(quantity)


@given(quantities, quantities, st.integers(-1000, 1000))
def test_arithmetic_and_order_are_those_of_fractions(one, other, times):
    assert (one + other).fraction() == one.fraction() + other.fraction()
    assert (one - other).fraction() == one.fraction() - other.fraction()
    assert (one * times).fraction() == one.fraction() * times
    assert (-one).fraction() == -one.fraction()
    assert (one < other) == (one.fraction() < other.fraction())
    assert (one == other) == (one.fraction() == other.fraction())
    assert bool(one) == (one.fraction() != 0)


@given(quantities)
def test_whole_numbers_are_rounded_away_from_zero(quantity):
    assert quantity.value() == away_from_zero(quantity.fraction())
    assert quantity.milli() == away_from_zero(quantity.fraction() * 1000)


@given(quantities, quantities)
def test_equal_quantities_have_equal_hashes(one, other):
    twin = Quantity(one.nanos, other.format)
    assert twin == one
    assert hash(twin) == hash(one)


@given(
    st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"]),
    st.integers(-(2**63) + 1, 2**63 - 1),
)
def test_scheduling_amounts_survive_the_wire(resource, amount):
    assert amount_of(resource, Quantity.parse(format_amount(resource, amount))) == amount
