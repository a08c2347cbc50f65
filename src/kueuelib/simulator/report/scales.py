"""Maps values to places in a picture, and chooses the ticks of axes and the rows of tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs

from kueuelib.simulator.report.readable import DAY, HOUR, MINUTE

TICKS = 5
"""The maximum number of ticks of a vertical axis, besides 0."""
_UNITS = ((365 * DAY, "y"), (DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (1.0, "s"))
_LONG = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(MINUTE * part for part in (1, 2, 5, 10, 15, 30)),
    *(HOUR * part for part in (1, 2, 3, 6, 12)),
    *(DAY * part for part in (1, 2, 7, 14, 30, 90, 180, 365)),
)
"""Readable steps between two ticks of time, in seconds."""
ROWS = 24
"""The rows of a table that represents a picture over time."""


@attrs.frozen
class Scale:
    """Maps values to a line.

    Attributes:
        low: the value at `start`.
        high: the value at `end`.
        start: a place in the picture.
        end: another one; it may be the smaller one.
        bend: a function that is applied to values first.
    """

    low: float
    high: float
    start: float
    end: float
    bend: Callable[[float], float] = float

    def __call__(self, value: float) -> float:
        """The place of a value; values beyond the ends are drawn at the ends."""
        low, high = self.bend(self.low), self.bend(self.high)
        part = (self.bend(value) - low) / (high - low) if high > low else 0.0
        return self.start + min(max(part, 0.0), 1.0) * (self.end - self.start)


def ticks(high: float, most: int = TICKS, unit: float = 1.0) -> list[float]:
    """Round values from 0 to `high`, at most `most` besides 0; the last may be `high`.

    Args:
        high: the end.
        most: the maximum number of ticks.
        unit: values are rounded in this unit.
    """
    if high <= 0:
        return [0.0]
    if unit != 1:
        return [unit * one for one in ticks(high / unit, most)]
    power = 10.0 ** math.floor(math.log10(high / most))
    step = next(power * part for part in (1, 2, 5, 10, 20) if high / (power * part) <= most)
    return [step * at for at in range(math.floor(high / step * (1 + 1e-9)) + 1)]


def rounded_up(high: float, unit: float = 1.0) -> float:
    """The end of an axis that shows `high`: a round value that is not smaller; 1 for 0.

    Args:
        high: the largest value.
        unit: values are rounded in this unit.
    """
    if high <= 0:
        return unit
    if unit != 1:
        return unit * rounded_up(high / unit)
    marks = ticks(high, TICKS)
    step = marks[1] if len(marks) > 1 else high
    return step * math.ceil(high / step * (1 - 1e-9))


def time_ticks(span: float, most: int) -> list[float]:
    """Readable times from 0 to `span` in seconds, at most `most` besides 0."""
    if span <= 0:
        return [0.0]
    if span < most:
        return ticks(span, most)
    year = _LONG[-1]
    step = next((one for one in _LONG if span // one <= most), 0.0)
    step = step or year * math.ceil(span / year / most)
    return [step * at for at in range(math.floor(span / step * (1 + 1e-9)) + 1)]


def log_ticks(high: float) -> list[float]:
    """Ticks of a logarithmic axis of waits: seconds, minutes, hours and days from 0 to `high`."""
    marks = (
        *(0.0, 1.0, 10.0, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY),
        *(30 * DAY, 365 * DAY, 3650 * DAY),
    )
    return [one for one in marks if one <= high]


def bent(value: float) -> float:
    """A logarithm that starts at 0 for the value 0, to make room for small values."""
    return math.log10(1.0 + value)


def moment(seconds: float) -> str:
    """Seconds for a tick, in the largest unit that leaves few decimals."""
    if not seconds:
        return "0"
    size, unit = next((one for one in _UNITS if seconds >= one[0]), _UNITS[-1])
    return f"{seconds / size:.4g}{unit}"


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
