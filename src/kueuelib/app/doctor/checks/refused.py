"""Writes that the API server refuses: of the manager's Lease and Secret, of Workloads, of their
jobs, and of the pods of Jobs.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from kueuelib.api.kinds import EVENTS, LEASES, SECRETS
from kueuelib.api.meta import Obj
from kueuelib.api.phrases import some
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check
from kueuelib.app.doctor.manager import NAMESPACE_STUCK, REFUSED, STATUS_LOST, explanations
from kueuelib.app.doctor.snapshot import ClusterSnapshot
from kueuelib.app.refusers import (
    PODS_REFUSED,
    ago,
    is_refusal,
    lacks_permission,
    problem_of,
    remedy,
)


@check(REFUSED, EVENTS.kind, "Workload")
def refused(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """The manager's Lease and Secret, if a dry run of a write is refused; Jobs and Workloads for
    which something is not written, as Events of the last minutes say: those with the same cause
    together.
    """
    yield from _of_manager(snapshot)
    seen: set[str] = set()
    alike: dict[str, list[Finding]] = {}
    for kind in ("Job", "Pod", "Workload"):
        for obj in snapshot.all(kind):
            workload = obj if kind == "Workload" else snapshot.workload_of(obj)
            if workload is None:
                continue
            event = snapshot.refusal(workload, None if kind == "Workload" else obj)
            if event is not None and event["metadata"]["uid"] not in seen:
                seen.add(event["metadata"]["uid"])
                finding = _finding(snapshot, event)
                alike.setdefault(finding.fix, []).append(finding)
    for first, *others in alike.values():
        subjects = some([one.subject for one in others])
        more = f"; the same for {len(others)} others: {subjects}" if others else ""
        yield attrs.evolve(first, problem=f"{first.problem}{more}")


def _of_manager(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """What keeps every manager from leading, or from keeping its certificate."""
    key, secret = snapshot.configuration.lease, snapshot.configuration.internal_cert_management
    for call in snapshot.calls:
        if call.refusal:
            subject = Subject(LEASES.kind, key.name, key.namespace)
            problem = f"no manager can renew it: {call.refusal}"
            if call.kind == SECRETS.kind:
                subject = Subject(SECRETS.kind, secret.webhook_secret_name, snapshot.namespace)
                problem = f"no manager can keep its certificate in it: {call.refusal}"
            hooks, otherwise = snapshot.webhook_configurations(), "exempt the manager's account"
            fix = remedy(call.refusal, hooks, subject.namespace, otherwise)
            fix = fix or f"kubectl get namespace {subject.namespace} -o yaml"
            ends = "is being terminated" in call.refusal
            follows = (NAMESPACE_STUCK,) if ends else ()
            yield Finding(Severity.ERROR, subject, problem, fix, follows)


def _finding(snapshot: ClusterSnapshot, event: Obj) -> Finding:
    about, message = event["involvedObject"], event["message"]
    namespace = about.get("namespace") or ""
    subject = Subject(about["kind"], about["name"], namespace)
    fix = remedy(message, snapshot.webhook_configurations(), namespace)
    fix = fix or f"kubectl -n {namespace} describe {about['kind'].lower()} {about['name']}"
    follows = explanations(snapshot, message)
    if event["reason"] == PODS_REFUSED and lacks_permission(message):
        follows = ()  # the Job controller lacks it
    if not is_refusal(message):
        follows = (STATUS_LOST,)
    problem = f"{problem_of(event)} ({ago(event, snapshot.now)})"
    return Finding(Severity.ERROR, subject, problem, fix, follows)
