"""The same expressions in Google's C++ library, where it is installed (`cel-expr-python`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kueuelib.embedded.cel.errors import CelError, CostBudget
from kueuelib.embedded.cel.program import compile_expression
from kueuelib.embedded.cel.types import DYN

pytest.importorskip("cel_expr_python", reason="cel-expr-python is not installed")

HERE = Path(__file__).parent
COMMON = (
    "arithmetic",
    "logic",
    "texts",
    "format",
    "conversions",
    "containers",
    "macros",
    "optionals",
    "times",
)
GIVEN: dict[str, Any] = {
    "x": 5,
    "m": {"a": 1, "b": 2},
    "l": [1, 2, 3],
    "s": "hello",
    "d": {"n": 1, "t": "x", "l": [1, "a"], "nothing": None},
}
KNOWN = {
    "m.map(k, k)": "the order of a map's keys is not defined",
    "string(duration('1m1.5s'))": "C++ writes groups of three digits, Go as many as needed",
}
VALUES = yaml.load((HERE / "values.yaml").read_text(), yaml.CSafeLoader)
CASES = [text for group in COMMON for text, _ in VALUES[group]] + [
    text
    for text, _ in yaml.load((HERE / "failures.yaml").read_text(), yaml.CSafeLoader)["evaluation"]
]


class Oracle:
    """Evaluates in C++."""

    def __init__(self) -> None:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_optional, ext_strings

        self._cel = cel
        self._env = cel.NewEnv(
            variables=dict.fromkeys(GIVEN, cel.Type.DYN),
            extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional()],
        )

    def value(self, text: str) -> Any:
        """The value, or an exception: RuntimeError when it does not compile."""
        found = self._env.compile(text).eval(data=GIVEN)
        if found.type() == self._cel.Type.ERROR:
            raise ValueError(found.value())
        return found.plain_value()


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


@pytest.mark.parametrize("text", CASES)
def test_both_libraries_agree(oracle: Oracle, text: str) -> None:
    if text in KNOWN:
        pytest.skip(KNOWN[text])
    try:
        theirs = json.dumps(oracle.value(text), sort_keys=True, default=str)
    except ValueError:
        theirs = "failed"
    except Exception as error:  # noqa: BLE001 - the binding has no type of its own
        pytest.skip(f"C++ does not compile it: {error}")
    types = dict.fromkeys(GIVEN, DYN)
    try:
        value = compile_expression(text, types).run(tuple(GIVEN.values()), CostBudget())
        ours = json.dumps(value, sort_keys=True, default=str)
    except CelError:
        ours = "failed"
    assert ours == theirs
