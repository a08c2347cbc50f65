"""The static types of the compiler, and the functions by these types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partialmethod
from typing import Any, Final

import attrs

from kueuelib.api.quantity import Quantity
from kueuelib.embedded.cel.values import CelDuration, Optional, Timestamp, TypeValue, Uint


@attrs.frozen
class Type:
    """A type.

    Attributes:
        name: for example `list`.
        params: of lists, maps and optional values.
        fields: of objects, under the names that expressions use.
        nullable: null is a value, too.
    """

    name: str
    params: tuple[Type, ...] = ()
    fields: Mapping[str, Type] | None = attrs.field(default=None, eq=id, repr=False)
    nullable: bool = attrs.field(default=False, eq=False)

    def __str__(self) -> str:
        if self.params:
            return f"{self.name}({', '.join(map(str, self.params))})"
        return self.name


DYN: Final = Type("dyn")
BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null")
TIMESTAMP: Final = Type("timestamp")
DURATION: Final = Type("duration")
TYPE: Final = Type("type")

_SIMPLE: Final = {
    each.name: each
    for each in (DYN, BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, TIMESTAMP, DURATION, TYPE)
}
_NULLABLE: Final = frozenset({"object", "timestamp", "duration", "null", "optional_type"})


def list_of(item: Type) -> Type:
    """`list(item)`."""
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    """`map(key, value)`."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """`optional_type(value)`."""
    return Type("optional_type", (value,))


def is_variable(type_: Type) -> bool:
    """Whether a type of a signature stands for any type: `A`, `B`."""
    return len(type_.name) == 1


def parse_type(text: str) -> Type:
    """A type of a signature: `int`, `list<A>`, `map<string,B>`, `optional<A>`, `A`, `kube.IP`."""
    text = text.strip()
    name, opened, rest = text.partition("<")
    if not opened:
        return _SIMPLE.get(name) or Type(name)
    parts, depth, part = [], 0, ""
    for letter in rest.removesuffix(">"):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    params = tuple(parse_type(each) for each in (*parts, part))
    return Type("optional_type" if name == "optional" else name, params)


def joined(left: Type, right: Type) -> Type | None:
    """The common type of two types; None if there is none."""
    if left == right:
        return left
    if DYN in (left, right):
        return DYN
    for one, other in ((left, right), (right, left)):
        if one == NULL and (other.nullable or other.name in _NULLABLE or "." in other.name):
            return other
    if left.name != right.name or len(left.params) != len(right.params) or not left.params:
        return None
    params = [joined(a, b) for a, b in zip(left.params, right.params, strict=True)]
    if any(each is None for each in params):
        return None
    return Type(left.name, tuple(each for each in params if each is not None))


def fits(pattern: Type, given: Type, bound: dict[str, Type]) -> bool:
    """Whether an argument may have the type of a signature; binds the variables."""
    if is_variable(pattern):
        known = bound.get(pattern.name)
        bound_type = given if known is None else joined(known, given)
        if bound_type is None:
            return False
        bound[pattern.name] = bound_type
        return True
    if DYN in (pattern, given):
        return True
    if pattern.name != given.name or len(pattern.params) != len(given.params):
        return False
    return all(fits(a, b, bound) for a, b in zip(pattern.params, given.params, strict=True))


def resolved(pattern: Type, bound: Mapping[str, Type]) -> Type:
    """A result type with its variables replaced."""
    if is_variable(pattern):
        return bound.get(pattern.name, DYN)
    if not pattern.params:
        return pattern
    return Type(pattern.name, tuple(resolved(each, bound) for each in pattern.params))


# ---- at run time

_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "dyn": lambda _: True,
    "bool": lambda v: type(v) is bool,
    "int": lambda v: type(v) is int,
    "uint": lambda v: type(v) is Uint,
    "double": lambda v: type(v) is float,
    "string": lambda v: isinstance(v, str),
    "bytes": lambda v: isinstance(v, bytes),
    "null": lambda v: v is None,
    "list": lambda v: isinstance(v, list),
    "map": lambda v: isinstance(v, dict),
    "timestamp": lambda v: isinstance(v, Timestamp),
    "duration": lambda v: isinstance(v, CelDuration),
    "type": lambda v: isinstance(v, TypeValue),
    "optional_type": lambda v: isinstance(v, Optional),
    "kubernetes.Quantity": lambda v: isinstance(v, Quantity),
}


def check_of(type_: Type) -> Callable[[Any], bool]:
    """Returns whether a value has the type of a signature, by its outermost shape."""
    if is_variable(type_):
        return _CHECKS["dyn"]
    check = _CHECKS.get(type_.name)
    if check is not None:
        return check
    name = type_.name
    return lambda v: getattr(v, "cel_type", "") == name


def items_of(type_: Type, *, pair: bool) -> tuple[Type, ...] | None:
    """The types of the variables of a macro."""
    if type_.name == "list":
        return (INT, type_.params[0]) if pair else type_.params
    if type_.name == "map":
        return type_.params if pair else type_.params[:1]
    if type_ == DYN:
        return (DYN, DYN) if pair else (DYN,)
    return None


def loop_type(macro: str, source: Type, items: tuple[Type, ...], body: Type) -> Type | None:
    """The type of a macro over a source; None if its body has to be a map and is not.

    Args:
        macro: its name.
        source: the type that it runs over.
        items: the types of its variables.
        body: the type of its body.
    """
    if macro in ("all", "exists", "exists_one"):
        return BOOL
    if macro == "filter":
        return source if source.name == "list" else list_of(items[0])
    if macro in ("map", "transformList"):
        return list_of(body)
    if macro == "transformMap":
        return map_of(items[0], body)
    if body.name != "map" and body != DYN:
        return None
    return body if body.name == "map" else map_of(DYN, DYN)


# ---- the functions that expressions may call, each with its overloads ----------------------------

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
