"""The tree of an expression. Macros are nodes of their own."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen(eq=False)
class Expr:
    """A node with its position in the text."""

    position: int


@attrs.frozen(eq=False)
class Const(Expr):
    """A literal."""

    value: Any


@attrs.frozen(eq=False)
class Ident(Expr):
    """A name."""

    name: str


@attrs.frozen(eq=False)
class Select(Expr):
    """`operand.field`, `operand.?field`, or `has(operand.field)`."""

    operand: Expr
    field: str
    optional: bool = False
    test: bool = False


@attrs.frozen(eq=False)
class CallExpr(Expr):
    """A function or an operator (`_+_`); `target` is what stands before the dot of a method."""

    name: str
    target: Expr | None
    args: tuple[Expr, ...]


@attrs.frozen(eq=False)
class Logic(Expr):
    """`a && b && c` or `a || b || c`."""

    name: str
    args: tuple[Expr, ...]


@attrs.frozen(eq=False)
class ListLiteral(Expr):
    """`[a, ?b]`; `optional` are the indexes of optional items."""

    items: tuple[Expr, ...]
    optional: frozenset[int]


@attrs.frozen(eq=False)
class MapLiteral(Expr):
    """`{a: b, ?c: d}`; `optional` are the indexes of optional entries."""

    entries: tuple[tuple[Expr, Expr], ...]
    optional: frozenset[int]


@attrs.frozen(eq=False)
class Loop(Expr):
    """A macro over a list or a map.

    Attributes:
        macro: `all`, `exists`, `exists_one`, `map`, `filter`, `transformList`, `transformMap`,
            `transformMapEntry`.
        source: the list or map.
        names: one or two variables.
        condition: of `map` and the transformations, None for always.
        body: the test or the result.
    """

    macro: str
    source: Expr
    names: tuple[str, ...]
    condition: Expr | None
    body: Expr


@attrs.frozen(eq=False)
class WithValue(Expr):
    """`optional.optMap(name, body)`; `flat` for optFlatMap."""

    source: Expr
    name: str
    body: Expr
    flat: bool
