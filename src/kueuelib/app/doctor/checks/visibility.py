"""The visibility API: whether it is registered, and whether the API server gets an answer."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.api.kinds import API_SERVICES
from kueuelib.api.meta import Obj, find_condition
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check, subject_of
from kueuelib.app.doctor.manager import install, look, no_manager
from kueuelib.app.doctor.snapshot import Snapshot
from kueuelib.controllers.visibility.manifests import api_service_names

_KIND = API_SERVICES.kind


@check("visibility-missing", _KIND)
def missing(snapshot: Snapshot) -> Iterator[Finding]:
    """APIServices that do not exist although the configuration asks for the visibility API."""
    if snapshot.configuration.visibility_server is None:
        return
    for name in api_service_names():
        if snapshot.find(_KIND, name) is None:
            problem = "it does not exist, but the configuration has visibilityServer"
            yield Finding(Severity.WARNING, Subject(_KIND, name), problem, install(snapshot))


@check("visibility-unavailable", _KIND, momentary=True)
def unavailable(snapshot: Snapshot) -> Iterator[Finding]:
    """APIServices from whose server the API server gets no answer."""
    for name in api_service_names():
        service = snapshot.find(_KIND, name)
        why = "" if service is None else _why(service)
        if service is not None and why:
            problem = (
                f"the API server gets no valid answer ({why}); until it does, deleted namespaces "
                "stay Terminating"
            )
            fix, follows = _fix(snapshot)
            yield Finding(Severity.WARNING, subject_of(_KIND, service), problem, fix, follows)


def _why(service: Obj) -> str:
    """The API server's reason; empty if it is available, or not judged yet."""
    condition = find_condition((service.get("status") or {}).get("conditions"), "Available")
    if condition.get("status") in (None, "True"):
        return ""
    return ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))


def _fix(snapshot: Snapshot) -> tuple[str, tuple[str, ...]]:
    """The command, and the checks whose errors explain it."""
    if snapshot.configuration.visibility_server is not None:
        return look(snapshot), no_manager(snapshot)
    there = [name for name in api_service_names() if snapshot.find(_KIND, name)]
    remove = f"kubectl delete apiservice {' '.join(there)}"
    return f"{remove}  # or start the manager with visibilityServer in its configuration", ()
