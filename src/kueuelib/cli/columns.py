"""Tables of plain columns, as kubectl prints them."""

from __future__ import annotations

from collections.abc import Sequence

GAP = 3


def columns(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as text, one line for each row; the last column is not padded.

    Args:
        titles: of the columns.
        rows: the cells; an empty one is shown as `-`.
    """
    table = [titles, *([cell.replace("\n", " ") or "-" for cell in row] for row in rows)]
    widths = [max(len(row[number]) for row in table) + GAP for number in range(len(titles) - 1)]
    return "".join(
        "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        + row[-1]
        + "\n"
        for row in table
    )
