"""The functions that expressions may call, each with its overloads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod
from typing import Any

import attrs

from kueuelib.embedded.cel.types import Type, check_of, parse_type

Cost = Callable[..., int]


@attrs.frozen(eq=False)
class Overload:
    """One signature of one function.

    Attributes:
        params: the receiver of a method comes first.
        result: its type.
        run: computes the result from the arguments; may raise EvalError.
        cost: the additional cost of a call, from the arguments; None: none.
        budgeted: whether `run` takes the budget before the arguments.
        checks: decide whether arguments fit at run time.
    """

    params: tuple[Type, ...]
    result: Type
    run: Callable[..., Any]
    cost: Cost | None
    budgeted: bool
    checks: tuple[Callable[[Any], bool], ...]


class Library:
    """Functions by name and number of arguments, methods apart."""

    def __init__(self) -> None:
        self._overloads: dict[tuple[str, bool], list[Overload]] = {}

    def function(
        self,
        name: str,
        params: str,
        result: str,
        run: Callable[..., Any],
        cost: Cost | None = None,
        *,
        budgeted: bool = False,
        method: bool = False,
    ) -> None:
        """Adds `name(params)`; `params` are types, separated by semicolons.

        The receiver of a `method`, `receiver.name(...)`, is the first of them.
        """
        types = tuple(parse_type(each) for each in params.split(";")) if params else ()
        checks = tuple(check_of(each) for each in types)
        overload = Overload(types, parse_type(result), run, cost, budgeted, checks)
        self._overloads.setdefault((name, method), []).append(overload)

    method = partialmethod(function, method=True)

    def overloads(self, name: str, *, method: bool) -> list[Overload]:
        """The overloads of a name; empty if there is no such function."""
        return self._overloads.get((name, method), [])
