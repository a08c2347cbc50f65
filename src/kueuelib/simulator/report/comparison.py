"""The figures of all runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.simulator.report.readable import with_differences

WAITS = ("p50", "p90", "p99", "max")

_COMPARED: tuple[tuple[str, tuple[str, ...]], ...] = (
    *((f"wait {name} s", ("total", "wait_seconds", name)) for name in (*WAITS, "mean")),
    ("bounded slowdown p50", ("total", "bounded_slowdown", "p50")),
    ("bounded slowdown mean", ("total", "bounded_slowdown", "mean")),
    ("preemptions", ("total", "preemptions")),
    ("work lost s", ("total", "work_lost_seconds")),
    ("makespan s", ("makespan_seconds",)),
    ("Jain's index", ("jain_index",)),
    ("jobs that did not end", ("simulation", "unfinished")),
)


def comparison(runs: Mapping[str, Obj], most_queues: int) -> list[tuple[str, list[str]]]:
    """One row per figure: its name, and its value in each run with the difference to the first.

    Args:
        runs: the figures by run.
        most_queues: how many ClusterQueues have a row.
    """
    figures = list(runs.values())
    queues = list(figures[0]["cluster_queues"])[:most_queues]
    rows = (
        *_COMPARED,
        *(
            (f"wait p90 s, {name}", ("cluster_queues", name, "wait_seconds", "p90"))
            for name in queues
        ),
    )
    return [
        (label, with_differences([_at(each, path) for each in figures])) for label, path in rows
    ]


def _at(value: Any, path: Sequence[str]) -> float | None:
    for key in path:
        if value is None:
            return None
        value = value.get(key)
    return None if value is None else float(value)
