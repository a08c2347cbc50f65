"""How benchmarks print what they measured, and how they look at processes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from kueuelib.testing.processes import Processes


def show(title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Prints one block of figures; with `pytest -s` it reaches the terminal."""
    pairs = list(rows)
    width = max(len(name) for name, _ in pairs)
    lines = [f"\n{title}", *(f"  {name:<{width}}  {value}" for name, value in pairs)]
    sys.stdout.write("\n".join(lines) + "\n")


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that is not below `percent` of all."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def milliseconds(values: Sequence[float]) -> str:
    """The spread of durations that are given in seconds."""
    parts = [f"p{each} {percentile(values, each) * 1000:.0f} ms" for each in (50, 90, 99)]
    return ", ".join([*parts, f"max {max(values) * 1000:.0f} ms"])


def resident(pid: int) -> float:
    """Megabytes (2**20) of a process that are in memory."""
    return _status(pid, "VmRSS:")


def anonymous(pid: int) -> float:
    """Megabytes (2**20) of a process that are in memory and no mapped file."""
    return _status(pid, "RssAnon:")


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, in user and kernel mode, at 100 ticks a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def pid_of(processes: Processes, name: str) -> int:
    """The id of a background process."""
    (pid,) = [process.pid for started, process in processes._running if started == name]
    return pid


def _status(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} has no {field}")
