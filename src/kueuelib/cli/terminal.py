"""Where answers are printed: a terminal of some width, or a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

WIDTH = 120
"""Columns if the output is not a terminal."""
NARROW = 80
"""A terminal with fewer columns shows a wide table as a block of lines for each row."""


def terminal(file: IO[str] | None = None, width: int = WIDTH) -> Console:
    """A console; without any styles if the environment says NO_COLOR.

    Args:
        file: where to print; standard output if None.
        width: columns if that is not a terminal.
    """
    console = Console(file=file, color_system=None if os.environ.get("NO_COLOR") else "auto")
    return console if console.is_terminal else Console(file=file, width=width)


def print_table(console: Console, table: Table) -> None:
    """Prints a table, or its rows below each other if the terminal is too narrow for columns.

    Args:
        console: where.
        table: its columns have titles.
    """
    if console.width >= NARROW:
        console.print(table)
        return
    titles = [str(column.header) for column in table.columns]
    before = [""] * len(titles)
    for row in zip(*(column.cells for column in table.columns), strict=True):
        console.print()
        before = [_plain(cell) or last for cell, last in zip(row, before, strict=True)]
        for line in _lines(titles, row, before):
            console.print(line, soft_wrap=True)
    console.print()


def _lines(titles: list[str], row: tuple[RenderableType, ...], full: list[str]) -> Iterator[Text]:
    """A line for each cell; an empty first one repeats the row above."""
    for number, (title, cell, text) in enumerate(zip(titles, row, full, strict=True)):
        shown = text if number == 0 else _plain(cell)
        if shown:
            style = cell.style if isinstance(cell, Text) else ""
            yield Text.assemble(f"{title}: ", (shown, style))


def _plain(cell: RenderableType) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)
