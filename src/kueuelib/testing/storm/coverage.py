"""Counts faults by call, phase of the Workload, and leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import attrs

from .faults import CATALOGUE
from .history import Commit
from .injections import Injection
from .laws.reading import LEASES, WORKLOADS, active, admitted, finished, holds, leaving, reserving

__all__ = ["Cell", "Coverage", "tables"]

NONE = "-"
PHASES = (NONE, "new", "waiting", "reserved", "admitted", "evicted", "inactive", "ended", "leaving")
"""Phases of the Workload that a call is about; `-` without one."""
LEADERS = (NONE, "leads", "follows", "vacant")
"""Whether the affected process leads; `vacant`: no process does."""


@attrs.frozen(order=True)
class Cell:
    """One combination.

    Attributes:
        fault: The kind of fault.
        verb: The verb of the call; `event` for an event of a watch, `-` for faults without a call.
        resource: The resource of the call.
        phase: One of `PHASES`.
        leader: One of `LEADERS`.
    """

    fault: str
    verb: str
    resource: str
    phase: str
    leader: str


class Coverage:
    """Follows one storm and counts its combinations.

    Attributes:
        cells: How often each combination occurred.
    """

    def __init__(self) -> None:
        self.cells: Counter[Cell] = Counter()
        self._phases: dict[tuple[str, str], str] = {}
        self._leaders: dict[str, str] = {}

    def commit(self, commit: Commit) -> None:
        """Take in a commit."""
        if commit.resource == WORKLOADS:
            phase = _phase(commit)
            owners = commit.present["metadata"].get("ownerReferences") or ()
            for name in (commit.name, *(owner["name"] for owner in owners)):
                self._phases[commit.namespace, name] = phase
        elif commit.resource == LEASES and commit.actor.startswith("manager"):
            holder = ((commit.new or {}).get("spec") or {}).get("holderIdentity")
            self._leaders[commit.name] = commit.actor if holder else ""

    def injected(self, injection: Injection) -> None:
        """Count a fault."""
        subject = injection.subject
        cell = Cell(
            injection.kind,
            subject.verb or NONE,
            subject.resource or NONE,
            self._phases.get((subject.namespace, subject.name), NONE),
            self._leader(subject.owner),
        )
        self.cells[cell] += 1

    def _leader(self, owner: str) -> str:
        if not owner.startswith("manager"):
            return NONE
        leaders = {actor for actor in self._leaders.values() if actor}
        if not leaders:
            return "vacant"
        return "leads" if owner in leaders else "follows"


def _phase(commit: Commit) -> str:
    new = commit.new
    if new is None:
        return NONE
    phases = {
        "leaving": leaving(new),
        "ended": finished(new),
        "inactive": not active(new),
        "evicted": holds(new, "Evicted"),
        "admitted": admitted(new),
        "reserved": reserving(new),
        "waiting": bool((new.get("status") or {}).get("conditions")),
    }
    return next((phase for phase, is_so in phases.items() if is_so), "new")


def tables(cells: Mapping[Cell, int]) -> Iterator[str]:
    """Yield tables: faults by phase, faults by leader, and uncovered combinations.

    Args:
        cells: How often each combination occurred.
    """
    yield f"{len(cells)} combinations of fault, call, phase and leader"
    for title, columns, part in (("phase", PHASES, "phase"), ("leader", LEADERS, "leader")):
        yield f"faults by {title}:"
        yield f"  {'':<18}" + "".join(f"{column:>9}" for column in columns)
        for fault in CATALOGUE:
            counts: Counter[str] = Counter()
            for cell, number in cells.items():
                if cell.fault == fault:
                    counts[getattr(cell, part)] += number
            yield f"  {fault:<18}" + "".join(f"{counts[column]:>9}" for column in columns)
    yield from _never(cells)


def _never(cells: Mapping[Cell, int]) -> Iterator[str]:
    """The calls that had some fault, but not every possible one."""
    met = {(cell.fault, cell.verb, cell.resource) for cell in cells}
    calls = sorted({(verb, resource) for _fault, verb, resource in met})
    for fault, kind in CATALOGUE.items():
        missed = [
            f"{verb} {resource}"
            for verb, resource in calls
            if verb in kind.verbs and (fault, verb, resource) not in met
        ]
        if missed:
            yield f"{fault} never met: {', '.join(missed)}"
