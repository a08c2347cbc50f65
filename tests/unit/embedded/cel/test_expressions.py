"""What expressions are worth, and how they fail: tables of cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kueuelib.embedded.cel.errors import CompileError, EvalError

HERE = Path(__file__).parent
VALUES = yaml.load((HERE / "values.yaml").read_text(), yaml.CSafeLoader)
FAILURES = yaml.load((HERE / "failures.yaml").read_text(), yaml.CSafeLoader)


@pytest.mark.parametrize(
    ("text", "want"), [tuple(case) for group in VALUES.values() for case in group]
)
def test_an_expression_has_its_value(run: Any, text: str, want: Any) -> None:
    found = run(text)
    assert found == want
    assert type(found) is type(want)


@pytest.mark.parametrize(("text", "words"), [tuple(case) for case in FAILURES["evaluation"]])
def test_an_evaluation_fails_in_the_words_of_the_go_library(
    run: Any, text: str, words: str
) -> None:
    with pytest.raises(EvalError) as caught:
        run(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(("text", "words"), [tuple(case) for case in FAILURES["compilation"]])
def test_a_compilation_fails_in_the_words_of_the_go_library(
    run: Any, text: str, words: str
) -> None:
    with pytest.raises(CompileError) as caught:
        run(text)
    assert words in str(caught.value)


def test_a_mistake_is_shown_where_it_is(run: Any) -> None:
    with pytest.raises(CompileError) as caught:
        run("x > 1 &&\n  s == x")
    assert str(caught.value) == (
        "ERROR: <input>:2:5: found no matching overload for '_==_' applied to '(string, int)'\n"
        " |   s == x\n"
        " | ....^"
    )


def test_every_mistake_is_told(run: Any) -> None:
    with pytest.raises(CompileError) as caught:
        run("a > 1 || b > 2")
    assert [issue.position for issue in caught.value.issues] == [0, 9]
