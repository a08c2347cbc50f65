"""The tables of `kueuelib simulate` in the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kueuelib.api.meta import Obj
from kueuelib.app.explaining.asking import ObjectAnswer
from kueuelib.cli.explain.text import show as show_explanations
from kueuelib.cli.terminal import terminal
from kueuelib.scheduler.explain.answer import Explanation
from kueuelib.simulator.play import BASELINE, Question
from kueuelib.simulator.report import readable
from kueuelib.simulator.report.comparison import WAITS, Run, comparison, unit_of
from kueuelib.simulator.report.readable import TimeUnit, means, moment

CLUSTER = "cluster.yaml"
"""The file with the queues that were derived."""

# ---- small plots of runs in the terminal: a line of blocks per amount, as high as the mean -------

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


# --------------------------------------------------------------------------------------------------

MOST_QUEUES = 40


def show(result: Obj, pictures: Sequence[Run], folder: Path, *, derived: bool) -> None:
    """Prints the figures of all runs to standard output.

    Args:
        result: the content of `result.json`.
        pictures: the same runs with their histories.
        folder: where the files are.
        derived: whether the queues were derived from the trace, and written.
    """
    console = terminal()
    trace, runs = result["trace"], result["runs"]
    for note in result["notes"]:
        console.print(f"Note: {note}", highlight=False, markup=False, soft_wrap=True)
    if result["not_started"]:
        names = ", ".join(result["not_started"])
        console.print(f"Never started: {names}", highlight=False, markup=False, soft_wrap=True)
    _notes(console, trace, runs)
    for sentence in result["verdicts"]:
        console.print(sentence, highlight=False, markup=False)
    if len(runs) > 1:
        console.print(readable.sizes(trace["sizes"]), highlight=False)
        console.print(_comparison(runs))
    unit = unit_of(runs)
    for name, figures in runs.items():
        title = f"{name}, times in {unit.name}" if len(runs) > 1 else f"Times in {unit.name}"
        console.print(_queues(title, figures, unit))
    plots(console, pictures)
    _summary(console, runs)
    placing = any("fragmentation" in figures for figures in runs.values())
    tables = "jobs.csv, queues.csv and places.csv" if placing else "jobs.csv and queues.csv"
    files = f"Files: {folder}/report.html, result.json and, per run, {tables}"
    console.print(files)
    if derived:
        text = f"Queues derived from the trace: {folder / BASELINE / CLUSTER}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def _notes(console: Console, trace: Obj, runs: Obj) -> None:
    console.print(readable.jobs(trace["jobs"]), highlight=False)
    for reason, count in trace["dropped"].items():
        console.print(f"Left out: {count:,} with {reason}", highlight=False)
    if trace["bad_lines"]:
        console.print(f"Bad lines, skipped: {trace['bad_lines']:,}", highlight=False)
        for line in trace["bad_lines_shown"]:
            console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
        more = trace["bad_lines"] - len(trace["bad_lines_shown"])
        if more:
            console.print(f"  and {more:,} more", highlight=False)
    for name, figures in runs.items():
        simulation = figures["simulation"]
        if simulation["unfinished"]:
            why = ", ".join(
                f"{count:,} {key}" for key, count in simulation["unfinished_because"].items()
            )
            text = f"{name}: {readable.jobs(simulation['unfinished'])} did not end: {why}"
            console.print(text, highlight=False, markup=False, soft_wrap=True)
            for example in simulation["unfinished_for_example"].values():
                console.print(f"  {example}", highlight=False, markup=False, soft_wrap=True)
        if simulation["jobs_not_submitted"]:
            text = f"{name}: {readable.jobs(simulation['jobs_not_submitted'])} not submitted"
            console.print(text, highlight=False)


def _summary(console: Console, runs: Obj) -> None:
    for name, figures in runs.items():
        simulation = figures["simulation"]
        console.print(
            f"{name}: {simulation['events']:,} events and {simulation['cycles']:,} cycles in "
            f"{simulation['speed']['seconds']:.1f} s; decisions {figures['decisions'][:12]}",
            highlight=False,
        )


def _table(title: str) -> Table:
    return Table(title=title or None, box=None, pad_edge=False, title_justify="left")


def _queues(title: str, figures: Obj, unit: TimeUnit) -> Table:
    table = _table(title)
    table.add_column("ClusterQueue")
    for column in ("jobs", *(f"wait {name}" for name in WAITS), "slowdown p50"):
        table.add_column(column, justify="right")
    for column in ("preempted", "lost", "use", "borrowed"):
        table.add_column(column, justify="right", no_wrap=True)
    rows = list(figures["cluster_queues"].items())
    for name, group in (*rows[:MOST_QUEUES], ("total", figures["total"])):
        table.add_row(*_row(name, group, figures["use"].get(name, {}), unit))
    if len(rows) > MOST_QUEUES:
        table.caption = f"{len(rows) - MOST_QUEUES} more ClusterQueues are in result.json"
    return table


def _row(name: str, group: Obj, use: Obj, unit: TimeUnit) -> list[str]:
    waits = [unit(group["wait_seconds"][key]) for key in WAITS]
    return [
        name,
        f"{group['jobs']:,}",
        *waits,
        readable.plain(group["bounded_slowdown"]["p50"]),
        f"{group['preemptions']:,}",
        unit(group["work_lost_seconds"]),
        "\n".join(f"{pair} {readable.percent(one['of_nominal'])}" for pair, one in use.items()),
        "\n".join(
            readable.amount(one["borrowed"], pair.partition("/")[2]) for pair, one in use.items()
        ),
    ]


def _comparison(runs: Obj) -> Table:
    """One row per figure, one column per run, with the difference to the first run."""
    table = _table("All runs")
    table.add_column("")
    for name in runs:
        table.add_column(name, justify="right")
    for label, texts in comparison(runs, MOST_QUEUES):
        table.add_row(label, *texts)
    return table


def show_answers(run: str, answers: Sequence[tuple[Question, Explanation | None]]) -> None:
    """Prints the answers about single jobs."""
    console = terminal()
    for question, explanation in answers:
        where = f", {run}" if run else ""
        console.print(f"At {question.at:.10g}{where}:", style="bold", highlight=False)
        if explanation is None:
            console.print(f"{question.job} did not exist", highlight=False)
        else:
            show_explanations([ObjectAnswer(f"Workload {question.job.name}", True, explanation)])
        console.print()
