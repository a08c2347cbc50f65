"""Operators, sizes, indexes, and the functions of lists and sets."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

from kueuelib.embedded.cel.errors import CostBudget, EvalError, traversal
from kueuelib.embedded.cel.evaluation import optional_field
from kueuelib.embedded.cel.types import Library
from kueuelib.embedded.cel.values import (
    NONE,
    CelDuration,
    Optional,
    Timestamp,
    Uint,
    contains,
    equal,
    has_key,
    integer,
    joined,
    moment,
    span,
    unsigned,
)

# ---- functions of lists and sets -----------------------------------------------------------------

_ORDERED = ("int", "uint", "double", "bool", "string", "bytes", "timestamp", "duration")
_SUMMED = ("int", "uint", "double", "duration")


def add_lists(library: Library) -> None:
    """Adds them."""
    method, function = library.method, library.function
    for kind in _ORDERED:
        method("isSorted", f"list<{kind}>", "bool", _is_sorted, len)
        method("min", f"list<{kind}>", kind, lambda v: _extreme(v, "min"), len)
        method("max", f"list<{kind}>", kind, lambda v: _extreme(v, "max"), len)
    for kind in _SUMMED:
        zero: Any = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": CelDuration(0)}[kind]
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
    if isinstance(value, str | bytes | Timestamp | CelDuration):
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
    if values and isinstance(values[0], float | Uint | CelDuration):
        zero = type(values[0])(0)
    if any(type(each) is not type(zero) for each in values):
        raise EvalError("no such overload")
    if isinstance(zero, float):
        return sum(values, 0.0)
    if isinstance(zero, CelDuration):
        return reduce(lambda a, b: span(a.nanos + b.nanos), values, zero)
    check = unsigned if isinstance(zero, Uint) else integer
    return reduce(lambda a, b: check(int(a) + int(b)), values, zero)


def _index_of(budget: CostBudget, values: list[Any], wanted: Any, *, last: bool = False) -> int:
    places = range(len(values))
    for i in reversed(places) if last else places:
        budget.spend(1)
        if equal(values[i], wanted, budget):
            return i
    return -1


def _includes(budget: CostBudget, values: list[Any], parts: list[Any]) -> bool:
    return all(contains(values, each, budget) for each in parts)


def _meets(budget: CostBudget, left: list[Any], right: list[Any]) -> bool:
    return any(contains(right, each, budget) for each in left)


def _same_items(budget: CostBudget, left: list[Any], right: list[Any]) -> bool:
    return _includes(budget, left, right) and _includes(budget, right, left)


# --------------------------------------------------------------------------------------------------


def add_operators(library: Library) -> None:
    """Adds them."""
    _arithmetic(library)
    _comparisons(library)
    _containers(library)
    _optionals(library)


# ---- arithmetic


def _arithmetic(library: Library) -> None:
    add = library.function
    add("_+_", "int;int", "int", lambda a, b: integer(a + b))
    add("_+_", "uint;uint", "uint", lambda a, b: unsigned(int(a) + int(b)))
    add("_+_", "double;double", "double", operator.add)
    add("_+_", "string;string", "string", operator.add, traversal)
    add("_+_", "bytes;bytes", "bytes", operator.add, traversal)
    add("_+_", "list<A>;list<A>", "list<A>", lambda p, a, b: joined(a, b, p), budgeted=True)
    add("_+_", "timestamp;duration", "timestamp", lambda a, b: moment(a.nanos + b.nanos))
    add("_+_", "duration;timestamp", "timestamp", lambda a, b: moment(a.nanos + b.nanos))
    add("_+_", "duration;duration", "duration", lambda a, b: span(a.nanos + b.nanos))
    add("_-_", "int;int", "int", lambda a, b: integer(a - b))
    add("_-_", "uint;uint", "uint", lambda a, b: unsigned(int(a) - int(b)))
    add("_-_", "double;double", "double", operator.sub)
    add("_-_", "timestamp;timestamp", "duration", lambda a, b: span(a.nanos - b.nanos))
    add("_-_", "timestamp;duration", "timestamp", lambda a, b: moment(a.nanos - b.nanos))
    add("_-_", "duration;duration", "duration", lambda a, b: span(a.nanos - b.nanos))
    add("_*_", "int;int", "int", lambda a, b: integer(a * b))
    add("_*_", "uint;uint", "uint", lambda a, b: unsigned(int(a) * int(b)))
    add("_*_", "double;double", "double", operator.mul)
    add("_/_", "int;int", "int", lambda a, b: integer(_divide(a, b)))
    add("_/_", "uint;uint", "uint", lambda a, b: Uint(_divide(int(a), int(b))))
    add("_/_", "double;double", "double", _divide_floats)
    add("_%_", "int;int", "int", _modulo)
    add("_%_", "uint;uint", "uint", lambda a, b: Uint(_modulo(int(a), int(b))))
    add("-_", "int", "int", lambda a: integer(-a))
    add("-_", "double", "double", operator.neg)
    add("!_", "bool", "bool", operator.not_)


def _divide(left: int, right: int) -> int:
    """Integer division, rounded towards zero."""
    if right == 0:
        raise EvalError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) is (right < 0) else -quotient


def _divide_floats(left: float, right: float) -> float:
    if right == 0:
        if left == 0 or math.isnan(left):
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1.0, right)
    return left / right


def _modulo(left: int, right: int) -> int:
    if right == 0:
        raise EvalError("modulus by zero")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


# ---- comparisons

_COMPARED = (
    "bool;bool",
    "string;string",
    "bytes;bytes",
    "timestamp;timestamp",
    "duration;duration",
    *(f"{a};{b}" for a in ("int", "uint", "double") for b in ("int", "uint", "double")),
)


def _comparisons(library: Library) -> None:
    library.function("_==_", "A;A", "bool", lambda p, a, b: equal(a, b, p), budgeted=True)
    library.function("_!=_", "A;A", "bool", lambda p, a, b: not equal(a, b, p), budgeted=True)
    tests: dict[str, Callable[[Any, Any], bool]] = {
        "_<_": operator.lt,
        "_<=_": operator.le,
        "_>_": operator.gt,
        "_>=_": operator.ge,
    }
    for name, test in tests.items():
        for params in _COMPARED:
            cost = traversal if params in ("string;string", "bytes;bytes") else None
            library.function(name, params, "bool", test, cost)


# ---- lists and maps


def _containers(library: Library) -> None:
    add = library.function
    for kind in ("string", "bytes", "list<A>", "map<A,B>"):
        add("size", kind, "int", len)
        library.method("size", kind, "int", len)
    add("@in", "A;list<A>", "bool", lambda p, a, b: contains(b, a, p), budgeted=True)
    add("@in", "A;map<A,B>", "bool", lambda a, b: has_key(b, a))
    add("_[_]", "list<A>;int", "A", _item)
    add("_[_]", "map<A,B>;A", "B", _entry)
    add("_[_]", "list<dyn>;dyn", "dyn", _item_of_number)
    add("_[_]", "optional<list<A>>;int", "optional<A>", optional_field)
    add("_[_]", "optional<map<A,B>>;A", "optional<B>", optional_field)
    add("_[?_]", "list<A>;int", "optional<A>", optional_field)
    add("_[?_]", "map<A,B>;A", "optional<B>", optional_field)
    add("_[?_]", "optional<list<A>>;int", "optional<A>", optional_field)
    add("_[?_]", "optional<map<A,B>>;A", "optional<B>", optional_field)


def _item(values: list[Any], index: int) -> Any:
    if 0 <= index < len(values):
        return values[index]
    raise EvalError(f"index out of bounds: {index}")


def _item_of_number(values: list[Any], index: Any) -> Any:
    if isinstance(index, float) and index.is_integer():
        return _item(values, int(index))
    if isinstance(index, Uint):
        return _item(values, index)
    raise EvalError("no such overload")


def _entry(values: dict[Any, Any], key: Any) -> Any:
    if has_key(values, key):
        return values[key]
    raise EvalError(f"no such key: {key}")


# ---- optional values


def _optionals(library: Library) -> None:
    library.function("optional.of", "A", "optional<A>", Optional)
    library.function("optional.none", "", "optional<A>", lambda: NONE)
    library.function("optional.ofNonZeroValue", "A", "optional<A>", _non_zero)
    library.method("hasValue", "optional<A>", "bool", lambda a: a.present)
    library.method("value", "optional<A>", "A", Optional.get)
    library.method(
        "or", "optional<A>;optional<A>", "optional<A>", lambda a, b: a if a.present else b
    )
    library.method("orValue", "optional<A>;A", "A", lambda a, b: a.value if a.present else b)


def _non_zero(value: Any) -> Optional:
    if isinstance(value, Timestamp | CelDuration):
        return Optional(value) if value.nanos else NONE
    if value is None or (
        isinstance(value, bool | int | float | str | bytes | list | dict) and not value
    ):
        return NONE
    return Optional(value)
