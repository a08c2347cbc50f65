"""Writes that the API server refuses: of the manager's Lease and Secret, of Workloads, of their
jobs, and of the pods of Jobs.
"""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.api.kinds import EVENTS, LEASES, SECRETS
from kueuelib.api.meta import Obj
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check
from kueuelib.app.doctor.manager import (
    ANOTHER_WEBHOOK,
    MISSING_PERMISSION,
    NAMESPACE_STUCK,
    REFUSED,
)
from kueuelib.app.doctor.snapshot import ClusterSnapshot
from kueuelib.app.refused_writes import problem_of
from kueuelib.app.refusers import ago, remedy


@check(REFUSED, EVENTS.kind, "Workload")
def refused(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """The manager's Lease and Secret, if a dry run of a write is refused; Jobs and Workloads for
    which something is not written, as Events of the last minutes say.
    """
    yield from _of_manager(snapshot)
    seen: set[str] = set()
    for kind in ("Job", "Pod", "Workload"):
        for obj in snapshot.all(kind):
            workload = obj if kind == "Workload" else snapshot.workload_of(obj)
            if workload is None:
                continue
            event = snapshot.refusal(workload, None if kind == "Workload" else obj)
            if event is not None and event["metadata"]["uid"] not in seen:
                seen.add(event["metadata"]["uid"])
                yield _finding(snapshot, event)


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
    follows = (MISSING_PERMISSION, ANOTHER_WEBHOOK)
    problem = f"{problem_of(event)} ({ago(event, snapshot.now)})"
    return Finding(Severity.ERROR, subject, problem, fix, follows)
