"""The types of macros, of their variables and results."""

from __future__ import annotations

from kueuelib.embedded.cel.types import BOOL, DYN, INT, Type, list_of, map_of


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
