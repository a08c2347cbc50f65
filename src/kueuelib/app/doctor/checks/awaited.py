"""Admission checks that do not decide."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.api.ages import duration
from kueuelib.api.meta import ObjectKey
from kueuelib.api.phrases import counted
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check
from kueuelib.app.doctor.snapshot import ADMISSION_CHECKS, Snapshot
from kueuelib.scheduler.explain.awaited import Awaited, awaited_checks

PATIENCE = 300.0
"""Seconds that a check may take before it is reported."""


@check("check-pending", "Workload", ADMISSION_CHECKS)
def pending(snapshot: Snapshot) -> Iterator[Finding]:
    """Checks for which Workloads with quota have waited for more than five minutes."""
    by_check: dict[str, list[tuple[float, ObjectKey, Awaited]]] = {}
    for key, workload in snapshot.world.workloads.items():
        for one in awaited_checks(snapshot.world, workload):
            if one.since is not None and snapshot.now - one.since > PATIENCE:
                by_check.setdefault(one.name, []).append((one.since, key, one))
    for name, waits in sorted(by_check.items()):
        since, key, first = min(waits, key=lambda one: (one[0], one[1]))
        problem = (
            f"its controller {first.controller or '-'} keeps "
            f"{counted(len(waits), 'Workload')} with quota waiting, {key} for "
            f"{duration(snapshot.now - since)}"
        )
        fix = f"kubectl describe admissioncheck {name}  # then {first.next_step}"
        yield Finding(Severity.HINT, Subject("AdmissionCheck", name), problem, fix)
