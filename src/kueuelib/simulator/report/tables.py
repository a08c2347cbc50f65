"""The intervals of tables that represent a picture over time."""

from __future__ import annotations

from collections.abc import Sequence

from kueuelib.simulator.report.scales import time_ticks

ROWS = 24
"""The rows of a table that represents a picture over time."""


def grid(span: float) -> list[float]:
    """The ends of intervals with a readable length; the last one may be shorter."""
    ends = time_ticks(span, ROWS)[1:]
    return ends if ends and ends[-1] >= span else [*ends, span]


def means(
    ends: Sequence[float], borders: Sequence[float], values: Sequence[float | None]
) -> list[float | None]:
    """The means of a series in other intervals; None in those that it does not cover.

    Args:
        ends: of the other intervals, ascending; the first one begins where the series does.
        borders: of the intervals of the series, one more than values.
        values: of the series; intervals without one do not count.
    """
    sums, widths = [0.0] * len(ends), [0.0] * len(ends)
    at = 0
    for number, value in enumerate(values):
        low, high = borders[number], borders[number + 1]
        while low < high and at < len(ends):
            until = min(high, ends[at])
            if value is not None and until > low:
                sums[at] += value * (until - low)
                widths[at] += until - low
            low = until
            if ends[at] <= high:
                at += 1
    return [one / width if width else None for one, width in zip(sums, widths, strict=True)]
