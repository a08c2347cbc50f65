"""The rate limiters of the work queue and the back-off of the reflector."""

from __future__ import annotations

import pytest

from kueuelib.machinery.backoff import Backoff, ItemExponential, ReconcilerBackoff, TokenBucket


def test_item_exponential_doubles_per_key_up_to_the_cap():
    limiter = ItemExponential()
    assert [limiter.when("a", 0.0) for _ in range(4)] == [0.005, 0.01, 0.02, 0.04]
    assert limiter.when("b", 0.0) == 0.005
    for _ in range(2000):
        last = limiter.when("a", 0.0)
    assert last == 60.0
    assert limiter.num_requeues("a") == 2004
    limiter.forget("a")
    assert limiter.when("a", 0.0) == 0.005


def test_a_conflict_costs_no_delay_of_the_author():
    limiter = ReconcilerBackoff(30.0, 100.0)
    assert [limiter.when("a", 0.0) for _ in range(3)] == [30.0, 60.0, 100.0]
    delays = []
    for _ in range(2):
        limiter.conflict("b")
        delays.append(limiter.when("b", 0.0))
    assert delays == [0.005, 0.01]
    assert limiter.when("b", 0.0) == 30.0, "a conflict is not counted as a failure"
    assert limiter.num_requeues("b") == 3
    limiter.conflict("b")
    limiter.forget("b")
    assert limiter.num_requeues("b") == 0
    assert limiter.when("b", 0.0) == 30.0


def test_reservations_of_a_bucket_queue_up_whatever_the_key():
    limiter = TokenBucket(10.0, 2)
    assert [limiter.when(key, 0.0) for key in "abcd"] == pytest.approx([0.0, 0.0, 0.1, 0.2])
    assert limiter.when("e", 0.2) == pytest.approx(0.1)
    assert limiter.when("f", 100.0) == 0.0
    assert limiter.num_requeues("a") == 0


def test_a_bucket_saves_no_more_than_its_burst_and_earns_nothing_backwards():
    limiter = TokenBucket(1.0, 2)
    limiter.when("a", 50.0)
    assert [limiter.when("a", 40.0) for _ in range(3)] == pytest.approx([0.0, 1.0, 2.0])


def test_taking_from_an_empty_bucket_reserves_nothing():
    bucket = TokenBucket(1.0, 1)
    assert bucket.take(0.0)
    assert not bucket.take(0.0)
    assert not bucket.take(0.5)
    assert bucket.take(1.0)


def test_a_backoff_grows_to_its_cap_and_jitter_stretches_it():
    backoff = Backoff()
    assert [backoff.next(0.0, 0.0) for _ in range(7)] == pytest.approx(
        [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    )
    assert backoff.next(0.0, 0.5) == pytest.approx(45.0)
    for _ in range(3000):
        assert backoff.next(0.0, 0.0) == 30.0


def test_a_backoff_starts_anew_after_a_reset_or_a_long_silence():
    backoff = Backoff()
    backoff.next(0.0, 0.0)
    assert backoff.next(120.0, 0.0) == 1.6
    assert backoff.next(241.0, 0.0) == 0.8
    backoff.reset()
    assert backoff.next(241.0, 0.0) == 0.8


@pytest.mark.parametrize(
    "wrong", [{"base": 0.0}, {"cap": 0.1}, {"factor": 0.5}, {"jitter": -1.0}, {"reset_after": 60.0}]
)
def test_a_backoff_that_cannot_work_is_refused(wrong):
    with pytest.raises(ValueError, match="must exceed|needs"):
        Backoff(**wrong)
