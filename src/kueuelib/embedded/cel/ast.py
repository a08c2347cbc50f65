"""The tree of an expression. Macros are nodes of their own."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen(eq=False)
class Node:
    """A node with its position in the text."""

    position: int


@attrs.frozen(eq=False)
class Const(Node):
    """A literal."""

    value: Any


@attrs.frozen(eq=False)
class Ident(Node):
    """A name."""

    name: str


@attrs.frozen(eq=False)
class Select(Node):
    """`operand.field`, `operand.?field`, or `has(operand.field)`."""

    operand: Node
    field: str
    optional: bool = False
    test: bool = False


@attrs.frozen(eq=False)
class Call(Node):
    """A function or an operator (`_+_`); `target` is what stands before the dot of a method."""

    name: str
    target: Node | None
    args: tuple[Node, ...]


@attrs.frozen(eq=False)
class Logic(Node):
    """`a && b && c` or `a || b || c`."""

    name: str
    args: tuple[Node, ...]


@attrs.frozen(eq=False)
class ListLiteral(Node):
    """`[a, ?b]`; `optional` are the indexes of optional items."""

    items: tuple[Node, ...]
    optional: frozenset[int]


@attrs.frozen(eq=False)
class MapLiteral(Node):
    """`{a: b, ?c: d}`; `optional` are the indexes of optional entries."""

    entries: tuple[tuple[Node, Node], ...]
    optional: frozenset[int]


@attrs.frozen(eq=False)
class Loop(Node):
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
    source: Node
    names: tuple[str, ...]
    condition: Node | None
    body: Node


@attrs.frozen(eq=False)
class WithValue(Node):
    """`optional.optMap(name, body)`; `flat` for optFlatMap."""

    source: Node
    name: str
    body: Node
    flat: bool
