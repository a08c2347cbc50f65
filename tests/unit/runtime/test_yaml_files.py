"""YAML that a user wrote."""

from __future__ import annotations

import pytest

from kueuelib.errors import ConfigError
from kueuelib.runtime.yaml_files import documents


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3\n", "key a in line 3 is also in line 1"),
        ("- x:\n    c: 1\n    'c': 1\n", "key c in line 3 is also in line 2"),
        ("a: 1\n---\nb: {c: 1, c: 2}\n", "key c in line 3 is also in line 3"),
    ],
)
def test_a_key_that_is_there_twice_is_refused(text: str, problem: str) -> None:
    """One of the two values would be lost without a word."""
    with pytest.raises(ConfigError, match=problem):
        documents(text, "some.yaml")


def test_the_same_key_elsewhere_and_in_a_merge_is_fine() -> None:
    text = "a: &a {b: 1, c: 2}\nd: {<<: *a, b: 3}\n---\na: [{b: 1}, {b: 2}]\n1: x\n'1': y\n"
    assert documents(text, "some.yaml") == [
        {"a": {"b": 1, "c": 2}, "d": {"b": 3, "c": 2}},
        {"a": [{"b": 1}, {"b": 2}], 1: "x", "1": "y"},
    ]
