"""Bodies as they are read, and what in them is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.quantity import Quantity
from kueuelib.embedded.http import bodies, yaml_bodies
from kueuelib.embedded.http.answers import warning_headers
from kueuelib.embedded.patches import json_patch
from kueuelib.embedded.schema.structural import KEPT, StructuralSchema
from kueuelib.errors import (
    BadRequest,
    Invalid,
    InvalidQuantity,
)

YAML = "application/yaml"


@pytest.mark.parametrize("unit", [b"[", b"{a: ", b"- ", b"? "])
@pytest.mark.parametrize("count", [1_001, 200_000])
def test_deep_nesting_is_refused_before_anything_recursive(unit: bytes, count: int) -> None:
    with pytest.raises(BadRequest, match="^(error parsing YAML|yaml): "):
        yaml_bodies.parse_yaml(unit * count)
    with pytest.raises(BadRequest, match="error parsing YAML"):
        yaml_bodies.parse_yaml_stream(unit * count)


@pytest.mark.parametrize(
    "body",
    [
        *(b"!!int x", b"!!bool x", b"!!float x", b"&a [*a]", b"*z", b"? [1]\n: 2"),
        *(b"!!binary x", b"{a: [}", b"\0", b"<<: 5\na: 1"),
    ],
)
def test_yaml_that_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="^(error parsing YAML|yaml): "):
        yaml_bodies.parse_yaml(body)


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (b"", None),
        (b"a: 1\na: 2", {"a": 2}),
        (b"a: &x {b: 1}\nc:\n  <<: *x\n  d: 2", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
        (b"<<: [{a: 1}, {a: 2, b: 3}]", {"a": 1, "b": 3}),
        (
            b"a: y\nb: 2020-01-01\nc: 0x10\n1: x\n",
            {"a": True, "b": "2020-01-01", "c": 16, "1": "x"},
        ),
        (b"1" * 5000, "1" * 5000),
        (b"--- a\n--- b", "a"),
        (b"a: " + b"1:" * 10**6 + b"1", {"a": "1:" * 10**6 + "1"}),
        (b"a: 1\n" + b"---\n" * 700_000, {"a": 1}),
        (b"a: ! 5\nb: !!str 5\nc: '5'\nd: ~", {"a": 5, "b": "5", "c": "5", "d": None}),
        (b"a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
    ],
)
def test_yaml_is_read_as_json(body: bytes, data: Any) -> None:
    assert yaml_bodies.parse_yaml(body) == data


def test_what_an_alias_repeats_is_not_shared() -> None:
    found = yaml_bodies.parse_yaml(b"a: &x {b: []}\nc: *x")
    found["a"]["b"].append(1)
    assert found["c"] == {"b": []}


def test_aliases_repeat_no_more_than_fits() -> None:
    body = b"a0: &a0 [1, 2, 3]\n" + b"".join(
        b"a%d: &a%d [*a%d, *a%d, *a%d]\n" % (i, i, i - 1, i - 1, i - 1) for i in range(1, 40)
    )
    with pytest.raises(BadRequest, match="document contains excessive aliasing"):
        yaml_bodies.parse_yaml(body)


def test_long_lines_and_many_brackets_are_fine() -> None:
    body = b"a: " + b"x" * 5000 + b"\nb: [" + b"{}, " * 5000 + b"]\n"
    data, _ = bodies.parse(body, YAML, notice_duplicates=False)
    assert (len(data["a"]), len(data["b"])) == (5000, 5000)


def test_a_number_of_thousands_of_digits_is_malformed() -> None:
    with pytest.raises(BadRequest, match="cannot unmarshal number"):
        bodies.parse(b"1" * 5000, "", notice_duplicates=False)


def test_a_patch_copies_no_more_than_a_body_can_hold() -> None:
    target = {"data": {"a": "x" * 1000}}
    copies = [{"op": "copy", "from": "/data", "path": f"/data/{i}"} for i in range(40)]
    assert len(json_patch(target, copies[:5])["data"]) == 6
    with pytest.raises(Invalid, match="rejected our request"):
        json_patch(target, copies)


def test_warnings_have_room_for_some() -> None:
    found = warning_headers(f"unknown field {i}" for i in range(10_000))
    assert 100 < len(found) < 300


def test_what_looks_like_a_time_is_a_text_as_in_go() -> None:
    body = b"a: 1:30\nb: 1:30.5\nc: " + b"1:" * 100_000 + b"1"
    found = yaml_bodies.parse_yaml(body)
    assert (found["a"], found["b"]) == ("1:30", "1:30.5")


def test_what_a_definition_is_judged_by_is_served() -> None:
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": "1 == 1"}]}
    first = StructuralSchema.of(schema)
    assert StructuralSchema.of(dict(schema)) is first
    for number in range(KEPT):
        StructuralSchema.of({"type": "object", "description": str(number)})
    assert StructuralSchema.of(schema) is not first


@pytest.mark.parametrize("text", ["1" * 5000, "0." + "1" * 5000])
def test_a_quantity_of_thousands_of_digits_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuantity, match="is not a quantity"):
        Quantity.parse(text)
