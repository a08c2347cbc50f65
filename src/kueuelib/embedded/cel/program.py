"""Compiled expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import attrs

from kueuelib.embedded.cel.authorizing import add_authorizer
from kueuelib.embedded.cel.compiler import Compiler
from kueuelib.embedded.cel.errors import CompileError, CostBudget
from kueuelib.embedded.cel.functions import add_network, add_quantities, add_texts
from kueuelib.embedded.cel.operators import add_conversions, add_lists, add_operators
from kueuelib.embedded.cel.parser import parse
from kueuelib.embedded.cel.times import add_times
from kueuelib.embedded.cel.types import Library, Type


@cache
def standard_library() -> Library:
    """Every function of Kubernetes' environment."""
    library = Library()
    for add in (
        add_operators,
        add_times,
        add_conversions,
        add_texts,
        add_lists,
        add_network,
        add_quantities,
        add_authorizer,
    ):
        add(library)
    return library


@attrs.frozen(eq=False)
class Program:
    """A compiled expression.

    Attributes:
        source: its text.
        type: of its result.
        used: the variables that it uses.
    """

    source: str
    type: Type
    used: frozenset[str]
    _run: Callable[[list[Any]], Any]
    _cost: int
    _slots: int

    def run(self, values: tuple[Any, ...], budget: CostBudget) -> Any:
        """The result for these values of the variables, in the order of their declaration.

        Raises:
            EvalError: there is no result.
            BudgetExceeded: it costs too much.
        """
        budget.spend(self._cost)
        env: list[Any] = [budget, *values]
        env.extend([None] * (self._slots - len(env)))
        return self._run(env)


def compile_expression(source: str, variables: Mapping[str, Type]) -> Program:
    """The program of a text.

    Args:
        source: the expression.
        variables: the available variables, with types.

    Raises:
        CompileError: the text is not an expression, or its types do not fit.
    """
    compiler = Compiler(standard_library(), variables)
    code = compiler.compile(parse(source))
    if compiler.issues:
        raise CompileError(source, compiler.issues)
    return Program(source, code.type, frozenset(compiler.used), code.run, code.cost, compiler.slots)
