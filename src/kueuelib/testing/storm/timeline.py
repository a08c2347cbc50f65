"""Prints the events of a storm, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from .coverage import Cell, tables
from .laws import never
from .seed_plan import Report

__all__ = ["counts", "coverage", "summary", "timeline"]

_LEASES = "leases"


def timeline(report: Report, *, about: str = "", leases: bool = False) -> Iterator[str]:
    """Yield the lines of a storm, and then its violations.

    Args:
        report: A report that contains its trace.
        about: Only lines that contain this text, and those of violations; empty for all.
        leases: Whether to show the renewals of Leases.
    """
    for line in report.lines:
        wrong = " violation: " in line
        hidden = not leases and _LEASES in line and " fault: " not in line
        if wrong or (about in line and not hidden):
            yield line
    yield from summary(report)


def summary(report: Report) -> Iterator[str]:
    """Yield one line per violation of a report."""
    for violation in report.violations:
        about = f" {violation.object}:" if violation.object else ""
        yield (f"seed {report.seed} ({report.profile}): {violation.law}:{about} {violation.text}")


def counts(reports: Sequence[Report]) -> Iterator[str]:
    """Yield tables of injected faults and reached states over several reports."""
    faults: Counter[str] = Counter()
    sometimes: Counter[str] = Counter()
    for report in reports:
        faults.update(report.faults)
        sometimes.update(report.sometimes)
    for title, counter in (("faults", faults), ("sometimes", sometimes)):
        yield f"{title}:"
        for name, number in sorted(counter.items()):
            yield f"  {number:>10,}  {name}"


def coverage(reports: Sequence[Report]) -> Iterator[str]:
    """Yield tables of fault coverage over several reports, and of uncovered combinations."""
    cells: Counter[Cell] = Counter()
    sometimes: Counter[str] = Counter()
    for report in reports:
        cells.update(report.cells)
        sometimes.update(report.sometimes)
    yield from tables(cells)
    for situation in never(sometimes):
        yield f"never reached: {situation}"
