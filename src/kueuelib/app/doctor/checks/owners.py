"""Workloads that hold quota although no job owns them."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.api.ages import duration
from kueuelib.api.names import QUOTA_RESERVED
from kueuelib.app.doctor.finding import Finding, Severity, check, subject_of
from kueuelib.app.doctor.snapshot import Snapshot
from kueuelib.workload.states import condition, has_quota, is_deleted, is_finished

PATIENCE = 300.0
"""Seconds that a job may take to adopt the Workload that was made for it."""


@check("quota-unowned", "Workload")
def unowned(snapshot: Snapshot) -> Iterator[Finding]:
    """Workloads without owner that have held quota for more than five minutes."""
    for workload in snapshot.all("Workload"):
        meta = workload["metadata"]
        if meta.get("ownerReferences") or is_finished(workload) or is_deleted(workload):
            continue
        held = condition(workload, QUOTA_RESERVED).get("lastTransitionTime")
        if has_quota(workload) and snapshot.age(held) > PATIENCE:
            problem = (
                f"it has held quota for {duration(snapshot.age(held))}, and has no owner: no job "
                "will finish it"
            )
            where = f"kubectl -n {meta['namespace']} delete workload {meta['name']}"
            fix = f"{where}  # unless a controller of yours finishes it"
            yield Finding(Severity.HINT, subject_of("Workload", workload), problem, fix)
