"""Draws depend on seed, stream and label, on nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kueuelib.testing.storm.draws import Draws


def test_the_same_label_gives_the_same_result_whatever_was_drawn_before() -> None:
    first, second = Draws(7), Draws(7)
    second.unit("something else")
    assert first.unit("one") == second.unit("one")


def test_seeds_streams_and_labels_differ() -> None:
    values = {
        Draws(7).unit("one"),
        Draws(8).unit("one"),
        Draws(7).unit("two"),
        Draws(7).stream("faults").unit("one"),
        Draws(7).stream("faults").stream("more").unit("one"),
    }
    assert len(values) == 5


def test_the_results_are_fixed_for_ever() -> None:
    """A stored seed has to mean the same storm in each process and at each hash seed."""
    assert Draws(1).stream("faults").integer("label", 0, 10**6) == 955385


@given(st.integers(), st.text(), st.integers(-50, 50), st.integers(0, 50))
def test_integers_stay_within_their_bounds(seed: int, label: str, low: int, more: int) -> None:
    assert low <= Draws(seed).integer(label, low, low + more) <= low + more


@given(st.integers(), st.floats(0.001, 10), st.floats(1, 100))
def test_scaled_numbers_stay_within_their_bounds(seed: int, low: float, factor: float) -> None:
    found = Draws(seed).scaled("label", low, low * factor)
    assert low * 0.999 <= found <= low * factor * 1.001


def test_chances_come_true_as_often_as_they_say() -> None:
    draws = Draws(3)
    hits = sum(draws.chance(f"{number}", 0.25) for number in range(4000))
    assert 900 < hits < 1100


def test_choices_reach_every_option() -> None:
    draws = Draws(3)
    assert {draws.choice(str(number), "abc") for number in range(100)} == set("abc")


def test_nothing_to_choose_from_is_an_error() -> None:
    with pytest.raises(ValueError, match="no options"):
        Draws(1).choice("label", ())


def test_bounds_of_a_scaled_draw_are_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        Draws(1).scaled("label", 0, 1)
