"""Workloads that wait although nothing prevents their admission."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.app.doctor.finding import Finding, Severity, Subject, check
from kueuelib.app.doctor.manager import look, no_manager
from kueuelib.app.doctor.snapshot import FACTS, LABELS, Snapshot
from kueuelib.scheduler.explain.trial import Verdict, outcomes


@check("fits-but-waits", FACTS, LABELS, momentary=True)
def fits(snapshot: Snapshot) -> Iterator[Finding]:
    """Workloads that would get quota in the cycles that are due now."""
    for key, outcome in sorted(outcomes(snapshot.world, snapshot.now).items()):
        if outcome.verdict is Verdict.ADMITTED:
            problem = "nothing stands in its way, and no manager admits it"
            subject = Subject("Workload", key.name, key.namespace)
            follows = no_manager(snapshot)
            yield Finding(Severity.ERROR, subject, problem, look(snapshot), follows)
