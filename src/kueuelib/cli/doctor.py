"""`kueuelib doctor`: the command."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import anyio
import attrs

from kueuelib.api.meta import Obj
from kueuelib.app.configuration import Configuration
from kueuelib.app.doctor.examining import DoctorReport, examine_twice
from kueuelib.app.doctor.finding import Finding, Severity, all_checks, migration_checks
from kueuelib.app.doctor.reading import read
from kueuelib.app.doctor.snapshot import ClusterSnapshot
from kueuelib.app.running_configuration import given_configuration, running_configuration
from kueuelib.errors import KueuelibError
from kueuelib.runtime import logs
from kueuelib.runtime.connection import reached

EXIT_CODES = {None: 0, Severity.HINT: 0, Severity.WARNING: 3, Severity.ERROR: 4}
"""By the worst finding; 1 and 2 mean that the command itself failed."""
MOST_SHOWN = 20
"""Causes that one check finds, of those that are shown to people."""
MOST_ALIKE = 3
"""Findings with one fix, of those that are shown to people."""
WORDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.HINT: "hint"}


def run(
    kubeconfig: Path | None,
    config: Path | None,
    output: str,
    server_timeout: float,
    *,
    own: bool,
    before_migration: bool = False,
) -> int:
    """Prints what is wrong; the exit code says how bad it is.

    Args:
        kubeconfig: the cluster; found by kubectl's rules when None.
        config: the manager's configuration file; found in the cluster when None.
        output: `text` or `json`.
        server_timeout: seconds to wait for a server that does not answer.
        own: whether the manager runs with the rights of this kubeconfig.
        before_migration: whether to look for changes if this program took over.

    Raises:
        ConfigError: an argument or a file is not valid.
        KueuelibError: nothing could be checked, or the server failed.
    """
    logs.configure("console", "error")  # that a version is deprecated does not matter here
    given = given_configuration(config)
    look = functools.partial(read, file=str(config or ""), own=own)
    report = anyio.run(_examine, kubeconfig, look, given, server_timeout, before_migration)
    if not report.checked:
        why = next(iter(report.skipped.values()))
        raise KueuelibError(
            f"nothing could be checked: {why}; use a kubeconfig that may list the queueing kinds"
        )
    if output == "json":
        sys.stdout.write(json.dumps(to_data(report), indent=2, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("\n".join(to_lines(report)) + "\n")
    return EXIT_CODES[report.worst]


async def _examine(
    kubeconfig: Path | None,
    look: Callable[..., Awaitable[ClusterSnapshot]],
    given: Configuration | None,
    server_timeout: float,
    before_migration: bool,
) -> DoctorReport:
    checks = migration_checks() if before_migration else all_checks()
    async with reached(kubeconfig, server_timeout, user_agent="kueuelib-doctor") as client:
        running = await running_configuration(client, given)
        last: ClusterSnapshot | None = None

        async def look_again() -> ClusterSnapshot:
            nonlocal last
            last = await look(client, running.configuration, before=last)
            return last

        report = await examine_twice(look_again, checks=checks)
    return attrs.evolve(report, notes=running.notes)


def to_lines(report: DoctorReport) -> Iterator[str]:
    """The report for people: some lines for each cause, then what was not checked."""
    groups, shown = _groups(report), dict[str, int]()
    for group in groups:
        shown[group.check] = shown.get(group.check, 0) + 1
        if shown[group.check] <= MOST_SHOWN:
            yield from group.lines()
    for name, count in shown.items():
        if count > MOST_SHOWN:
            yield f"And {count - MOST_SHOWN} more of {name}; -o json has all of them"
    if report.unseen:
        yield f"Not seen: {', '.join(report.unseen)}"
    reasons: dict[str, list[str]] = {}
    for name, why in report.skipped.items():
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        yield f"Not checked: {', '.join(names)}: {why}"
    yield from (f"Note: {note}" for note in report.notes)
    severities = [group.findings[0].severity for group in groups]
    counts = [
        f"{count} {WORDS[severity]}{'' if count == 1 else 's'}"
        for severity in sorted(Severity, reverse=True)
        if (count := severities.count(severity))
    ]
    made = f"{len(report.checked)} of {len(report.checked) + len(report.skipped)} checks"
    number = len(report.findings)
    total = f" ({number} findings)" if number != len(groups) else ""
    yield f"{', '.join(counts) or 'Nothing found'}{total} in {made}."


@attrs.define
class _FindingGroup:
    """Findings of one check that one command fixes, and what follows from them."""

    check: str
    findings: list[Finding]
    follows: dict[str, list[Finding]] = attrs.field(factory=dict)

    def lines(self) -> Iterator[str]:
        first = self.findings[0]
        yield f"{WORDS[first.severity]}: {_some(self.findings)} ({self.check})"
        yield f"  {first.problem}"
        for one in self.findings[1:MOST_ALIKE]:
            what = one.problem if one.subject == first.subject else f"{one.subject}: {one.problem}"
            yield f"  {what}"
        if len(self.findings) > MOST_ALIKE:
            yield f"  and {len(self.findings) - MOST_ALIKE} more like these"
        yield f"  -> {first.fix}"
        for check, some in self.follows.items():
            yield f"  so: {_some(some)} ({check})"


def _groups(report: DoctorReport) -> list[_FindingGroup]:
    """The findings that follow from nothing, those with one fix together."""
    groups: dict[tuple[str, Severity, str], _FindingGroup] = {}
    group_of: dict[int, _FindingGroup] = {}
    for place, (name, finding) in enumerate(report.findings):
        if place not in report.causes:
            key = name, finding.severity, finding.fix
            group_of[place] = groups.setdefault(key, _FindingGroup(name, []))
            group_of[place].findings.append(finding)
    for place, cause in report.causes.items():
        name, finding = report.findings[place]
        group_of[cause].follows.setdefault(name, []).append(finding)
    return list(groups.values())


def _some(findings: Sequence[Finding]) -> str:
    """The object of the first one, and how many others there are."""
    others = len({one.subject for one in findings}) - 1
    return f"{findings[0].subject}{f' and {others} more' if others else ''}"


def to_data(report: DoctorReport) -> Obj:
    """The report for machines; docs/doctor.md describes it."""
    return {
        "worst": None if report.worst is None else WORDS[report.worst],
        "findings": [_finding(report, place) for place in range(len(report.findings))],
        "checked": list(report.checked),
        "notSeen": list(report.unseen),
        "notChecked": [{"check": name, "why": why} for name, why in report.skipped.items()],
        "notes": list(report.notes),
    }


def _finding(report: DoctorReport, place: int) -> Obj:
    name, finding = report.findings[place]
    cause = report.causes.get(place)
    return {
        **_what(name, finding),
        "severity": WORDS[finding.severity],
        "problem": finding.problem,
        "fix": finding.fix,
        "cause": None if cause is None else _what(*report.findings[cause]),
    }


def _what(name: str, finding: Finding) -> Obj:
    subject = finding.subject
    where = {"kind": subject.kind, "namespace": subject.namespace, "name": subject.name}
    return {"check": name, "object": where}
