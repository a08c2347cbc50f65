"""Assumptions: quota that a manager counts although no Workload holds it."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.api.meta import Obj
from kueuelib.api.quantity import Quantity, amount_of, format_amount
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check
from kueuelib.app.doctor.manager import look, no_manager
from kueuelib.app.doctor.snapshot import Snapshot


@check("assumption-orphaned", "ClusterQueue", "ResourceFlavor", "Workload", momentary=True)
def orphaned(snapshot: Snapshot) -> Iterator[Finding]:
    """ClusterQueues whose status counts Workloads and quota that do not exist."""
    for queue in snapshot.all("ClusterQueue"):
        name = queue["metadata"]["name"]
        counts = snapshot.engine.cluster_queue_status(name)
        status = queue.get("status") or {}
        if counts is None or "reservingWorkloads" not in status:
            continue
        wrong = []
        if status["reservingWorkloads"] != counts.reserving:
            wrong.append(f"{status['reservingWorkloads']} Workloads, and {counts.reserving} do")
        held = {
            (flavor.name, resource.name): amount_of(resource.name, resource.total)
            for flavor in counts.reservation
            for resource in flavor.resources
        }
        said = _said(status)
        wrong += [
            f"{format_amount(resource, said[flavor, resource])} of {resource} in flavor {flavor}, "
            f"and {format_amount(resource, amount)} is held"
            for (flavor, resource), amount in held.items()
            if said.get((flavor, resource), amount) != amount
        ]
        if wrong:
            problem = f"its status counts as reserved {'; '.join(wrong)}"
            subject, follows = Subject("ClusterQueue", name), no_manager(snapshot)
            yield Finding(Severity.WARNING, subject, problem, look(snapshot), follows)


def _said(status: Obj) -> dict[tuple[str, str], int]:
    """The amounts in the status, by flavor and resource."""
    return {
        (flavor["name"], one["name"]): amount_of(one["name"], Quantity.parse(one.get("total", 0)))
        for flavor in status.get("flavorsReservation") or ()
        for one in flavor.get("resources") or ()
    }
