"""Bodies that are much work: nobody else waits for them, and none ends the process."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kueuelib.embedded.http import bodies, yaml_bodies
from kueuelib.errors import BadRequest

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
        *(b"1" * 5000, b"!!int x", b"!!bool x", b"!!float x", b"&a [*a]", b"*z", b"? [1]\n: 2"),
        *(b"!!set {a}", b"!!binary aGk=", b"--- a\n--- b", b"{a: [}", b"\0", b"<<: 5\na: 1"),
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
            b"a: y\nb: 2020-01-01\nc: 0x10\n1: x\nnull: z",
            {"a": True, "b": "2020-01-01", "c": 16, "1": "x", "null": "z"},
        ),
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


def test_yaml_that_takes_too_long_or_has_too_many_values_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = b"[" + b"1," * 3000 + b"1]"
    monkeypatch.setattr(yaml_bodies, "NODE_LIMIT", 3000)
    with pytest.raises(BadRequest, match="too many values"):
        yaml_bodies.parse_yaml(body)
    monkeypatch.undo()
    monkeypatch.setattr(yaml_bodies, "SECONDS", -1.0)
    with pytest.raises(BadRequest, match="it takes more than"):
        yaml_bodies.parse_yaml(body)


def test_long_lines_and_many_brackets_are_fine() -> None:
    body = b"a: " + b"x" * 5000 + b"\nb: [" + b"{}, " * 5000 + b"]\n"
    data, _ = bodies.parse(body, YAML, notice_duplicates=False)
    assert (len(data["a"]), len(data["b"])) == (5000, 5000)


@pytest.mark.parametrize(("size", "apart"), [(100, False), (bodies.HEAVY, True)])
async def test_large_bodies_are_decoded_in_a_thread(
    size: int, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def parse(*_: Any, **__: Any) -> tuple[Any, list[str]]:
        seen.append(threading.current_thread() is not threading.main_thread())
        return {}, []

    monkeypatch.setattr(bodies, "parse", parse)
    body = b'{"a":"' + b"x" * size + b'"}'
    await bodies.decoded(body, "application/json", notice_duplicates=True)
    assert seen == [apart]
