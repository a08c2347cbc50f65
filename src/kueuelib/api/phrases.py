"""Parts of sentences for people: numbers with their nouns, and lists that end somewhere."""

from __future__ import annotations

from collections.abc import Collection

MOST_NAMES = 5


def counted(count: int, one: str, many: str = "") -> str:
    """A number with its noun, in singular or plural.

    Args:
        count: the number.
        one: the singular.
        many: the plural; empty for the singular with an s.
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def some(names: Collection[object], most: int = MOST_NAMES) -> str:
    """The first of some names, and how many more there are.

    Args:
        names: in their order.
        most: how many to write.
    """
    listed = ", ".join(str(name) for name in list(names)[:most])
    more = len(names) - most
    return f"{listed} and {more:,} more" if more > 0 else listed
