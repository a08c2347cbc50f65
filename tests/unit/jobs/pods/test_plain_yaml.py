"""Declarations are YAML 1.2 in its core schema, or JSON, and nothing but plain values."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.jobs.pods.declaration import NotPlain, read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("+5", 5),
        ("-5", -5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1_0", "1_0"),
        ("1:30", "1:30"),
        ("0b1", "0b1"),
        ("on", "on"),
        ("No", "No"),
        ("y", "y"),
        ("TRUE", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("Null", None),
        ("2001-12-14", "2001-12-14"),
        ("'010'", "010"),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ("= : on", {"=": "on"}),
        ("{on: 1, 010: 2, ~: 3}", {"on": 1, "10": 2, "null": 3}),
        ("%YAML 1.2\n---\n- a: [b, {c: d}]\n", [{"a": ["b", {"c": "d"}]}]),
        ('{\n\t"a": "\\ud83d\\ude00\\/"\n}', {"a": "\N{GRINNING FACE}/"}),
        ('["one\N{LINE SEPARATOR}two"]', ["one\N{LINE SEPARATOR}two"]),
    ],
)
def test_words_mean_what_the_core_schema_says(text: str, value: Any) -> None:
    found = read(text)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- &a x\n- *a", "anchors"),
        ("!!int 3", "tags"),
        ("a: 1\n'a': 2", "'a' is given twice"),
        ("{1: a, 01: b}", "'1' is given twice"),
        ('{"a": 1, "a": 2}', "'a' is given twice"),
        ("? [a]\n: b", "must be a text"),
        ("1\n---\n2", "another document"),
        ("[", "expected"),
        ("\x00", "cannot be parsed"),
        ("9" * 5000, "at most 100 digits"),
        ("x: " + "9" * 5000, "at most 100 digits"),
        ("[1e999]", "not finite"),
        ("x: .inf", "not finite"),
        ("[NaN]", "not finite"),
        ('"\\ud800"', "surrogate"),
        ('{"\\udc00": 1}', "surrogate"),
        ("[" * 100_000, "nested too deeply"),
        ("{a: " * 20_000, "nested too deeply"),
    ],
)
def test_what_is_not_plain_is_refused(text: str, problem: str) -> None:
    with pytest.raises(NotPlain, match=problem):
        read(text)
