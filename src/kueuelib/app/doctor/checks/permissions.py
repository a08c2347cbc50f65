"""Permissions: whether the manager may do everything that it has to."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.app.doctor.finding import Finding, Severity, Subject, check
from kueuelib.app.doctor.manager import MISSING_KIND, install
from kueuelib.app.doctor.snapshot import PERMISSIONS, Snapshot
from kueuelib.controllers.manifests import SERVICE_ACCOUNT


@check("permissions", PERMISSIONS)
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
        yield Finding(Severity.ERROR, subject, problem, fix, (MISSING_KIND,))
