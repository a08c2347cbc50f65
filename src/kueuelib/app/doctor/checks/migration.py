"""Finds what would change if this program took over from the Go manager (`--before-migration`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kueuelib.api.crd import all_crds
from kueuelib.api.kinds import KUEUE
from kueuelib.api.meta import Obj, controller_of, group_kind_of, is_true
from kueuelib.api.names import FINISHED
from kueuelib.app.doctor.finding import Finding, Severity, check, subject_of
from kueuelib.app.doctor.snapshot import FACTS, Snapshot
from kueuelib.app.earlier import deletion_of, other_managers
from kueuelib.jobs.catalog.plugins import registry_for

MULTIKUEUE = f"{KUEUE}/multikueue"
_MOST = 5
"""The maximum number of fields that are named."""


@check("migration-deployment", "Deployment", installed=False, before_migration=True)
def deployment(snapshot: Snapshot) -> Iterator[Finding]:
    """Deployments of the Go manager, beside which `kueuelib install` refuses to write anything."""
    for theirs, problem in other_managers(snapshot.all("Deployment"), snapshot.namespace):
        text = f"{problem}; kueuelib install refuses until it is deleted, so delete it last"
        subject = subject_of("Deployment", theirs)
        yield Finding(Severity.ERROR, subject, text, deletion_of(theirs))


@check("migration-check", "AdmissionCheck", installed=False, before_migration=True)
def checks(snapshot: Snapshot) -> Iterator[Finding]:
    """AdmissionChecks of a controller that only the Go manager has."""
    for obj in snapshot.all("AdmissionCheck"):
        if obj["spec"].get("controllerName") == MULTIKUEUE:
            name = obj["metadata"]["name"]
            problem = "there is no controller for MultiKueue: its ClusterQueues would be inactive"
            fix = f"kubectl edit clusterqueue  # remove the check {name}"
            yield Finding(Severity.ERROR, subject_of("AdmissionCheck", obj), problem, fix)


@check("migration-kind", "Workload", installed=False, before_migration=True)
def kinds(snapshot: Snapshot) -> Iterator[Finding]:
    """One Workload of each kind that the configuration does not enable."""
    frameworks = snapshot.configuration.integrations.frameworks
    enabled = registry_for(frameworks).enabled(frameworks)
    known = {one.resource.group_kind for one in enabled}
    known |= snapshot.configuration.integrations.external_kinds
    seen = set()
    for workload in snapshot.all("Workload"):
        owner = controller_of(workload)
        if owner is None or is_true(workload, FINISHED):
            continue
        kind = group_kind_of(owner)
        if kind not in known and kind not in seen:
            seen.add(kind)
            problem = f"nothing would start or stop its owner, {owner['kind']} {owner['name']}"
            fix = "kueuelib doctor --before-migration --config FILE  # enable the kind there"
            yield Finding(Severity.ERROR, subject_of("Workload", workload), problem, fix)


@check("migration-fields", FACTS, installed=False, before_migration=True)
def fields(snapshot: Snapshot) -> Iterator[Finding]:
    """Fields that would get lost, as our definitions lack them; the first object of each kind."""
    for crd in all_crds():
        kind = crd["spec"]["names"]["kind"]
        served = {one["name"]: one["schema"]["openAPIV3Schema"] for one in crd["spec"]["versions"]}
        having: dict[tuple[str, ...], list[Obj]] = {}
        for obj in snapshot.all(kind):
            schema = served.get(str(obj.get("apiVersion", "")).rpartition("/")[2])
            if lost := tuple(_unknown(obj.get("spec"), _property(schema, "spec"), "spec")):
                having.setdefault(lost, []).append(obj)
        for lost, objects in having.items():
            more = f" and {len(lost) - _MOST} more" if len(lost) > _MOST else ""
            problem = f"this version drops {', '.join(lost[:_MOST])}{more}"
            if len(objects) > 1:
                problem += f", also of {len(objects) - 1} others"
            fix = f"kubectl get {kind.lower()} -A -o yaml > backup.yaml"
            yield Finding(Severity.WARNING, subject_of(kind, objects[0]), problem, fix)


def _property(schema: Mapping[str, Any] | None, name: str) -> Obj:
    inner: Obj = ((schema or {}).get("properties") or {}).get(name) or {}
    return inner


def _unknown(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """The paths in a value that a schema does not have."""
    if isinstance(value, list):
        yield from _of_items(value, schema.get("items") or {}, f"{path}[]")
    if not isinstance(value, Mapping) or "properties" not in schema:
        return
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, inner in value.items():
        if name not in schema["properties"]:
            yield f"{path}.{name}"
        else:
            yield from _unknown(inner, schema["properties"][name], f"{path}.{name}")


def _of_items(values: Sequence[Any], schema: Mapping[str, Any], path: str) -> Iterator[str]:
    paths = dict.fromkeys(lost for value in values for lost in _unknown(value, schema, path))
    yield from paths
