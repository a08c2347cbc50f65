"""Operators, conversions such as `int(x)`, sizes, indexes, and functions of lists and sets."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial, reduce
from typing import Any

from kueuelib.embedded.cel import times
from kueuelib.embedded.cel.errors import CostBudget, EvalError, traversal
from kueuelib.embedded.cel.evaluation import optional_field
from kueuelib.embedded.cel.types import Library
from kueuelib.embedded.cel.values import (
    INT_MAX,
    INT_MIN,
    NANO,
    NONE,
    UINT_MAX,
    CelDuration,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    contains,
    equal,
    has_key,
    integer,
    joined,
    moment,
    span,
    type_name,
    unsigned,
)

_WHOLE = re.compile(r"[+-]?[0-9]{1,25}")
_REAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_SPECIAL = re.compile(r"([+-]?)(inf|infinity)|nan", re.IGNORECASE)
_KINDS = ("int", "uint", "double", "bool", "string", "bytes", "timestamp", "duration")
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def same(value: Any) -> Any:
    """A value as it is."""
    return value


def format_double(value: float, plain_below: int = 6) -> str:
    """The shortest text of the number, like Go's `%g`.

    Args:
        value: the number.
        plain_below: the power of ten from which on an exponent is used.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) + exponent - 1
    if text == "0":
        return "-0" if sign else "0"
    if -4 <= power < plain_below:
        plain = format(Decimal(repr(value)), "f")
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02}"


def _whole(text: str, kind: str, low: int, high: int) -> int:
    if not _WHOLE.fullmatch(text) or (not low and text[0] in "+-"):
        raise EvalError(f'strconv.Parse{kind}: parsing "{text[:40]}": invalid syntax')
    if not low <= int(text) <= high:
        raise EvalError(f'strconv.Parse{kind}: parsing "{text[:40]}": value out of range')
    return int(text)


def _int_of_double(value: float) -> int:
    if math.isnan(value) or not -(2.0**63) < value < 2.0**63:
        raise EvalError("integer overflow")
    return int(value)


def _uint_of_double(value: float) -> Uint:
    if math.isnan(value) or not 0 <= value < 2.0**64:
        raise EvalError("unsigned integer overflow")
    return Uint(int(value))


def _double_of_text(text: str) -> float:
    if _REAL.fullmatch(text):
        value = float(text)
        if not math.isinf(value):
            return value
        raise EvalError(f'strconv.ParseFloat: parsing "{text[:40]}": value out of range')
    if _SPECIAL.fullmatch(text):
        return float(text)
    raise EvalError(f'strconv.ParseFloat: parsing "{text[:40]}": invalid syntax')


def _bool_of_text(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise EvalError(f'strconv.ParseBool: parsing "{text[:40]}": invalid syntax')


def _text_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvalError("invalid UTF-8 in bytes, cannot convert to string") from None


def add_conversions(library: Library) -> None:
    """Adds them to a library."""
    add = library.function
    for kind in _KINDS:
        add(kind, kind, kind, same)
    add("int", "uint", "int", lambda v: integer(int(v)))
    add("int", "double", "int", _int_of_double)
    add("int", "string", "int", lambda v: _whole(v, "Int", INT_MIN, INT_MAX))
    add("int", "timestamp", "int", lambda v: v.nanos // NANO)
    add("int", "duration", "int", lambda v: v.nanos)
    add("uint", "int", "uint", unsigned)
    add("uint", "double", "uint", _uint_of_double)
    add("uint", "string", "uint", lambda v: Uint(_whole(v, "Uint", 0, UINT_MAX)))
    add("double", "int", "double", float)
    add("double", "uint", "double", float)
    add("double", "string", "double", _double_of_text, traversal)
    add("bool", "string", "bool", _bool_of_text)
    add("string", "int", "string", str)
    add("string", "uint", "string", lambda v: str(int(v)))
    add("string", "double", "string", format_double)
    add("string", "bool", "string", lambda v: "true" if v else "false")
    add("string", "bytes", "string", _text_of_bytes, traversal)
    add("string", "timestamp", "string", times.format_timestamp)
    add("string", "duration", "string", times.format_duration)
    add("bytes", "string", "bytes", lambda v: v.encode(errors="replace"), traversal)
    add("timestamp", "string", "timestamp", times.parse_timestamp)
    add("timestamp", "int", "timestamp", lambda v: moment(v * NANO))
    add("duration", "string", "duration", times.parse_duration)
    add("dyn", "A", "dyn", same)
    add("type", "A", "type", lambda v: TypeValue(type_name(v)))


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
