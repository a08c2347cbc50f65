"""Delta debugging keeps what is needed and drops the rest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kueuelib.testing.storm.campaign import ddmin

LABELS = tuple(f"fault-{number}" for number in range(40))


@given(st.sets(st.sampled_from(LABELS), max_size=4))
def test_what_is_needed_together_is_found(needed: set[str]) -> None:
    found = ddmin(LABELS, lambda kept: needed <= kept, tries=10_000)
    assert set(found) == needed


def test_the_order_is_kept() -> None:
    needed = {"fault-3", "fault-30", "fault-7"}
    assert ddmin(LABELS, needed.issubset, tries=1000) == ("fault-3", "fault-7", "fault-30")


def test_the_number_of_tries_is_bounded_and_the_result_still_fails() -> None:
    tried = []
    needed = {"fault-3", "fault-30"}

    def fails(kept: frozenset[str]) -> bool:
        tried.append(kept)
        return needed <= kept

    found = ddmin(LABELS, fails, tries=5)
    assert len(tried) <= 5
    assert needed <= set(found)


def test_nothing_to_leave_out_stays_nothing() -> None:
    assert ddmin((), lambda _: True) == ()
