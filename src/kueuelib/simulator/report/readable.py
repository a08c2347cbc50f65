"""Figures in readable form, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Sequence

from kueuelib.simulator.work import MEMORY

MINUTE = 60.0
HOUR = 3600.0
DAY = 86400.0
_BINARY = (("Ti", 2.0**40), ("Gi", 2.0**30), ("Mi", 2.0**20))
_BYTES = (MEMORY, "ephemeral-storage", "hugepages-")


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
