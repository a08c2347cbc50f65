"""Results as text: one line per run, and medians side by side."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from .result import Result


def line(result: Result) -> str:
    """One run in one line."""
    left = f", {result.left} left over" if result.left else ""
    use = "" if result.use is None else f"use {result.use:.0%}, "
    return (
        f"{result.manager}: {result.finished:,} of {result.objects:,} in {result.wall:.1f} s, "
        f"{use}manager {result.cpu:.1f} s and {result.rss:.0f} MB{left}; "
        f"load {result.load:.1f}"
    )


def comparison(results: Sequence[Result]) -> str:
    """Medians of all managers; the first one divided by each of the others."""
    labels = list(dict.fromkeys(each.manager for each in results))
    columns = [[each.figures() for each in results if each.manager == label] for label in labels]
    ratios = [f"{labels[0]} / {label}" for label in labels[1:]]
    rows = [["", *labels, *ratios]]
    for name in columns[0][0]:
        values = [[run[name] for run in column] for column in columns]
        medians = [statistics.median(each) for each in values]
        rows.append([name, *map(_spread, values), *(_ratio(medians[0], m) for m in medians[1:])])
    return _aligned(rows)


def calls(results: Sequence[Result]) -> str:
    """Calls per created object of every manager, medians."""
    labels = list(dict.fromkeys(each.manager for each in results))
    names = sorted({name for each in results for name in each.calls})
    rows = [["calls per object", *labels]]
    for name in names:
        medians = [
            statistics.median(each.number(name) for each in results if each.manager == label)
            for label in labels
        ]
        if max(medians) >= 0.005:
            rows.append([name, *(f"{each:.2f}" for each in medians)])
    return _aligned(rows)


def _spread(values: Sequence[float]) -> str:
    middle = f"{statistics.median(values):.2f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.2f}-{max(values):.2f})"


def _ratio(first: float, other: float) -> str:
    return f"{first / other:.2f}" if other else "-"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *others = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        lines.append("  ".join(cells))
    return "\n".join(lines)
