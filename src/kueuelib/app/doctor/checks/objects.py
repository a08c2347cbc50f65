"""Stored objects that are not valid and therefore left out of all decisions."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.app.doctor.finding import Finding, Severity, Subject, check
from kueuelib.app.doctor.snapshot import Snapshot
from kueuelib.app.explaining.gather import NEEDED


@check("object-unreadable", *(one.kind for one in NEEDED), before_migration=True)
def unreadable(snapshot: Snapshot) -> Iterator[Finding]:
    """Objects that break rules which were not enforced when they were stored."""
    for kind, key, why in snapshot.cluster.unreadable:
        where = f"-n {key.namespace} " if key.namespace else ""
        fix = f"kubectl edit {where}{kind.lower()} {key.name}"
        subject = Subject(kind, key.name, key.namespace)
        yield Finding(Severity.ERROR, subject, f"it is left out of every decision: {why}", fix)
