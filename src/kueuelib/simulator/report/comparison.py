"""The runs of a report: their figures side by side, and what they say in a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj
from kueuelib.api.phrases import counted
from kueuelib.simulator.history import ClusterHistory, Values
from kueuelib.simulator.report.readable import TimeUnit, plain, time_unit, with_differences
from kueuelib.simulator.trace import ALL, SIZES

# ---- one run in a report -------------------------------------------------------------------------

KINDS = 8
"""The number of runs with different styles."""


@attrs.frozen(eq=False)
class Run:
    """One run of a simulation, shown next to others.

    Attributes:
        name: of the run.
        figures: its part of `result.json`.
        history: its ClusterQueues over time.
        waits: the waits of all jobs that started, ascending, each with how many waited no longer.
        kind: the class of its lines in pictures.
    """

    name: str
    figures: Obj
    history: ClusterHistory
    waits: tuple[tuple[float, int], ...]
    kind: str = ""

    @property
    def borders(self) -> Values:
        """The borders of the intervals of its history, in seconds since the first arrival."""
        edges = self.history.borders
        return tuple(border - edges[0] for border in edges)


# --------------------------------------------------------------------------------------------------

WAITS = ("p50", "p90", "p99", "max")
SAME = 0.05
"""Waits, and numbers of jobs, that differ by at most this part are about the same."""
AT_ONCE = 1.0
"""Seconds; what waits less than this on average starts at once."""
FEW = 30
"""With fewer jobs than this, a sentence says how many there are."""

_COMPARED: tuple[tuple[str, tuple[str, ...]], ...] = (
    *((f"wait {name} {{unit}}", ("total", "wait_seconds", name)) for name in (*WAITS, "mean")),
    ("bounded slowdown p50", ("total", "bounded_slowdown", "p50")),
    ("bounded slowdown mean", ("total", "bounded_slowdown", "mean")),
    ("preemptions", ("total", "preemptions")),
    ("work lost {unit}", ("total", "work_lost_seconds")),
    ("makespan {unit}", ("makespan_seconds",)),
    ("Jain's index", ("jain_index",)),
    ("jobs that did not end", ("simulation", "unfinished")),
)


def unit_of(runs: Mapping[str, Obj]) -> TimeUnit:
    """The unit for all times in the tables of some runs, chosen by their waits."""
    return time_unit(
        group["wait_seconds"][key]
        for figures in runs.values()
        for group in (figures["total"], *figures["cluster_queues"].values())
        for key in (*WAITS, "mean")
    )


def comparison(runs: Mapping[str, Obj], most_queues: int) -> list[tuple[str, list[str]]]:
    """One row per figure: its name, and its value in each run with the difference to the first.

    Args:
        runs: the figures by run.
        most_queues: how many ClusterQueues have a row.
    """
    figures, unit = list(runs.values()), unit_of(runs)
    queues = list(figures[0]["cluster_queues"])[:most_queues]
    rows = [
        (label.replace("{unit}", unit.name), path, unit.seconds if "{unit}" in label else 1.0)
        for label, path in _COMPARED
    ]
    for flavor, levels in figures[0].get("fragmentation", {}).items():
        for level, resources in levels.items():
            for resource in resources:
                label = f"fragmentation of {resource}, {level.rpartition('/')[2]}, {flavor}"
                rows.append((label, ("fragmentation", flavor, level, resource), 1.0))
    for name in queues:
        path = ("cluster_queues", name, "wait_seconds", "p90")
        rows.append((f"wait p90 {unit.name}, {name}", path, unit.seconds))
    return [
        (label, with_differences([_at(each, path, size) for each in figures]))
        for label, path, size in rows
    ]


def _at(value: Any, path: Sequence[str], size: float) -> float | None:
    for key in path:
        if value is None:
            return None
        value = value.get(key)
    return None if value is None else float(value) / size


def verdicts(runs: Mapping[str, Obj]) -> list[str]:
    """What each run does to the waits of small, medium and large jobs, in a sentence.

    Args:
        runs: the figures by run; all of them are compared with the first one.
    """
    if not runs:
        return []
    (name, first), *others = runs.items()
    unit = unit_of(runs)
    return [_verdict(other, figures, name, first, unit) for other, figures in others]


def _verdict(name: str, figures: Obj, base: str, first: Obj, unit: TimeUnit) -> str:
    for run, one in ((base, first), (name, figures)):
        if one["simulation"]["interrupted"]:
            return f"{name} cannot be compared with {base}: {run} was interrupted."
    clauses = [
        clause
        for size in SIZES
        for clause in _clauses(size, first["sizes"].get(size), figures["sizes"].get(size), unit)
    ]
    if not clauses:
        return f"{name} cannot be compared with {base}: no job starts in both."
    listed = " and ".join(filter(None, (", ".join(clauses[:-1]), clauses[-1])))
    return f"Compared with {base}, {name} {listed}."


def _clauses(size: str, before: Obj | None, after: Obj | None, unit: TimeUnit) -> Iterator[str]:
    """What happens to the jobs of one class; nothing if none of them ever starts."""
    if before is None or after is None or not before["started"] + after["started"]:
        return
    jobs = "jobs" if size == ALL else f"{size} jobs"
    had, has = before["started"], after["started"]
    notes = [f"only {counted(before['jobs'], 'job')}"] if before["jobs"] < FEW else []
    if not had or not has or abs(has - had) > SAME * had:
        yield _noted(f"starts {has:,} {jobs} instead of {had:,}", notes)
        return
    if has != had:
        notes.insert(0, f"{abs(has - had):,} {'fewer' if has < had else 'more'} of them start")
    was, now = before["wait_seconds"]["mean"], after["wait_seconds"]["mean"]
    text, detail = _change(jobs, was, now, unit)
    yield _noted(text, [detail, *notes])


def _change(jobs: str, was: float, now: float, unit: TimeUnit) -> tuple[str, str]:
    """What happens to jobs with these mean waits, and the waits."""
    if max(was, now) < AT_ONCE:
        return f"starts {jobs} at once", "as before"
    detail = f"mean wait {unit.named(now)} instead of {unit.named(was)}"
    if abs(now - was) <= max(SAME * was, AT_ONCE):
        return f"starts {jobs} after about the same wait", detail
    if now < AT_ONCE:
        return f"starts {jobs} at once", detail
    if was < AT_ONCE:
        return f"delays {jobs}, which otherwise start at once", detail
    if now < was / 2:
        return f"starts {jobs} {_times(was / now)} times sooner", detail
    if now > was * 2:
        return f"lets {jobs} wait {_times(now / was)} times as long", detail
    part = f"{abs(now - was) / was:.0%}".replace("%", " %")
    return (f"starts {jobs} {part} sooner" if now < was else f"delays {jobs} by {part}"), detail


def _times(ratio: float) -> str:
    return plain(round(ratio, 1 if ratio < 10 else 0))


def _noted(text: str, notes: Sequence[str]) -> str:
    return f"{text} ({'; '.join(notes)})" if notes else text
