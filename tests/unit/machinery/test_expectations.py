"""A controller waits for its own writes, but not for ever."""

from __future__ import annotations

from kueuelib.machinery.expectations import Expectations


def test_a_key_is_satisfied_when_each_fact_was_observed():
    waiting = Expectations()
    assert waiting.satisfied("a", 0.0)
    waiting.expect("a", ["u1", "u2"], 0.0)
    waiting.observed("a", "u1")
    waiting.observed("a", "unknown")
    assert not waiting.satisfied("a", 1.0)
    assert waiting.missing("a") == {"u2"}
    waiting.observed("a", "u2")
    assert waiting.satisfied("a", 1.0)
    assert len(waiting) == 0


def test_an_overdue_fact_is_given_up():
    waiting = Expectations(timeout=10.0)
    waiting.expect("a", ["u1"], 0.0)
    waiting.expect("a", ["u2"], 5.0)
    assert waiting.deadline("a") == 15.0
    assert not waiting.satisfied("a", 10.0)
    assert waiting.missing("a") == {"u2"}
    assert waiting.satisfied("a", 15.0)
    assert waiting.deadline("a") is None


def test_keys_do_not_mix_and_can_be_forgotten():
    waiting = Expectations()
    waiting.expect("a", ["u"], 0.0)
    waiting.expect("b", ["u"], 0.0)
    waiting.expect("c", [], 0.0)
    waiting.observed("a", "u")
    assert not waiting.satisfied("b", 0.0)
    assert waiting.satisfied("c", 0.0)
    waiting.forget("b")
    assert waiting.satisfied("b", 0.0)
