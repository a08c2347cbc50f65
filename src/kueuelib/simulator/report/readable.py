"""Figures in readable form, for the terminal and the report, and the scales of pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from kueuelib.simulator.trace import MEMORY

MINUTE = 60.0
HOUR = 3600.0
DAY = 86400.0
_BINARY = (("Ti", 2.0**40), ("Gi", 2.0**30), ("Mi", 2.0**20))
_BYTES = (MEMORY, "ephemeral-storage", "hugepages-")


@attrs.frozen
class TimeUnit:
    """The one unit of the times in a table.

    Attributes:
        name: for the head of the column.
        seconds: its length.
    """

    name: str
    seconds: float

    def __call__(self, value: float | None) -> str:
        """Seconds in this unit, without its name; `-` for None."""
        return plain(None if value is None else value / self.seconds)

    def named(self, value: float) -> str:
        """Seconds in this unit for a sentence: rounded further, and with its name."""
        return f"{value / self.seconds:,.3g} {self.name}"


_UNITS = tuple(map(TimeUnit, ("d", "h", "min", "s"), (DAY, HOUR, MINUTE, 1.0)))


def time_unit(values: Iterable[float | None]) -> TimeUnit:
    """The largest unit in which half of the times are 1 or more; zeros do not count."""
    known = sorted(value for value in values if value)
    middle = known[len(known) // 2] if known else 0.0
    return next((one for one in _UNITS if middle >= one.seconds), _UNITS[-1])


def seconds(value: float | None) -> str:
    """Seconds in a readable unit; `-` for None."""
    if value is None:
        return "-"
    for unit, size in (("d", DAY), ("h", HOUR), ("m", MINUTE)):
        if value >= size:
            return f"{value / size:.1f}{unit}"
    return f"{value:.4g}s"


def plain(value: float | None) -> str:
    """A number with four digits, a large one without decimals; `-` for None."""
    return "-" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def unit(value: float, resource: str) -> float:
    """The unit in which `amount` shows a value: TiB, GiB or MiB if the resource is bytes."""
    binary = _BINARY if resource.startswith(_BYTES) else ()
    return next((size for _, size in binary if value >= size), 1.0)


def amount(value: float, resource: str) -> str:
    """An amount of a resource; bytes in MiB, GiB or TiB."""
    size = unit(value, resource)
    return plain(value / size) + next((name for name, known in _BINARY if known == size), "")


def percent(part: float | None) -> str:
    """A part in percent; `-` for None."""
    return "-" if part is None else f"{part:.0%}"


def jobs(count: int) -> str:
    """A number of jobs."""
    return f"{count:,} {'job' if count == 1 else 'jobs'}"


def sizes(limits: Mapping[str, float]) -> str:
    """What small and medium jobs are, from the limits of `Sizes`."""
    if limits["small"] == limits["medium"]:
        return "All jobs have the same size."
    small, medium = (f"{100 * limits[key]:.2g} %" for key in ("small", "medium"))
    return (
        f"Small jobs ask for at most {small} of the nominal quota of any resource, medium ones for "
        f"at most {medium}."
    )


def with_differences(values: Sequence[float | None]) -> list[str]:
    """Values, all but the first one with the difference to the first one."""
    first = values[0]
    texts = [plain(first)]
    for value in values[1:]:
        text = plain(value)
        if value is not None and first is not None and value != first:
            text += f" ({(value - first) / first:+.1%})" if first else f" ({value - first:+.4g})"
        texts.append(text)
    return texts


# ---- values become places in a picture, with ticks of axes and rows of tables --------------------

TICKS = 5
"""The maximum number of ticks of a vertical axis, besides 0."""
_TICK_UNITS = ((365 * DAY, "y"), (DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (1.0, "s"))
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
    size, unit = next((one for one in _TICK_UNITS if seconds >= one[0]), _TICK_UNITS[-1])
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
