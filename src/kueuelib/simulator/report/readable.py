"""Figures in readable form, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from kueuelib.simulator.work import MEMORY

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
