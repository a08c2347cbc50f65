from __future__ import annotations

import pytest

from kueuelib.api.quantity import (
    MAX_AMOUNT,
    Quantity,
    amount_of,
    format_amount,
)
from kueuelib.errors import InvalidQuantity


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("0Gi", "0"),
        ("1", "1"),
        ("+1", "1"),
        ("-1", "-1"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1.5", "1500m"),
        (".5", "500m"),
        ("5.", "5"),
        ("0.1u", "100n"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("1000", "1k"),
        ("1000000", "1M"),
        ("1100", "1100"),
        ("1E", "1E"),
        ("2000E", "2000E"),
        ("1e3", "1e3"),
        ("12E6", "12e6"),
        ("1e2", "100"),
        ("1e-1", "100e-3"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("2048Ei", "2048Ei"),
        ("0.0001Ki", "102400u"),
        ("1023Mi", "1023Mi"),
    ],
)
def test_texts_are_printed_canonically_in_their_own_family(text, canonical):
    assert str(Quantity.parse(text)) == canonical


NO_QUANTITIES = """
one 1K 1ki 1KI 1mi 1e 1e1.5 --1 1.2.3 . 1Gi2 1e99999 0x1 1_000 NaN inf \u0663
"""


@pytest.mark.parametrize("text", ["", " ", "1 ", " 1", *NO_QUANTITIES.split()])
def test_what_is_no_quantity_is_refused_with_the_text_in_the_message(text):
    with pytest.raises(InvalidQuantity) as refused:
        Quantity.parse(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize("value", [True, None, [], {}])
def test_values_of_other_types_are_refused(value):
    with pytest.raises(InvalidQuantity):
        Quantity.parse(value)


def test_numbers_of_json_are_taken_as_they_were_written():
    assert Quantity.parse(3) == Quantity.of(3)
    assert Quantity.parse(0.1) == Quantity.of_milli(100)
    assert str(Quantity.parse(2.0)) == "2"


def test_quantities_of_different_families_are_equal_by_value():
    assert Quantity.parse("1Ki") == Quantity.parse("1024")
    assert len({Quantity.parse("1"), Quantity.parse("1000m"), Quantity.parse("1e0")}) == 1


def test_a_sum_keeps_the_family_of_its_first_part_that_is_not_zero():
    assert str(Quantity.parse("1Gi") + Quantity.parse("1073741824")) == "2Gi"
    assert str(Quantity.parse("0") + Quantity.parse("1Gi")) == "1Gi"


@pytest.mark.parametrize(
    ("resource", "text", "amount", "printed"),
    [
        ("cpu", "1.5", 1500, "1500m"),
        ("cpu", "100u", 1, "1m"),
        ("cpu", "1.0005", 1001, "1001m"),
        ("cpu", "2", 2000, "2"),
        ("cpu", "1000", 1000000, "1k"),
        ("memory", "1500m", 2, "2"),
        ("memory", "1Gi", 2**30, "1Gi"),
        ("memory", "1.5Gi", 3 * 2**29, "1536Mi"),
        ("memory", "1000000", 1000000, "1000000"),
        ("ephemeral-storage", "2Ki", 2048, "2Ki"),
        ("hugepages-2Mi", "4Mi", 4 * 2**20, "4Mi"),
        ("nvidia.com/gpu", "4", 4, "4"),
        ("nvidia.com/gpu", "1k", 1000, "1k"),
        ("pods", "500m", 1, "1"),
    ],
)
def test_scheduling_counts_in_the_unit_of_the_resource(resource, text, amount, printed):
    assert amount_of(resource, Quantity.parse(text)) == amount
    assert format_amount(resource, amount) == printed


def test_amounts_that_the_api_cannot_hold_are_cut_to_the_largest_one():
    assert format_amount("pods", 2**70) == str(MAX_AMOUNT)
    assert format_amount("pods", -(2**70)) == str(-MAX_AMOUNT)


@pytest.mark.parametrize("text", ["1Gi", 1.5])
def test_a_text_instead_of_nano_units_is_refused_with_the_call_that_parses_it(text: object) -> None:
    with pytest.raises(InvalidQuantity, match=rf"write Quantity.parse\({text!r}\)"):
        Quantity(text)  # type: ignore[arg-type]
