"""Patterns in linear time agree with Python's own engine, whatever it would take that one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kueuelib.embedded.cel.budget import Budget
from kueuelib.embedded.cel.errors import BudgetExceeded
from kueuelib.embedded.cel.regex import BadPattern, compile_pattern

PATTERNS = (
    "a*b", "^a(b|c)*d$", "(a|ab)(c|bcd)(d*)", "x*", "[^ab]+", "a{2,3}", "a{2,3}?", "(?i)AbC",
    r"\bfoo\b", "a.c", "(a*)*b", "^$", "", r"\d+-\w*", "[a-c]+?c", "(?:a|b)+", "[]a]+",
    r"[a\-z]+", "a|b|", "(?s)a.b", "(?m)^b$", r"\Bo", "(a|b)*?c", "a??b", "{a", "a{,2}",
)  # fmt: skip


def free(_: int) -> None:
    """Takes no payment."""


@given(st.sampled_from(PATTERNS), st.text("abcdABCxfo1-]\n [{,2}", max_size=12))
def test_matches_are_found_where_python_finds_them(pattern: str, text: str) -> None:
    if pattern.endswith("$") and text.endswith("\n"):
        return  # Python's `$` also matches before a last line break
    if pattern == "a{,2}":
        return  # a count without a lower bound is plain text in Go
    expected = re.search(pattern, text)
    compiled = compile_pattern(pattern)
    assert compiled.matches(text, free) is (expected is not None)
    assert compiled.find(text, 0, free) == (None if expected is None else expected.span())


@pytest.mark.parametrize(
    "pattern",
    ["(", "a**", "[", "(?=a)", "(?<!a)b", r"\1", "a{1001}", ")", "\\", "(?P<1>a)", "[b-a]",
     r"\pX", "x{5,2}", "((a{100}){100}){100}", "(" * 70 + ")" * 70, "(?", "[[:nope:]]",
     "*a", r"\8"],
)  # fmt: skip
def test_what_go_does_not_take_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern, match="error parsing regexp"):
        compile_pattern(pattern)


@given(st.text(r"ab()[]{}*+?|\^$.,:<>-i1pPLdQE", max_size=20), st.text("ab1-", max_size=8))
def test_any_text_is_a_pattern_or_refused(pattern: str, text: str) -> None:
    try:
        compiled = compile_pattern(pattern)
    except BadPattern:
        return
    found = compiled.find(text, 0, free)
    assert compiled.matches(text, free) is (found is not None)


def test_hostile_patterns_take_linear_time() -> None:
    steps: list[int] = []
    assert not compile_pattern("(a|a)*(a|aa)*(a*)*b").matches("a" * 20_000, steps.append)
    assert sum(steps) < 100_000
    assert compile_pattern("(x+x+)+y").find("x" * 2_000, 0, free) is None


def test_searching_is_paid_for() -> None:
    budget = Budget(100)
    with pytest.raises(BudgetExceeded):
        compile_pattern("(x+x+)+y").find("x" * 2_000, 0, budget.spend)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a*", "baac", ["", "aa", ""]),
        ("[0-9]+", "12ab345", ["12", "345"]),
        (r"\p{Lu}\p{Ll}+", "Äpfel und Birnen", ["Äpfel", "Birnen"]),
        (r"\Qa.b\E", "a.b axb", ["a.b"]),
        ("(?U)a+", "aaa", ["a", "a", "a"]),
        (r"[[:alpha:]\d]+", "a1-b", ["a1", "b"]),
        (r"\x41|\x{42}|\103", "ABC", ["A", "B", "C"]),
    ],
)
def test_every_match_is_found(pattern: str, text: str, found: Any) -> None:
    assert list(compile_pattern(pattern).find_all(text, free)) == found
