"""HTML and SVG as text: elements that are well-formed and escaped by construction."""

from __future__ import annotations

from html import escape

_VOID = frozenset({"br", "circle", "line", "link", "meta", "path", "rect"})
"""Elements without content, which are closed at once."""


class Markup(str):
    """Text that is markup already; any other text is escaped when it becomes a part of markup."""

    __slots__ = ()


Node = str | Markup


def tag(name: str, /, *children: Node, **attributes: str | float | None) -> Markup:
    """An element.

    Args:
        name: of the element.
        children: texts, which are escaped, and markup, which is not.
        attributes: values by name; `_` becomes `-`, a trailing one is dropped. Numbers have at
            most two decimals. None leaves an attribute out.
    """
    parts = [
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    ]
    if name in _VOID and not children:
        return Markup(f"<{name}{''.join(parts)}/>")
    return Markup(f"<{name}{''.join(parts)}>{join(*children)}</{name}>")


def join(*children: Node) -> Markup:
    """Nodes one after the other."""
    return Markup("".join(one if isinstance(one, Markup) else escape(one) for one in children))


def number(value: float) -> str:
    """A number for an attribute: at most two decimals, no useless zeros."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _value(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else number(value)
