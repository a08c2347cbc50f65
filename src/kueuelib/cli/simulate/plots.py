"""Small plots of runs in the terminal: a line of blocks per amount, as high as the mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rich.console import Console
from rich.table import Table

from kueuelib.simulator.report import readable
from kueuelib.simulator.report.run import Run
from kueuelib.simulator.report.scales import means, moment

BLOCKS = " ▁▂▃▄▅▆▇█"
PLAIN = " .:-=+*#@"
"""The same for terminals with ASCII only."""
WIDEST = 72
MOST_PAIRS = 8
"""Flavors and resources that are shown."""


def line(values: Sequence[float | None], high: float, blocks: str = BLOCKS) -> str:
    """Values of at least 0 as characters; only 0 and missing values are blank.

    Args:
        values: one per character.
        high: the value of the highest block.
        blocks: from the lowest to the highest.
    """
    top = len(blocks) - 1
    return "".join(
        blocks[min(top, math.ceil((value or 0.0) / high * top))] if high else blocks[0]
        for value in values
    )


def plots(console: Console, runs: Sequence[Run]) -> None:
    """Prints usage by flavor and resource, and the number of waiting jobs, over the time of all
    runs.
    """
    span = max(run.borders[-1] for run in runs)
    if not span:
        return
    rows = list(_rows(runs))
    texts = [(label, run.name, text) for label, run, *_, text in rows]
    used = sum(max(map(len, column)) + 2 for column in zip(*texts, strict=True))
    columns = max(10, min(WIDEST, console.width - used))
    ends = [span * (at + 1) / columns for at in range(columns)]
    blocks = PLAIN if console.options.ascii_only else BLOCKS
    table = Table(
        title=f"Over time, from 0 to {moment(span)}",
        box=None,
        pad_edge=False,
        title_justify="left",
        show_header=False,
    )
    for _ in range(4):
        table.add_column(no_wrap=True)
    before = ""
    for label, run, values, high, text in rows:
        drawn = line(means(ends, run.borders, values), high, blocks)
        table.add_row("" if label == before else label, run.name, drawn, text)
        before = label
    console.print(table)


Row = tuple[str, Run, Sequence[float], float, str]


def _rows(runs: Sequence[Run]) -> Iterator[Row]:
    totals = [(run, run.history.total()) for run in runs]
    pairs = sorted({pair for _, total in totals for pair in total})[:MOST_PAIRS]
    for pair in pairs:
        uses = [(run, total[pair]) for run, total in totals if pair in total]
        high = max(max((*use.used, *use.nominal), default=0.0) for _, use in uses)
        for run, use in uses:
            show = partial(readable.amount, resource=pair.resource)
            most = _most(use.used, show)
            nominal = show(max(use.nominal, default=0.0))
            yield str(pair), run, use.used, high, f"{most} of {nominal}"
    high = max(max(run.history.waiting(), default=0.0) for run in runs)
    for run in runs:
        values = run.history.waiting()
        yield "jobs that wait", run, values, high, _most(values, readable.plain)


def _most(values: Sequence[float], show: Callable[[float], str]) -> str:
    return f"up to {show(max(values, default=0.0))}"
