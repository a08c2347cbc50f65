"""Tables of plain columns, as kubectl prints them."""

from __future__ import annotations

from collections.abc import Sequence

GAP = 3


class Columns:
    """A table whose rows are printed one by one.

    Args:
        titles: of the columns.
        rows: the cells that are known before; the last cells may still be missing, because the last
            column is not padded.
    """

    def __init__(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = [titles, *map(_plain, rows)]
        self._widths = [
            max(len(row[number]) for row in table) + GAP for number in range(len(titles) - 1)
        ]

    def line(self, cells: Sequence[str]) -> str:
        """A line with its line break.

        Args:
            cells: of one row, or the titles; an empty one is shown as `-`.
        """
        *padded, last = _plain(cells)
        texts = (cell.ljust(width) for cell, width in zip(padded, self._widths, strict=True))
        return "".join((*texts, last, "\n"))


def _plain(cells: Sequence[str]) -> list[str]:
    return [cell.replace("\n", " ") or "-" for cell in cells]
