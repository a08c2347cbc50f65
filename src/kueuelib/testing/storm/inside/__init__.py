"""Inspects the memory of simulated processes, mostly at rest.

Laws about the history see only writes. These read the beliefs of a process in memory, because all
simulated processes share one real process, and do not run meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from kueuelib.runtime.telemetry import Telemetry
from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.inside.knowledge import trees_are_right
from kueuelib.testing.storm.inside.leaks import ALLOWED, gone_of, leaks
from kueuelib.testing.storm.laws.law import REST, Law, Violation

from .knowledge import (
    Believes,
    caches_are_fresh,
    engine_is_right,
    metrics_match,
    nothing_is_assumed,
)
from .leaks import ReachableObject, parts_in

__all__ = ["ALLOWED", "INSIDE_LAWS", "Believes", "judge"]

REPAIRS: Final = ("kueuelib_orphaned_assumptions_total", "kueuelib_orphaned_evictions_total")
"""Counters of the auditor: each increment is a fault that it has repaired."""
Objects = Callable[[str], list[Obj]]
Check = Callable[[Sequence[ReachableObject], Objects], Iterator[tuple[str, str]]]
_CHECKS: Final[Mapping[str, Check]] = {
    "caches-equal-a-fresh-list": caches_are_fresh,
    "engine-equals-objects": engine_is_right,
    "engine-trees-equal-objects": trees_are_right,
    "nothing-is-assumed-at-rest": nothing_is_assumed,
}
_LEAKS: Final = Law("no-leaks", REST, "No container of a manager keeps a name of what is gone.")
_REPAIRS: Final = Law("no-repairs", REST, "The auditor never had to repair anything.")
_SERIES: Final = Law(
    "metrics-match", REST, "Gauges count the stored objects, and no series names a deleted object."
)
INSIDE_LAWS: Final = (
    *(Law(key, REST, (check.__doc__ or "").partition("\n")[0]) for key, check in _CHECKS.items()),
    _LEAKS,
    _REPAIRS,
    _SERIES,
)
"""All laws about the memory of processes, for documentation and reports."""


def judge(
    processes: Mapping[str, object],
    objects: Objects,
    history: Sequence[Commit],
    telemetries: Iterable[tuple[str, Telemetry]],
    now: float,
) -> list[Violation]:
    """Return the violations in the memory of processes; nothing is changed.

    Args:
        processes: The root object of each process, by the name of the process.
        objects: Returns all stored objects of a resource.
        history: All commits since the world began.
        telemetries: The name and the metrics of every process that ran, including dead ones.
        now: The virtual time in seconds.
    """
    violations: list[Violation] = []
    gone = gone_of(history)
    for name, root in processes.items():
        parts = list(parts_in(root))
        for law, check in _CHECKS.items():
            for subject, text in check(parts, objects):
                violations.append(Violation(law, now, subject, f"{name}: {text}"))
        for place, text in leaks(parts, gone):
            violations.append(Violation(_LEAKS.name, now, place, f"{name}: {text}"))
    newest: dict[str, Telemetry] = {}
    for name, telemetry in telemetries:
        newest[name] = telemetry
        for series, value in _repairs(telemetry):
            text = f"{name}: {series} is {value:g}"
            violations.append(Violation(_REPAIRS.name, now, series, text))
    if len(processes) == 1:  # which leads
        for name in processes:
            if name in newest:
                for series, text in metrics_match(newest[name], objects, gone):
                    violations.append(Violation(_SERIES.name, now, series, f"{name}: {text}"))
    return violations


def _repairs(telemetry: Telemetry) -> Iterator[tuple[str, float]]:
    for metric in telemetry.registry.restricted_registry(REPAIRS).collect():
        for sample in metric.samples:
            if sample.name in REPAIRS and sample.value:
                yield sample.name, sample.value
