"""Bodies that are much work: nobody else waits for them, and none ends the process."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kueuelib.embedded.http import bodies
from kueuelib.errors import BadRequest

YAML = "application/yaml"


@pytest.mark.parametrize("unit", [b"[", b"{a: ", b"- ", b"? "])
@pytest.mark.parametrize("count", [1_001, 200_000])
def test_deep_nesting_is_refused_before_anything_recursive(unit: bytes, count: int) -> None:
    with pytest.raises(BadRequest, match="error parsing YAML"):
        bodies.parse_yaml(unit * count)
    with pytest.raises(BadRequest, match="error parsing YAML"):
        bodies.parse_yaml_stream(unit * count)


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
