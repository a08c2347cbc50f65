"""The tables of `kueuelib simulate` in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kueuelib.api.meta import Obj
from kueuelib.app.explaining.asking import Answer
from kueuelib.cli.explain.text import show as show_explanations
from kueuelib.scheduler.explain.answer import Explanation
from kueuelib.simulator.play import Question

WIDTH = 120
"""Columns where the output is no terminal."""
HOUR = 3600.0
GIBI = 2.0**30
MOST_QUEUES = 40

_WAITS = ("p50", "p90", "p99", "max")


def show(result: Obj, folder: Path) -> None:
    """Prints the figures of all runs to standard output."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    trace, runs = result["trace"], result["runs"]
    for note in result["notes"]:
        console.print(f"Note: {note}", highlight=False, markup=False, soft_wrap=True)
    if result["not_started"]:
        names = ", ".join(result["not_started"])
        console.print(f"Never started: {names}", highlight=False, markup=False, soft_wrap=True)
    _notes(console, trace, runs)
    if len(runs) > 1:
        console.print(_comparison(runs))
    for name, figures in runs.items():
        console.print(_queues(name if len(runs) > 1 else "", figures))
    _summary(console, runs)
    console.print(f"Files: {folder}/result.json and, per run, jobs.csv and queues.csv")


def _notes(console: Console, trace: Obj, runs: Obj) -> None:
    console.print(_jobs(trace["jobs"]), highlight=False)
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
        found = figures["simulation"]
        if found["unfinished"]:
            why = ", ".join(
                f"{count:,} {key}" for key, count in found["unfinished_because"].items()
            )
            text = f"{name}: {_jobs(found['unfinished'])} did not end: {why}"
            console.print(text, highlight=False, markup=False, soft_wrap=True)
        if found["jobs_not_submitted"]:
            text = f"{name}: {_jobs(found['jobs_not_submitted'])} not submitted"
            console.print(text, highlight=False)


def _summary(console: Console, runs: Obj) -> None:
    for name, figures in runs.items():
        found = figures["simulation"]
        console.print(
            f"{name}: {found['events']:,} events and {found['cycles']:,} cycles in "
            f"{found['speed']['seconds']:.1f} s; decisions {figures['decisions'][:12]}",
            highlight=False,
        )


def _table(title: str) -> Table:
    return Table(title=title or None, box=None, pad_edge=False, title_justify="left")


def _queues(title: str, figures: Obj) -> Table:
    table = _table(title)
    table.add_column("ClusterQueue")
    for column in ("jobs", *(f"wait {name}" for name in _WAITS), "slowdown p50"):
        table.add_column(column, justify="right")
    for column in ("preempted", "lost", "use", "borrowed"):
        table.add_column(column, justify="right", no_wrap=True)
    rows = list(figures["cluster_queues"].items())
    for name, group in (*rows[:MOST_QUEUES], ("total", figures["total"])):
        table.add_row(*_row(name, group, figures["use"].get(name, {})))
    if len(rows) > MOST_QUEUES:
        table.caption = f"{len(rows) - MOST_QUEUES} more ClusterQueues are in result.json"
    return table


def _row(name: str, group: Obj, use: Obj) -> list[str]:
    waits = [_seconds(group["wait_seconds"][key]) for key in _WAITS]
    return [
        name,
        f"{group['jobs']:,}",
        *waits,
        _plain(group["bounded_slowdown"]["p50"]),
        f"{group['preemptions']:,}",
        _seconds(group["work_lost_seconds"]),
        "\n".join(_percent(one["of_nominal"], pair) for pair, one in use.items()),
        "\n".join(_amount(one["borrowed"]) for one in use.values()),
    ]


def _comparison(runs: Obj) -> Table:
    """One row per figure, one column per run, with the difference to the first run."""
    table = _table("All runs")
    table.add_column("")
    for name in runs:
        table.add_column(name, justify="right")
    figures = list(runs.values())
    for label, path in _COMPARED:
        values = [_at(found, path) for found in figures]
        table.add_row(label, *_with_differences(values))
    for queue in list(figures[0]["cluster_queues"])[:MOST_QUEUES]:
        path = ("cluster_queues", queue, "wait_seconds", "p90")
        values = [_at(found, path) for found in figures]
        table.add_row(f"wait p90 s, {queue}", *_with_differences(values))
    return table


_COMPARED: tuple[tuple[str, tuple[str, ...]], ...] = (
    *((f"wait {name} s", ("total", "wait_seconds", name)) for name in (*_WAITS, "mean")),
    ("bounded slowdown p50", ("total", "bounded_slowdown", "p50")),
    ("bounded slowdown mean", ("total", "bounded_slowdown", "mean")),
    ("preemptions", ("total", "preemptions")),
    ("work lost s", ("total", "work_lost_seconds")),
    ("makespan s", ("makespan_seconds",)),
    ("Jain's index", ("jain_index",)),
    ("jobs that did not end", ("simulation", "unfinished")),
)


def _at(found: Any, path: Sequence[str]) -> float | None:
    for key in path:
        if found is None:
            return None
        found = found.get(key)
    return None if found is None else float(found)


def _with_differences(values: Sequence[float | None]) -> list[str]:
    first = values[0]
    texts = [_plain(first)]
    for value in values[1:]:
        text = _plain(value)
        if value is not None and first is not None and value != first:
            text += f" ({(value - first) / first:+.1%})" if first else f" ({value - first:+.4g})"
        texts.append(text)
    return texts


def _jobs(count: int) -> str:
    return f"{count:,} {'job' if count == 1 else 'jobs'}"


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _seconds(value: float | None) -> str:
    """Seconds in a unit that people compare."""
    if value is None:
        return "-"
    for unit, size in (("d", 24 * HOUR), ("h", HOUR), ("m", 60.0)):
        if value >= size:
            return f"{value / size:.1f}{unit}"
    return f"{value:.4g}s"


def _amount(value: float) -> str:
    return f"{value / GIBI:,.4g}Gi" if value >= GIBI else f"{value:.4g}"


def _percent(part: float | None, pair: str) -> str:
    return f"{pair} {'-' if part is None else f'{part:.0%}'}"


def show_answers(run: str, answers: Sequence[tuple[Question, Explanation | None]]) -> None:
    """Prints what was asked about single jobs."""
    console = Console()
    for question, found in answers:
        where = f", {run}" if run else ""
        console.print(f"At {question.at:.10g}{where}:", style="bold", highlight=False)
        if found is None:
            console.print(f"{question.job} was not there", highlight=False)
        else:
            show_explanations([Answer(f"Workload {question.job.name}", True, found)])
        console.print()
