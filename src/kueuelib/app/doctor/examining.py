"""Runs all checks, and repeats those whose findings may be momentary."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cached_property

import attrs

from kueuelib.app.doctor.finding import DoctorCheck, Finding, Severity, all_checks
from kueuelib.app.doctor.snapshot import CALLS, PERMISSIONS, ClusterSnapshot
from kueuelib.app.explaining.asking import LOOKS, PAUSE
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock


@attrs.frozen(slots=False)
class DoctorReport:
    """The findings.

    Attributes:
        findings: with the name of the check, the worst first.
        checked: the checks that ran.
        skipped: why the others did not run, by name.
        unseen: the kinds that were not read.
        notes: where the manager's configuration is from.
    """

    findings: tuple[tuple[str, Finding], ...]
    checked: tuple[str, ...]
    skipped: Mapping[str, str]
    unseen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def causes(self) -> Mapping[int, int]:
        """What follows from what: the places of findings, each with that of its first cause."""
        errors: dict[str, int] = {}
        for place, (name, finding) in enumerate(self.findings):
            if finding.severity is Severity.ERROR:
                errors.setdefault(name, place)
        above: dict[int, int] = {}
        for place, (_, finding) in enumerate(self.findings):
            cause = next((errors[name] for name in finding.follows if name in errors), place)
            if _first(cause, above) != place:
                above[place] = cause
        return {place: _first(place, above) for place in above}

    @property
    def worst(self) -> Severity | None:
        """The severity of the worst finding; None without findings."""
        return max((finding.severity for _, finding in self.findings), default=None)


def _first(place: int, above: Mapping[int, int]) -> int:
    """The cause that has none itself."""
    while place in above:
        place = above[place]
    return place


def examine(snapshot: ClusterSnapshot, checks: Sequence[DoctorCheck] | None = None) -> DoctorReport:
    """Runs every check whose objects were read.

    Args:
        snapshot: the cluster.
        checks: the checks; all by default.
    """
    checks = all_checks() if checks is None else checks
    skipped = {}
    findings: list[tuple[str, Finding]] = []
    for one in checks:
        missing = next(filter(None, map(snapshot.why_unseen, one.needs)), "")
        if missing:
            skipped[one.name] = missing
            continue
        findings += [(one.name, finding) for finding in one.find(snapshot)]
    made = tuple(one.name for one in checks if one.name not in skipped)
    unseen = tuple(sorted(snapshot.unseen.keys() - {PERMISSIONS, CALLS}))
    return DoctorReport(_sorted(findings), made, skipped, unseen)


async def examine_twice(
    read: Callable[[], Awaitable[ClusterSnapshot]],
    clock: Clock = SYSTEM_CLOCK,
    checks: Sequence[DoctorCheck] | None = None,
) -> DoctorReport:
    """Examines a cluster; of momentary findings it reports only those that stay.

    Args:
        read: reads the cluster.
        clock: how to wait.
        checks: the checks; all of an installation by default.
    """
    checks = all_checks() if checks is None else checks
    report = examine(await read(), checks)
    momentary = [one for one in checks if one.momentary]
    names = {one.name for one in momentary}
    for _ in range(LOOKS - 1):
        if not any(name in names for name, _ in report.findings):
            break
        await clock.sleep(PAUSE)
        again = {
            (name, finding.subject) for name, finding in examine(await read(), momentary).findings
        }
        stays = [
            (name, finding)
            for name, finding in report.findings
            if name not in names or (name, finding.subject) in again
        ]
        report = attrs.evolve(report, findings=tuple(stays))
    return report


def _sorted(findings: Iterable[tuple[str, Finding]]) -> tuple[tuple[str, Finding], ...]:
    """Sorted, the worst first; otherwise in their order."""
    return tuple(sorted(findings, key=lambda one: -one[1].severity))
