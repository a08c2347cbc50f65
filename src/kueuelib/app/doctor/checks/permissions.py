"""The manager's account: whether it exists, and may do everything that it has to."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.api.kinds import LEASES, SERVICE_ACCOUNTS
from kueuelib.app.doctor.checks.managers import leads
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check
from kueuelib.app.doctor.manager import ACCOUNT, MISSING_KIND, MISSING_PERMISSION, install, outside
from kueuelib.app.doctor.snapshot import PERMISSIONS, Snapshot
from kueuelib.controllers.manifests import SERVICE_ACCOUNT


@check(ACCOUNT, SERVICE_ACCOUNTS.kind)
def account(snapshot: Snapshot) -> Iterator[Finding]:
    """The ServiceAccount of the manager, if it does not exist."""
    if snapshot.find(SERVICE_ACCOUNTS.kind, SERVICE_ACCOUNT, snapshot.namespace) is None:
        subject = Subject(SERVICE_ACCOUNTS.kind, SERVICE_ACCOUNT, snapshot.namespace)
        problem = "it does not exist, so a manager that uses it cannot reach the API server"
        runs = snapshot.why_unseen(LEASES.kind) or leads(snapshot)
        severity = Severity.HINT if runs else Severity.ERROR
        fix, address = install(snapshot), outside(snapshot)
        if address:
            token = f"kubectl -n {snapshot.namespace} create token {SERVICE_ACCOUNT}"
            fix += f"  # then a new token for the manager at {address}, if it uses one: {token}"
        yield Finding(severity, subject, problem, fix, (MISSING_KIND,))


@check(MISSING_PERMISSION, PERMISSIONS)
def denied(snapshot: Snapshot) -> Iterator[Finding]:
    """Permissions that the installation grants but the API server denies, by resource."""
    lost: dict[tuple[str, str], list[str]] = {}
    for review in snapshot.reviews:
        if not review.allowed:
            resource = f"{review.resource}.{review.group}" if review.group else review.resource
            verbs = lost.setdefault((resource, review.namespace), [])
            if review.verb not in verbs:
                verbs.append(review.verb)
    subject = Subject("ServiceAccount", SERVICE_ACCOUNT, snapshot.namespace)
    fix = install(snapshot)
    for (resource, namespace), verbs in lost.items():
        where = f" in namespace {namespace}" if namespace else ""
        problem = f"it may not {', '.join(verbs)} {resource}{where}"
        yield Finding(Severity.ERROR, subject, problem, fix, (MISSING_KIND, ACCOUNT))
