"""The README's picture is what the demo draws today."""

from __future__ import annotations

import html
import io
import re
from collections import Counter
from pathlib import Path

from rich.console import Console

from kueuelib.cli.demo.play import (
    PICTURE_WIDTH,
    QUIET_SECONDS,
    WIDE,
    Screen,
    draw,
    picture_of,
)
from kueuelib.cli.demo.story import QUOTA, Board, JobRow

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


def text() -> str:
    return PICTURE.read_text()


def drawn() -> Board:
    """The board of the picture, read back from it."""
    first, *rest = lines(text())
    starts = [first.index(word) for word in ("Job", "Queue", "Request", "State", "Flavor", "Why")]
    board, last = Board(()), ""
    for line in rest:
        cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
        if re.fullmatch(r"job-\d\d", cells[0]):
            last, queue, request, state, flavors, note = cells
            pods, _, each, _ = request.split()
            board.rows[last] = JobRow(
                last, queue, request, state, flavors, note, int(pods) * int(each)
            )
            if board.rows[last].holds:
                board.usage[last] = {flavors: 1000 * board.rows[last].cpus}
        elif last and line and not "".join(cells[:-1]):
            board.rows[last].note += f"; {cells[-1]}"
        else:
            last = ""
    return board


def footer(svg: str) -> list[str]:
    """What the picture says below its table: use by flavor, then queues; without the time."""
    *_, flavors, queues = lines(svg)
    return [*flavors.split("   ")[:-1], *queues.split("   ")]


def counted_in(board: Board) -> list[str]:
    """The same, counted row by row."""
    used, waits, holds = Counter[str](), Counter[str](), Counter[str]()
    for row in board.rows.values():
        match row.state:
            case "Admitted" | "Running":
                used[row.flavors] += row.cpus
                holds[row.queue] += 1
            case "Queued" | "Created":
                waits[row.queue] += 1
            case _:
                assert row.state == "Finished"
    limits = {flavor: sum(each[flavor] for each in QUOTA.values()) for flavor in QUOTA["red"]}
    return [
        *(f"{flavor}: {used[flavor]} of {most} CPUs in use" for flavor, most in limits.items()),
        *(
            f"{name}: {waits[name]} wait{'s' * (waits[name] == 1)},"
            f" {holds[name]} {'has' if holds[name] == 1 else 'have'} quota"
            for name in QUOTA
        ),
    ]


def test_the_line_below_the_rows_counts_the_same_moment() -> None:
    assert footer(text()) == counted_in(drawn())


def test_no_picture_is_taken_while_the_watches_show_different_moments() -> None:
    """The Job has ended, and its Workload still holds quota."""
    board = drawn()
    screen = Screen(Console(file=io.StringIO()), plain=True)
    screen.show(board, 0.0)
    screen.show(board, QUIET_SECONDS)
    before = counted_in(board)
    assert footer(screen.picture()) == before
    ended = next(row for row in board.rows.values() if row.state == "Running")
    ended.state = "Finished"
    for name in ("job-09", "job-12"):
        board.rows[name].note = f"a reason of {name}, so that this moment shows more"
    screen.show(board, 1.0)
    screen.show(board, 2.9)
    assert footer(screen.picture()) == before
    assert footer(picture_of(draw(board, 2.9, PICTURE_WIDTH))) == counted_in(board) != before
    del board.usage[ended.name]
    screen.show(board, 3.0)
    assert footer(screen.picture()) == before, "it has just changed"
    screen.show(board, 3.5)
    assert footer(screen.picture()) == counted_in(board)


def test_a_table_of_the_same_board_has_the_lines_of_the_picture() -> None:
    board, stored = drawn(), lines(text())
    assert len(board.rows) == 12
    again = lines(picture_of(draw(board, 0.0, PICTURE_WIDTH)))
    assert [*again[:-2], again[-1]] == [*stored[:-2], stored[-1]], "but for the time"


def test_the_picture_shows_short_reasons_and_needs_no_other_file() -> None:
    notes = {row.note for row in drawn().rows.values()}
    assert any(re.fullmatch(r"cpu on on-demand: \d more needed; .*", note) for note in notes)
    assert "url(http" not in text()


def test_nothing_is_cut_off_and_a_wide_terminal_has_one_line_for_each_job() -> None:
    assert not [line for line in lines(text()) if "\N{HORIZONTAL ELLIPSIS}" in line]
    wide = Console(width=WIDE, record=True, file=io.StringIO())
    wide.print(draw(drawn(), 0.0, WIDE))
    shown = wide.export_text()
    assert len(re.findall(r"^job-\d\d.*more needed; .*more needed *$", shown, re.MULTILINE)) >= 3
