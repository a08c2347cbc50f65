"""The results of a replay in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import IO, Any

from rich.table import Table
from rich.text import Text

from kueuelib.api.meta import Obj, format_micro_time
from kueuelib.cli.terminal import terminal
from kueuelib.recording.rerun import Difference, Rerun

WIDTH = 160
"""Columns if the output is not a terminal."""
MOST_LINES = 40
"""The maximum number of lines shown that both sides have in common."""


def show_summary(rerun: Rerun, notes: Sequence[str], file: IO[str]) -> None:
    """Prints that every plan was the recorded one."""
    console = terminal(file, WIDTH)
    facts, cycles = _count(rerun.facts, "fact"), _count(rerun.cycles, "cycle")
    lives = "" if rerun.lives == 1 else f" of {rerun.lives} engines"
    until = format_micro_time(rerun.at)
    console.print(f"{facts} and {cycles}{lives}, until {until}", highlight=False)
    if rerun.cycles:
        text = f"Every plan is the recorded one; hash of all plans: {rerun.hash}"
        console.print(text, highlight=False)
    for note in notes:
        console.print(f"Note: {note}", highlight=False, markup=False, soft_wrap=True)


def show_difference(difference: Difference, rerun: Rerun, file: IO[str]) -> None:
    """Prints the first plan that differs from the recorded one, next to the recorded one."""
    console = terminal(file, WIDTH)
    when = format_micro_time(difference.at)
    text = (
        f"Cycle {difference.cycle} at {when} ({difference.at!r}, {difference.where}): "
        f"{difference.why}"
    )
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    table.add_column("recorded", ratio=1, overflow="fold")
    table.add_column("replayed", ratio=1, overflow="fold")
    for left, right in _rows(list(_lines(difference.recorded)), list(_lines(difference.replayed))):
        style = "" if left == right else "bold"
        table.add_row(Text(left, style=style), Text(right, style=style))
    console.print(table)
    if rerun.in_the_middle is not None:
        note = (
            f"Note: the parts before {rerun.in_the_middle.file} are missing; what the engine knew "
            "besides the objects is not known, and the difference may come from that"
        )
        console.print(note, highlight=False, markup=False, soft_wrap=True)


def _rows(left: list[str], right: list[str]) -> Iterator[tuple[str, str]]:
    """Both sides line by line: first the differences, then the common lines."""
    mine, others = set(left), set(right)
    only_left = [line for line in left if line not in others]
    only_right = [line for line in right if line not in mine]
    yield from zip_longest(only_left, only_right, fillvalue="")
    both = [line for line in left if line in others]
    yield from ((line, line) for line in both[:MOST_LINES])
    if len(both) > MOST_LINES:
        more = f"and {len(both) - MOST_LINES:,} more on both sides"
        yield more, more
    if left != right and not only_left and not only_right:
        yield "in this order", "in another order"


def _lines(plan: Obj) -> Iterator[str]:
    """A plan in words, one decision per line."""
    for key, queue, sets, admitted, borrowing in plan.get("admit", ()):
        parts = "; ".join(map(_pods, sets))
        later = "" if admitted else ", after its checks"
        borrows = f", borrowing {borrowing} up" if borrowing else ""
        yield f"admit {key} in {queue}: {parts}{later}{borrows}"
    for key, victims in plan.get("preempt", ()):
        for victim, why in victims:
            yield f"preempt {victim} for {key}: {why}"
    for key, queue, reason, requeue in plan.get("wait", ()):
        yield f"wait {key} in {queue}: {reason} ({requeue})"


def _pods(assignment: Sequence[Any]) -> str:
    name, count, flavors = assignment
    chosen = ", ".join(f"{resource} of {flavor}" for resource, flavor in flavors.items())
    return f"{count} x {name} with {chosen}"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
