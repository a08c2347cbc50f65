"""Functions of lists and sets."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

from kueuelib.embedded.cel.budget import Budget
from kueuelib.embedded.cel.errors import EvalError
from kueuelib.embedded.cel.library import Library
from kueuelib.embedded.cel.values import (
    Duration,
    Timestamp,
    Uint,
    contains,
    equal,
    integer,
    span,
    unsigned,
)

_ORDERED = ("int", "uint", "double", "bool", "string", "bytes", "timestamp", "duration")
_SUMMED = ("int", "uint", "double", "duration")


def install(library: Library) -> None:
    """Adds them."""
    method, function = library.method, library.function
    for kind in _ORDERED:
        method("isSorted", f"list<{kind}>", "bool", _is_sorted, len)
        method("min", f"list<{kind}>", kind, lambda v: _extreme(v, "min"), len)
        method("max", f"list<{kind}>", kind, lambda v: _extreme(v, "max"), len)
    for kind in _SUMMED:
        zero: Any = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}[kind]
        method("sum", f"list<{kind}>", kind, lambda v, z=zero: _sum(v, z), len)
    method("indexOf", "list<A>;A", "int", _index_of, budgeted=True)
    method("lastIndexOf", "list<A>;A", "int", partial(_index_of, last=True), budgeted=True)
    function("sets.contains", "list<A>;list<A>", "bool", _includes, budgeted=True)
    function("sets.intersects", "list<A>;list<A>", "bool", _meets, budgeted=True)
    function("sets.equivalent", "list<A>;list<A>", "bool", _same_items, budgeted=True)


def _comparable(values: list[Any]) -> None:
    kinds = {_kind(each) for each in values}
    if len(kinds) > 1 or None in kinds:
        raise EvalError("no such overload")


def _kind(value: Any) -> str | None:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str | bytes | Timestamp | Duration):
        return type(value).__name__
    return None


def _is_sorted(values: list[Any]) -> bool:
    _comparable(values)
    return all(not values[i + 1] < values[i] for i in range(len(values) - 1))


def _extreme(values: list[Any], name: str) -> Any:
    if not values:
        raise EvalError(f"{name} called on empty list")
    _comparable(values)
    return min(values) if name == "min" else max(values)


def _sum(values: list[Any], zero: Any) -> Any:
    if values and isinstance(values[0], float | Uint | Duration):
        zero = type(values[0])(0)
    if any(type(each) is not type(zero) for each in values):
        raise EvalError("no such overload")
    if isinstance(zero, float):
        return sum(values, 0.0)
    if isinstance(zero, Duration):
        return reduce(lambda a, b: span(a.nanos + b.nanos), values, zero)
    check = unsigned if isinstance(zero, Uint) else integer
    return reduce(lambda a, b: check(int(a) + int(b)), values, zero)


def _index_of(budget: Budget, values: list[Any], wanted: Any, *, last: bool = False) -> int:
    places = range(len(values))
    for i in reversed(places) if last else places:
        budget.spend(1)
        if equal(values[i], wanted, budget):
            return i
    return -1


def _includes(budget: Budget, values: list[Any], parts: list[Any]) -> bool:
    return all(contains(values, each, budget) for each in parts)


def _meets(budget: Budget, left: list[Any], right: list[Any]) -> bool:
    return any(contains(right, each, budget) for each in left)


def _same_items(budget: Budget, left: list[Any], right: list[Any]) -> bool:
    return _includes(budget, left, right) and _includes(budget, right, left)
