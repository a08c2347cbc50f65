from __future__ import annotations

from kueuelib.machinery import texts


def test_equal_texts_are_one_and_old_ones_are_forgotten() -> None:
    first = texts.once(b"abcd".decode())
    assert texts.once(b"abcd".decode()) is first
    for number in range(texts.RECENT):
        texts.once(f"text {number}")
    assert texts.once(b"abcd".decode()) is not first
