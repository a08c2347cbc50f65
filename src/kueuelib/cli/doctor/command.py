"""`kueuelib doctor`: the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio

from kueuelib.api.meta import Obj
from kueuelib.app.configuration import Configuration, load_configuration
from kueuelib.app.doctor.examining import Report, examine_twice
from kueuelib.app.doctor.finding import Finding, Severity, all_checks, migration_checks
from kueuelib.app.doctor.reading import read
from kueuelib.errors import KueuelibError
from kueuelib.runtime import logs
from kueuelib.runtime.connection import reached

EXIT_CODES = {None: 0, Severity.HINT: 0, Severity.WARNING: 3, Severity.ERROR: 4}
"""By the worst finding; 1 and 2 say that the command itself did not work."""
MOST_SHOWN = 20
"""Findings of one check that are shown to people."""
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
        config: the manager's configuration file; its defaults when None.
        output: `text` or `json`.
        server_timeout: seconds to wait for a server that does not answer.
        own: whether the manager runs with the rights of this kubeconfig.
        before_migration: whether to look for what would change if this program took over.

    Raises:
        ConfigError: what was given cannot work.
        KueuelibError: nothing could be checked, or the server failed.
    """
    logs.configure("console", "error")  # that a version is deprecated does not matter here
    configuration = load_configuration(config)
    report = anyio.run(_examine, kubeconfig, configuration, server_timeout, own, before_migration)
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
    configuration: Configuration,
    server_timeout: float,
    own: bool,
    before_migration: bool,
) -> Report:
    checks = migration_checks() if before_migration else all_checks()
    async with reached(kubeconfig, server_timeout, user_agent="kueuelib-doctor") as client:
        return await examine_twice(lambda: read(client, configuration, own=own), checks=checks)


def to_lines(report: Report) -> Iterator[str]:
    """The report for people: three lines for each finding, then what was not checked."""
    shown: dict[str, int] = {}
    for name, found in report.findings:
        shown[name] = shown.get(name, 0) + 1
        if shown[name] > MOST_SHOWN:
            continue
        yield f"{WORDS[found.severity]}: {found.subject} ({name})"
        yield f"  {found.problem}"
        yield f"  -> {found.fix}"
    for name, count in shown.items():
        if count > MOST_SHOWN:
            yield f"And {count - MOST_SHOWN} more of {name}; -o json has all of them"
    reasons: dict[str, list[str]] = {}
    for name, why in report.skipped.items():
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        yield f"Not checked: {', '.join(names)}: {why}"
    counts = [
        f"{count} {WORDS[severity]}{'' if count == 1 else 's'}"
        for severity in sorted(Severity, reverse=True)
        if (count := sum(1 for _, found in report.findings if found.severity is severity))
    ]
    made = f"{len(report.checked)} of {len(report.checked) + len(report.skipped)} checks"
    yield f"{', '.join(counts) or 'Nothing found'} in {made}."


def to_data(report: Report) -> Obj:
    """The report for machines; docs/doctor.md describes it."""
    return {
        "worst": None if report.worst is None else WORDS[report.worst],
        "findings": [_finding(name, found) for name, found in report.findings],
        "checked": list(report.checked),
        "notChecked": [{"check": name, "why": why} for name, why in report.skipped.items()],
    }


def _finding(name: str, found: Finding) -> Obj:
    subject = found.subject
    return {
        "check": name,
        "severity": WORDS[found.severity],
        "object": {"kind": subject.kind, "namespace": subject.namespace, "name": subject.name},
        "problem": found.problem,
        "fix": found.fix,
    }
