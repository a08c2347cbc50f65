"""Resolves the overloads of a call by the types of its arguments, and makes its code."""

from __future__ import annotations

from collections.abc import Sequence

from kueuelib.embedded.cel.code import Code
from kueuelib.embedded.cel.errors import CelError
from kueuelib.embedded.cel.library import Overload
from kueuelib.embedded.cel.regex import compile_pattern
from kueuelib.embedded.cel.running import dispatched, index_optional, invoked
from kueuelib.embedded.cel.types import DYN, Type, fits, is_variable, resolved


def call_code(
    name: str, overloads: Sequence[Overload], args: Sequence[Code], *, method: bool
) -> Code | str:
    """The code of a call, or the error if no overload fits or a pattern is malformed.

    Args:
        name: of the function.
        overloads: all functions of that name.
        args: the arguments, the target of a method first.
        method: whether the call is a method.
    """
    types = [arg.type for arg in args]
    fitting: list[Overload] = []
    results: list[Type] = []
    for overload in overloads:
        bound: dict[str, Type] = {}
        if len(overload.params) == len(types) and all(
            fits(param, type_, bound) for param, type_ in zip(overload.params, types, strict=True)
        ):
            fitting.append(overload)
            results.append(resolved(overload.result, bound))
    if not fitting:
        return no_overload(name, types, method=method)
    result = results[0]
    if any(each != result for each in results):
        result = DYN
    cost = sum(arg.cost for arg in args) + 1
    runs = [arg.run for arg in args]
    if name == "_[?_]":
        return Code(result, index_optional(runs[0], runs[1]), cost)
    if name in ("matches", "find", "findAll") and len(args) > 1 and args[1].const:
        problem = _pattern_problem(args[1])
        if problem:
            return problem
    if len(fitting) == 1 and _certain(fitting[0], types):
        return Code(result, invoked(fitting[0], runs), cost)
    return Code(result, dispatched(fitting, runs), cost)


def no_overload(name: str, types: Sequence[Type], *, method: bool = False) -> str:
    """The error of a call without a fitting overload."""
    if method:
        shown = f"{types[0]}.({', '.join(map(str, types[1:]))})"
    else:
        shown = f"({', '.join(map(str, types))})"
    return f"found no matching overload for '{name}' applied to '{shown}'"


def _certain(overload: Overload, types: Sequence[Type]) -> bool:
    """Whether the types prove that the overload is the right one."""
    return all(
        is_variable(param) or param == DYN or (type_ != DYN and not type_.nullable)
        for param, type_ in zip(overload.params, types, strict=True)
    )


def _pattern_problem(pattern: Code) -> str:
    try:
        compile_pattern(pattern.run([]))
    except CelError as error:
        return str(error)
    return ""
