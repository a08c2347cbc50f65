"""Draws the board: a live table on a terminal, lines elsewhere, and the summary."""

from __future__ import annotations

import io
import re
from typing import Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kueuelib.api.phrases import counted
from kueuelib.cli.demo.story import QUOTA, Board

COLOURS = {
    "Queued": "yellow",
    "Admitted": "cyan",
    "Running": "blue",
    "Finished": "green",
    "Failed": "red",
}
WIDE = 114
"""The terminal width at which every cause of a wait fits on one line."""
PICTURE_WIDTH = 85
QUIET_SECONDS = 0.3
"""How long a board stays the same before it is drawn for the picture."""


class Screen:
    """Shows the board while it changes.

    Args:
        console: where to draw.
        plain: lines instead of a live table; always on if the console is not a terminal.
    """

    def __init__(self, console: Console, *, plain: bool) -> None:
        self._console = console
        self._shown = 0
        self._moment: list[str] = []
        self._since = 0.0
        self._best: tuple[tuple[int, int], RenderableType] = ((0, 0), "")
        live = console.is_terminal and not plain
        self._live = Live(console=console, refresh_per_second=8) if live else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """Prints one line about what the demo does."""
        self._console.print(text, highlight=False)

    def show(self, board: Board, seconds: float) -> None:
        """Shows the present state; `seconds` since the first Job."""
        moment = [str(row) for row in board.rows.values()]
        if moment != self._moment or not board.settled:
            self._moment, self._since = moment, seconds
        elif seconds - self._since >= QUIET_SECONDS:
            narrow = draw(board, seconds, PICTURE_WIDTH)
            self._best = max(self._best, (_variety(board), narrow), key=lambda one: one[0])
        if self._live:
            self._live.update(draw(board, seconds, self._console.width))
            return
        for line in board.lines[self._shown :]:
            self._console.print(f"{seconds:5.1f} s  {line}", highlight=False, soft_wrap=True)
        self._shown = len(board.lines)

    def picture(self) -> str:
        """An SVG of the live table at its fullest: with most states and reasons, when nothing
        changed for a while, so that rows, reasons and use are of one moment.
        """
        return picture_of(self._best[1])


def _variety(board: Board) -> tuple[int, int]:
    """How much a picture of the board shows: different states, and different reasons to wait."""
    rows = board.rows.values()
    return len({row.state for row in rows}), len({row.note for row in rows if row.note})


def picture_of(table: RenderableType) -> str:
    """A table as SVG; it refers to nothing outside the file."""
    console = Console(record=True, width=PICTURE_WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(table)
    text = console.export_svg(title="kueuelib demo", unique_id="demo")
    text = re.sub(r"@font-face \{.*?\}", "", text, flags=re.DOTALL)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines() if line.strip())


def draw(board: Board, seconds: float, width: int) -> RenderableType:
    """The live view: one row per Job, and the use of each flavor; narrow if necessary."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("Job", "Queue", "Request", "State", "Flavor", "Why it waited when last tried"):
        table.add_column(column, no_wrap=True)
    for name in sorted(board.rows):
        row = board.rows[name]
        state = Text(row.state, style=COLOURS.get(row.state, ""))
        note = row.note if width >= WIDE else row.note.replace("; ", "\n")
        table.add_row(row.name, row.queue, row.request, state, row.flavors, note)
    return Group(table, Text(_usage(board, seconds)))


def _usage(board: Board, seconds: float) -> str:
    """The sums of the rows above it."""
    holders = [row for row in board.rows.values() if row.holds]
    flavors = []
    for flavor in next(iter(QUOTA.values())):
        limit = sum(each[flavor] for each in QUOTA.values())
        used = sum(board.usage.get(row.name, {}).get(flavor, 0) for row in holders) / 1000
        flavors.append(f"{flavor}: {used:g} of {limit} CPUs in use")
    queues = []
    for name in QUOTA:
        waiting = sum(row.queue == name and row.waits for row in board.rows.values())
        having = sum(row.queue == name for row in holders)
        words = counted(waiting, "waits", "wait"), counted(having, "has quota", "have quota")
        queues.append(f"{name}: {', '.join(words)}")
    return "\n".join(("", "   ".join([*flavors, f"{seconds:.1f} s"]), "   ".join(queues)))


def summary(board: Board, seconds: float) -> RenderableType:
    """The table at the end."""
    table = Table(title="Summary", title_justify="left", expand=False)
    for column in ("Job", "Queue", "Request", "Flavor", "Waited", "State"):
        table.add_column(column, no_wrap=True, justify="right" if column == "Waited" else "left")
    for name in sorted(board.rows):
        row = board.rows[name]
        seconds_waited = "-" if row.waited is None else f"{row.waited:.0f} s"
        table.add_row(row.name, row.queue, row.request, row.flavors, seconds_waited, row.state)
    peaks = ", ".join(
        f"{flavor} {board.peak.get(flavor, 0)} of {sum(f[flavor] for f in QUOTA.values())} CPUs"
        for flavor in next(iter(QUOTA.values()))
    )
    finished = sum(row.state == "Finished" for row in board.rows.values())
    waited = sum(row.had_to_wait for row in board.rows.values())
    text = (
        f"{finished} of {len(board.wanted)} Jobs finished in {seconds:.1f} s, "
        f"{waited} had to wait; peak use: {peaks}"
    )
    return Group(table, Text(text))
