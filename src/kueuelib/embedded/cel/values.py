"""The values of expressions for which Python has no equivalent.

bool, int, double, string, bytes, null, list and map are bool, int, float, str, bytes, None, list
and dict. The others are here. `True == 1` in Python but not in CEL: compare with `equal`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from kueuelib.api.quantity import Quantity
from kueuelib.embedded.cel.errors import CostBudget, EvalError

INT_MAX: Final = 2**63 - 1
INT_MIN: Final = -(2**63)
UINT_MAX: Final = 2**64 - 1
NANO: Final = 10**9
FIRST_SECOND: Final = -62135596800
LAST_SECOND: Final = 253402300799


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


@attrs.frozen(order=True)
class Timestamp:
    """A point in time, in nanoseconds since the epoch."""

    nanos: int


@attrs.frozen(order=True)
class CelDuration:
    """A span of time in nanoseconds."""

    nanos: int


@attrs.frozen
class TypeValue:
    """A type as a value."""

    name: str


@attrs.frozen(eq=False)
class Optional:
    """A value that may be absent."""

    value: Any = None
    present: bool = True

    def get(self) -> Any:
        """The value.

        Raises:
            EvalError: it is absent.
        """
        if not self.present:
            raise EvalError("optional.none() dereference")
        return self.value


NONE: Final = Optional(present=False)


class SetList(list[Any]):
    """A list of type `set`: order does not matter, `+` adds what is new."""


class KeyedList(list[Any]):
    """A list of type `map`: order does not matter, `+` merges by key."""

    keys: tuple[str, ...] = ()


class Record(dict[str, Any]):
    """An object with a schema; its fields are under the names that expressions use."""


def integer(value: int) -> int:
    """Checks the range of a result.

    Raises:
        EvalError: it does not fit into 64 bits.
    """
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvalError("integer overflow")


def unsigned(value: int) -> Uint:
    """The same for unsigned integers."""
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise EvalError("unsigned integer overflow")


def moment(nanos: int) -> Timestamp:
    """The same for timestamps: the years 1 to 9999."""
    if FIRST_SECOND <= nanos // NANO <= LAST_SECOND:
        return Timestamp(nanos)
    raise EvalError("timestamp overflow")


def span(nanos: int) -> CelDuration:
    """The same for durations."""
    if INT_MIN <= nanos <= INT_MAX:
        return CelDuration(nanos)
    raise EvalError("duration overflow")


# ---- types of values

_NAMES: Final[Mapping[type, str]] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    SetList: "list",
    KeyedList: "list",
    dict: "map",
    Record: "object",
    Timestamp: "google.protobuf.Timestamp",
    CelDuration: "google.protobuf.Duration",
    TypeValue: "type",
    Optional: "optional_type",
    Quantity: "kubernetes.Quantity",
}


def type_name(value: Any) -> str:
    """The name of the type of a value."""
    name = _NAMES.get(type(value))
    return getattr(value, "cel_type", "unknown") if name is None else name


# ---- equality

_NUMBERS = (int, float)


def equal(left: Any, right: Any, budget: CostBudget) -> bool:
    """`left == right` in CEL: numbers across types, everything else within its type."""
    kind = type(left)
    if kind is str:  # most of what an object holds
        return isinstance(right, str) and bool(left == right)
    if kind is bool or type(right) is bool:
        return kind is type(right) and bool(left == right)
    if isinstance(left, _NUMBERS):
        return isinstance(right, _NUMBERS) and bool(left == right)
    if isinstance(left, list):
        return isinstance(right, list) and _equal_lists(left, right, budget)
    if isinstance(left, dict):
        return isinstance(right, dict) and _equal_maps(left, right, budget)
    if isinstance(left, Optional):
        if not isinstance(right, Optional) or left.present is not right.present:
            return False
        return not left.present or equal(left.value, right.value, budget)
    return kind is type(right) and bool(left == right)


def _equal_lists(left: list[Any], right: list[Any], budget: CostBudget) -> bool:
    if len(left) != len(right):
        return False
    if isinstance(left, KeyedList):
        known = {_key(each, left.keys): each for each in right}
        budget.spend(len(left))
        return all(
            (key := _key(each, left.keys)) in known and equal(each, known[key], budget)
            for each in left
        )
    if isinstance(left, SetList):
        return all(contains(right, each, budget) for each in left)
    budget.spend(len(left) + 1)
    for a, b in zip(left, right, strict=True):  # noqa: SIM110 - a generator takes twice the time
        if not equal(a, b, budget):
            return False
    return True


def _equal_maps(left: dict[Any, Any], right: dict[Any, Any], budget: CostBudget) -> bool:
    if len(left) != len(right):
        return False
    budget.spend(len(left) + 1)
    for key, value in left.items():
        known = key in right if type(key) is str else has_key(right, key)
        if not known or not equal(value, right[key], budget):
            return False
    return True


def contains(values: Iterable[Any], wanted: Any, budget: CostBudget) -> bool:
    """Whether a list holds a value."""
    for each in values:
        budget.spend(1)
        if equal(each, wanted, budget):
            return True
    return False


def _key(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...]:
    if not isinstance(item, dict):
        return ()
    return tuple((type(value := item.get(key)).__name__, str(value)) for key in keys)


def joined(left: list[Any], right: list[Any], budget: CostBudget) -> list[Any]:
    """`left + right`."""
    budget.spend((len(left) + len(right)) // 10 + 1)
    if isinstance(left, KeyedList):
        merged = {_key(each, left.keys): each for each in left}
        merged |= {_key(each, left.keys): each for each in right}
        keyed_list = KeyedList(merged.values())
        keyed_list.keys = left.keys
        return keyed_list
    if isinstance(left, SetList):
        new: list[Any] = []
        for each in right:
            if not contains(left, each, budget) and not contains(new, each, budget):
                new.append(each)
        return SetList([*left, *new])
    return [*left, *right]


# ---- maps


def has_key(values: Mapping[Any, Any], key: Any) -> bool:
    """Whether a map has a key; 1, 1u and 1.0 are the same key, true is another one."""
    if isinstance(key, list | dict | Optional) or key not in values:
        return False
    if isinstance(key, _NUMBERS) and (key in (0, 1)):
        flag = type(key) is bool
        return any(other == key and (type(other) is bool) is flag for other in values)
    return True
