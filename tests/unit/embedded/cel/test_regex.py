"""Patterns are those of Go."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kueuelib.embedded.cel.regex import BadPattern, compile_pattern

PATTERNS = (
    "a*b", "^a(b|c)*d$", "(a|ab)(c|bcd)(d*)", "x*", "[^ab]+", "a{2,3}", "a{2,3}?", "(?i)AbC",
    r"\bfoo\b", "a.c", "(a*)*b", "^$", "", r"\d+-\w*", "[a-c]+?c", "(?:a|b)+", "[]a]+",
    r"[a\-z]+", "a|b|", "(?s)a.b", "(?m)^b$", r"\Bo", "(a|b)*?c", "a??b", "{a", r"\\C",
)  # fmt: skip


@given(st.sampled_from(PATTERNS), st.text("abcdABCxfo1-]ä\\\n [{,2}", max_size=12))
def test_matches_are_found_where_python_finds_them(pattern: str, text: str) -> None:
    if pattern.endswith("$") and text.endswith("\n"):
        return  # Python's `$` also matches before a last line break
    expected = re.search(pattern, text, re.ASCII)
    compiled = compile_pattern(pattern)
    assert compiled.matches(text) is (expected is not None)
    first = next(compiled.find_all(text), None)
    assert first == (None if expected is None else expected.group())


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("a(", "missing closing ): `a(`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("[a", "missing closing ]: `[a`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a)", "unexpected ): `a)`"),
        ("\\", "trailing backslash at end of expression: ``"),
        ("[b-a]", "invalid character class range: `b-a`"),
        (r"\pX", r"invalid character class range: `\pX`"),
        ("[[:nope:]]", "invalid character class range: `[:nope:]`"),
        ("*a", "missing argument to repetition operator: `*`"),
        (r"\C", r"invalid escape sequence: `\C`"),
        (r"\Z", r"invalid escape sequence: `\Z`"),
    ],
)
def test_what_go_does_not_take_is_refused_in_its_words(pattern: str, problem: str) -> None:
    with pytest.raises(BadPattern) as refused:
        compile_pattern(pattern)
    assert str(refused.value) == f"error parsing regexp: {problem}"


@pytest.mark.parametrize("pattern", ["((a{100}){100}){100}", "a" * 20_000, "(?P<a-b>x)"])
def test_what_is_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern, match="error parsing regexp"):
        compile_pattern(pattern)


@given(st.text(r"ab()[]{}*+?|\^$.,:<>-i1pPLdQE", max_size=20), st.text("ab1-", max_size=8))
def test_any_text_is_a_pattern_or_refused(pattern: str, text: str) -> None:
    try:
        compiled = compile_pattern(pattern)
    except BadPattern:
        return
    found = next(compiled.find_all(text), None)
    assert compiled.matches(text) is (found is not None)


def test_a_text_that_is_not_unicode_is_searched() -> None:
    assert compile_pattern("a").matches("\ud800a")
    assert list(compile_pattern("a").find_all("\ud800a")) == ["a"]


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a*", "baac", ["", "aa", ""]),
        ("x*", "äx", ["", "x"]),
        ("[0-9]+", "12ab345", ["12", "345"]),
        (r"\p{Lu}\p{Ll}+", "Äpfel und Birnen", ["Äpfel", "Birnen"]),
        (r"\Qa.b\E", "a.b axb", ["a.b"]),
        ("(?U)a+", "aaa", ["a", "a", "a"]),
        (r"[[:alpha:]\d]+", "a1-b", ["a1", "b"]),
        (r"\x41|\x{42}|\103", "ABC", ["A", "B", "C"]),
        ("a{,2}", "aa{,2}", ["a{,2}"]),
        ("(?P<1>a)", "a", ["a"]),
    ],
)
def test_every_match_is_found(pattern: str, text: str, found: Any) -> None:
    assert list(compile_pattern(pattern).find_all(text)) == found
