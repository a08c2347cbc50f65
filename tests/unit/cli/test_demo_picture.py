"""The README's picture is what the demo draws today."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path

from rich.console import Console

from kueuelib.cli.demo.screen import PICTURE_WIDTH, WIDE, draw, picture_of
from kueuelib.cli.demo.story import Board, Row

PICTURE = Path(__file__).parents[3] / "docs" / "demo.svg"
_TEXT = re.compile(r'<text class="demo-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>')
CELL = 12.2
"""Units from one column of the terminal to the next."""


def lines(svg: str) -> list[str]:
    """The lines of the terminal in a picture."""
    found: dict[float, str] = {}
    for x, y, text in _TEXT.findall(svg):
        plain = html.unescape(text).replace("\xa0", " ")
        line = found.get(float(y), "").ljust(round(float(x) / CELL))
        found[float(y)] = line + plain
    return [found[y].rstrip() for y in sorted(found)]


def drawn() -> Board:
    """The board of the picture, read back from it."""
    first, *rest = lines(PICTURE.read_text())
    starts = [first.index(word) for word in ("Job", "Queue", "Request", "State", "Flavor", "Why")]
    board, last = Board(()), ""
    for line in rest:
        cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
        if re.fullmatch(r"job-\d\d", cells[0]):
            last, queue, request, state, flavors, note = cells
            board.rows[last] = Row(last, queue, request, state, flavors, note)
        elif last and line and not "".join(cells[:-1]):
            board.rows[last].note += f"; {cells[-1]}"
        else:
            last = ""
    return board


def test_a_table_of_the_same_board_has_the_lines_of_the_picture() -> None:
    board, stored = drawn(), lines(PICTURE.read_text())
    assert len(board.rows) == 12
    again = lines(picture_of(draw(board, 0.0, PICTURE_WIDTH)))
    assert [*again[:-2], "", ""] == [*stored[:-2], "", ""], "the use of quota is not read back"


def test_the_picture_shows_short_reasons_and_needs_no_other_file() -> None:
    notes = {row.note for row in drawn().rows.values()}
    assert any(re.fullmatch(r"cpu on on-demand: \d more needed; .*", note) for note in notes)
    assert "url(http" not in PICTURE.read_text()


def test_nothing_is_cut_off_and_a_wide_terminal_has_one_line_for_each_job() -> None:
    assert not [line for line in lines(PICTURE.read_text()) if "\N{HORIZONTAL ELLIPSIS}" in line]
    wide = Console(width=WIDE, record=True, file=io.StringIO())
    wide.print(draw(drawn(), 0.0, WIDE))
    text = wide.export_text()
    assert len(re.findall(r"^job-\d\d.*more needed; .*more needed *$", text, re.MULTILINE)) >= 3
