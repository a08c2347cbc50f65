from __future__ import annotations

from kueuelib.machinery.store import RECENT_TEXTS, once


def test_equal_texts_are_one_and_old_ones_are_forgotten() -> None:
    first = once(b"abcd".decode())
    assert once(b"abcd".decode()) is first
    for number in range(RECENT_TEXTS):
        once(f"text {number}")
    assert once(b"abcd".decode()) is not first
