from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kueuelib.scheduler.quota.decay import ONE, decayed, gained, left, total

SECONDS = st.one_of(
    st.integers(0, 10**7).map(float), st.floats(0, 10**5, allow_nan=False, allow_subnormal=False)
)
HALF_LIVES = st.integers(1, 10**6).map(float)
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(1, 10**21))


def naive(amount, elapsed, half_life):
    """An amount after a time, by halving it again and again; the rest is a power of a float."""
    while elapsed >= half_life and amount > 1:
        amount, elapsed = amount / 2, elapsed - half_life
    return float(amount) * 2.0 ** (-elapsed / half_life)


def test_half_is_left_after_each_half_life():
    assert [left(60.0 * n, 60.0) for n in range(4)] == [ONE, ONE // 2, ONE // 4, ONE // 8]


def test_without_a_half_life_nothing_counts():
    assert decayed({"cpu": 7}, 0.0, 0.0) == {}
    assert gained({"cpu": 7}, 100.0, 0.0) == {}


def test_the_smallest_amount_does_not_stay_for_ever():
    assert decayed({"cpu": 1}, 1.0, 10**6) == {}


def test_sums_have_no_zeros():
    assert total([{"a": 1, "b": 2}, {"b": -2, "c": 3}]) == {"a": 1, "c": 3}


@pytest.mark.parametrize("steps", [3, 12, 2016])
def test_a_factor_is_exact_to_its_last_bit(steps):
    """After one of n steps it is the nth root of a half, which whole numbers can check."""
    found = left(300.0, 300.0 * steps)
    assert found**steps <= ONE**steps // 2 < (found + 1) ** steps


@given(AMOUNTS, SECONDS, HALF_LIVES)
def test_what_is_left_is_what_halving_leaves(amounts, elapsed, half_life):
    found = decayed(amounts, elapsed, half_life)
    for name, amount in amounts.items():
        expected = naive(Fraction(amount), elapsed, half_life)
        rounding = 2 + amount * 2**-63
        assert found.get(name, 0) == pytest.approx(expected, rel=1e-9, abs=rounding)
        assert found.get(name, 0) <= amount


@given(AMOUNTS, SECONDS, SECONDS, HALF_LIVES)
def test_two_steps_come_to_the_same_as_one(amounts, first, second, half_life):
    once = decayed(amounts, Fraction(first) + Fraction(second), half_life)  # floats round a sum
    twice = decayed(decayed(amounts, first, half_life), second, half_life)
    for name, amount in amounts.items():
        assert abs(once.get(name, 0) - twice.get(name, 0)) <= 2 + amount * 2**-60


@given(AMOUNTS, SECONDS, HALF_LIVES)
def test_steady_use_stays_what_it_is(amounts, elapsed, half_life):
    found = total([decayed(amounts, elapsed, half_life), gained(amounts, elapsed, half_life)])
    for name, amount in amounts.items():
        assert amount - 1 <= found.get(name, 0) <= amount
