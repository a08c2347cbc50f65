"""The README's picture is what the demo draws today."""

from __future__ import annotations

import html
import re
from pathlib import Path

from kueuelib.cli.demo.screen import draw, picture_of
from kueuelib.cli.demo.story import Board, Row

PICTURE = Path(__file__).parents[3] / "docs" / "demo.svg"


def texts(svg: str) -> list[str]:
    found = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    return [html.unescape(text).replace("\xa0", " ") for text in found]


def drawn() -> Board:
    """The board of the picture, read back from it."""
    lines = re.split(r"[│┃]", "".join(texts(PICTURE.read_text())))
    cells = [cell.strip() for cell in lines]
    board = Board(())
    for at, cell in enumerate(cells):
        if re.fullmatch(r"job-\d\d", cell):
            name, queue, request, state, flavors, note = cells[at : at + 6]
            board.rows[name] = Row(name, queue, request, state, flavors, note)
    return board


def test_a_table_of_the_same_board_has_the_lines_of_the_picture() -> None:
    board, stored = drawn(), texts(PICTURE.read_text())
    assert len(board.rows) == 12
    title = next(text for text in stored if text.startswith("kueuelib demo, "))
    again = texts(picture_of(draw(board, title.removeprefix("kueuelib demo, "))))
    usage = "CPUs in use"
    assert [text for text in again if usage not in text] == [
        text for text in stored if usage not in text
    ]


def test_the_picture_shows_short_reasons_and_needs_no_other_file() -> None:
    notes = {row.note for row in drawn().rows.values()}
    assert any(re.fullmatch(r"cpu on on-demand: \d more needed; .*", note) for note in notes)
    assert "url(http" not in PICTURE.read_text()
