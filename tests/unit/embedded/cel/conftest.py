"""What the cases of expressions share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kueuelib.embedded.cel.errors import CostBudget
from kueuelib.embedded.cel.program import compile_expression
from kueuelib.embedded.cel.types import DYN, INT, STRING, list_of, map_of

HERE = Path(__file__).parent
VARIABLES = {
    "x": INT,
    "m": map_of(STRING, INT),
    "l": list_of(INT),
    "s": STRING,
    "d": DYN,
}
GIVEN: dict[str, Any] = {
    "x": 5,
    "m": {"a": 1, "b": 2},
    "l": [1, 2, 3],
    "s": "hello",
    "d": {"n": 1, "t": "x", "l": [1, "a"], "nothing": None},
}


def evaluate(text: str) -> Any:
    """The value of an expression over the variables of the cases."""
    return compile_expression(text, VARIABLES).run(tuple(GIVEN.values()), CostBudget())


def cases(name: str) -> dict[str, list[tuple[str, Any]]]:
    """The cases of a file, by group."""
    raw = yaml.load((HERE / name).read_text(), yaml.CSafeLoader)
    return {group: [(text, want) for text, want in pairs] for group, pairs in raw.items()}


@pytest.fixture
def run() -> Any:
    return evaluate
