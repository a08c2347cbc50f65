"""No text and no input makes the evaluator fail otherwise than it may, or run on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kueuelib.embedded.cel.errors import (
    BudgetExceeded,
    CelError,
    CompileError,
    CostBudget,
    EvalError,
)
from kueuelib.embedded.cel.program import compile_expression
from kueuelib.embedded.cel.types import DYN, INT, STRING, list_of, map_of

VARIABLES = {"x": INT, "s": STRING, "l": list_of(INT), "m": map_of(STRING, DYN), "d": DYN}
TEXT = (
    "x s l m d 0 1 2.5 3u 'a' b'a' true null [ ] { } ( ) . , ? : + - * / % < == != && || ! in "
    "has all exists map filter size int string double matches find join split format sum min "
    "transformMap optional.of none value orValue quantity ip cidr url timestamp duration isIP "
    "getHours replace substring indexOf sets.contains type dyn i v -9223372036854775808 '%s' '('"
)
WORDS = TEXT.split()
json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def run(text: str, values: tuple[Any, ...], budget: CostBudget | None = None) -> Any:
    return compile_expression(text, VARIABLES).run(values, budget or CostBudget(20_000))


@given(st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join), json)
def test_words_in_any_order_have_a_value_or_fail_properly(text: str, value: Any) -> None:
    try:
        run(text, (1, "a", [1, 2], {"a": 1}, value))
    except CelError:
        return


@given(st.text(max_size=30))
def test_any_text_is_an_expression_or_is_refused(text: str) -> None:
    try:
        compile_expression(text, VARIABLES)
    except CompileError:
        return


UNARY = ("-({})", "!({})", "size({})", "int({})", "string({})", "double({})", "({}).map(v, v)",
         "type({})", "({}).all(v, v == 1)", "optional.ofNonZeroValue({}).orValue(1)", "({}).sum()",
         "({}).min()", "({})[0]", "has(({}).a)", "({}).?a.orValue(0)", "timestamp({})",
         "duration({})", "quantity({})", "ip({})", "({}).findAll('.')", "'%s %d'.format([{}, 1])",
         "url({})", "cidr({})", "({}).split('')", "({}).isSorted()", "({}).getHours()",
         "({}).transformList(i, v, v)", "uint({})", "bytes({})", "bool({})")  # fmt: skip
BINARY = ("({}) + ({})", "({}) == ({})", "({}) < ({})", "({}) in ({})", "({}) / ({})",
          "({}) && ({})", "({}) || ({})", "({}) * ({})", "({}) % ({})", "({}) - ({})",
          "({})[{}]", "({}).matches({})", "({}).indexOf({})", "sets.contains({}, {})",
          "({}).replace({}, 'b')", "({}).substring({})", "({}).join({})",
          "({}).containsIP({})", "({})[?{}]", "[{}, dyn({})]", "({}).charAt({})")  # fmt: skip
expressions = st.recursive(
    st.sampled_from(("d", "dyn(1)", "dyn('a')", "dyn([1, 'b'])", "dyn({'a': 1})", "dyn(1.5)",
                     "dyn(null)", "dyn(true)", "dyn(b'x')", "dyn(2u)")),
    lambda inner: st.builds(lambda form, a: form.format(a), st.sampled_from(UNARY), inner)
    | st.builds(lambda form, a, b: form.format(a, b), st.sampled_from(BINARY), inner, inner),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=120)
@given(expressions, json)
def test_values_of_unknown_type_meet_every_function(text: str, value: Any) -> None:
    try:
        run(text, (1, "a", [1, 2], {"a": 1}, value))
    except CelError:
        return


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_integers_have_64_bits(a: int, b: int) -> None:
    for operator, exact in (("+", a + b), ("-", a - b), ("*", a * b)):
        program = compile_expression(f"a {operator} b", {"a": INT, "b": INT})
        if -(2**63) <= exact < 2**63:
            assert program.run((a, b), CostBudget()) == exact
        else:
            with pytest.raises(EvalError, match="integer overflow"):
                program.run((a, b), CostBudget())


HOSTILE = [
    "l.all(a, l.all(b, l.all(c, l.all(e, l.all(f, a + b + c + e + f > 0)))))",
    "[s].map(a, a + a + a + a).map(a, a + a + a + a).map(a, a + a + a + a)[0].size() > 0",
    "l.map(a, l.map(b, l.map(c, s))).size() > 0",
    "s.replace('a', s).replace('a', s).size() > 0",
    "s.matches('(a*)*(a*)*(a*)*b')",
    "s.findAll('(a|aa)+b').size() > 0",
    "l.map(a, s).join(s).size() > 0",
    "sets.contains(l.map(a, l), l.map(a, l))",
    "l.map(a, '%s'.format([s])).size() > 0",
    "l.map(a, l) == l.map(a, l)",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_rules_end_by_cost(text: str) -> None:
    values = (1, "a" * 100_000, list(range(1, 1001)), {}, None)
    budget = CostBudget()
    try:
        run(text, values, budget)
    except BudgetExceeded:
        assert budget.left < 0


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "1" + ")" * 5000,
        "!" * 5000 + "true",
        "+".join("1" * 5000),
        "[" * 5000,
        "x" + ".y" * 5000,
        "d" + "[0]" * 5000,
        "true ? " * 5000,
        "{1:" * 5000,
        "-" * 5000 + "1",
        "d" + ".map(a, a)" * 5000,
        "'" + "a" * 200_000 + "'",
    ],
)
def test_depth_and_length_are_bounded(text: str) -> None:
    with pytest.raises(CompileError):
        compile_expression(text, VARIABLES)


def test_long_conjunctions_are_not_deep() -> None:
    assert run(" && ".join(["x == 1"] * 3000), (1, "", [], {}, None)) is True
