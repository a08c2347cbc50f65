"""CustomResourceDefinitions: at versions that fit this program, before a migration as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from kueuelib.api.crd import all_crds, converted_crds
from kueuelib.api.kinds import (
    CLUSTER_QUEUES,
    KUEUE,
    MUTATING_WEBHOOKS,
    V1BETA1,
    V1BETA2,
    VALIDATING_WEBHOOKS,
    WORKLOADS,
)
from kueuelib.api.meta import Obj, controller_of, find_condition, group_kind_of
from kueuelib.api.names import IN_USE_FINALIZER, MANAGED_LABEL
from kueuelib.api.phrases import some
from kueuelib.api.workload_state import is_finished
from kueuelib.app.doctor.checks.queues import users_of
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check, subject_of
from kueuelib.app.doctor.manager import (
    CONVERSION,
    MISDIRECTED,
    MISSING_KIND,
    STATUS_LOST,
    TERMINATING,
    address_of,
    client_configs,
    install,
    no_manager,
    reinstall,
)
from kueuelib.app.doctor.snapshot import FACTS, ClusterSnapshot
from kueuelib.app.earlier_installation import being_deleted, deletion_of, other_managers
from kueuelib.app.foreign_finalizers import OURS, foreign_finalizers, removal_of
from kueuelib.jobs.plugins import registry_for

# Finds what would change if this program took over from the Go manager (`--before-migration`).

MULTIKUEUE = f"{KUEUE}/multikueue"
_MOST_LOST = 5
"""The maximum number of fields that are named."""


@check("migration-deployment", "Deployment", installed=False, before_migration=True)
def deployment(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Deployments of the Go manager, beside which `kueuelib install` refuses to write anything."""
    for theirs, problem in other_managers(snapshot.all("Deployment"), snapshot.namespace):
        text = f"{problem}; kueuelib install refuses until it is deleted, so delete it last"
        subject = subject_of("Deployment", theirs)
        yield Finding(Severity.ERROR, subject, text, deletion_of(theirs))


@check("migration-check", "AdmissionCheck", installed=False, before_migration=True)
def checks(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """AdmissionChecks of a controller that only the Go manager has."""
    for obj in snapshot.all("AdmissionCheck"):
        if obj["spec"].get("controllerName") == MULTIKUEUE:
            name = obj["metadata"]["name"]
            problem = "there is no controller for MultiKueue: its ClusterQueues would be inactive"
            fix = f"kubectl edit clusterqueue  # remove the check {name}"
            yield Finding(Severity.ERROR, subject_of("AdmissionCheck", obj), problem, fix)


@check("migration-kind", "Workload", installed=False, before_migration=True)
def kinds(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """One Workload of each kind that the configuration does not enable."""
    frameworks = snapshot.configuration.integrations.frameworks
    enabled = registry_for(frameworks).enabled(frameworks)
    known = {one.resource.group_kind for one in enabled}
    known |= snapshot.configuration.integrations.external_kinds
    seen = set()
    for workload in snapshot.all("Workload"):
        owner = controller_of(workload)
        if owner is None or is_finished(workload):
            continue
        kind = group_kind_of(owner)
        if kind not in known and kind not in seen:
            seen.add(kind)
            problem = f"nothing would start or stop its owner, {owner['kind']} {owner['name']}"
            fix = "kueuelib doctor --before-migration --config FILE  # enable the kind there"
            yield Finding(Severity.ERROR, subject_of("Workload", workload), problem, fix)


@check("migration-fields", FACTS, installed=False, before_migration=True)
def lost_fields(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Fields that would get lost, as our definitions lack them; the first object of each kind."""
    for crd in _ours():
        kind = crd["spec"]["names"]["kind"]
        served = {one["name"]: one["schema"]["openAPIV3Schema"] for one in crd["spec"]["versions"]}
        having: dict[tuple[str, ...], list[Obj]] = {}
        for obj in snapshot.all(kind):
            schema = served.get(str(obj.get("apiVersion", "")).rpartition("/")[2])
            if lost := tuple(_unknown(obj.get("spec"), _spec_in(schema), "spec")):
                having.setdefault(lost, []).append(obj)
        for lost, objects in having.items():
            more = f" and {len(lost) - _MOST_LOST} more" if len(lost) > _MOST_LOST else ""
            problem = f"this version drops {', '.join(lost[:_MOST_LOST])}{more}"
            if len(objects) > 1:
                problem += f", also of {len(objects) - 1} others"
            fix = f"kubectl get {kind.lower()} -A -o yaml > backup.yaml"
            yield Finding(Severity.WARNING, subject_of(kind, objects[0]), problem, fix)


def _spec_in(schema: Mapping[str, Any] | None) -> Obj:
    inner: Obj = ((schema or {}).get("properties") or {}).get("spec") or {}
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


# --------------------------------------------------------------------------------------------------

KIND = "CustomResourceDefinition"
_MOST = 3
"""The maximum number of fields that are named."""


@cache
def _ours() -> tuple[Obj, ...]:
    """The definitions of this program, to be read only."""
    return tuple(all_crds())


def _installed(snapshot: ClusterSnapshot) -> Iterator[tuple[Obj, Obj]]:
    """Our definitions that exist, each with the one of this program."""
    for ours in _ours():
        crd = snapshot.find(KIND, ours["metadata"]["name"])
        if crd is not None:
            yield crd, ours


def _subject(crd: Obj) -> Subject:
    return Subject(KIND, crd["metadata"]["name"])


@check(MISSING_KIND, KIND)
def missing(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Kinds that are not defined at all."""
    for crd in _ours():
        if snapshot.find(KIND, crd["metadata"]["name"]) is None:
            problem = f"{crd['spec']['names']['kind']} is not defined in this cluster"
            fix = install(snapshot)
            if any(_installed(snapshot)):  # it was not the first installation
                fix += "; " if "  # " in fix else "  # "
                fix += "then, if its objects were saved and a manager runs: kubectl create -f FILE"
            yield Finding(Severity.ERROR, _subject(crd), problem, fix, (TERMINATING,))


@check(TERMINATING, KIND)
def terminating(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Kinds that are being deleted, which cannot be cancelled.

    A manager lets the objects go, but it needs all kinds. If some are gone, `uninstall` helps: it
    removes the healthy kinds, too, so all that is left is saved and created again. It is not needed
    if the commands of `crd-held` release everything. The command writes nothing when it is run
    again, because its first part refuses to replace its file.
    """
    installed = list(_installed(snapshot))
    save = "kueuelib apiserver dump --backup kueue.yaml"
    workloads = f"{WORKLOADS.plural}.{WORKLOADS.group}"
    if snapshot.find(KIND, workloads) is not None:
        save += f" && kubectl get {workloads} -A -o yaml > workloads.yaml"
    save += f" && kubectl get pods -A -l {MANAGED_LABEL}=true -o yaml > pods.yaml"
    then = f"before a manager starts; then, once the CRD is gone: {install(snapshot)}"
    if _lacks_kinds(snapshot):
        then = f"then release what crd-held names, and once the CRD is gone: {install(snapshot)}"
        if _waits_for_a_manager(snapshot):
            then = f"then, because other kinds are gone: {reinstall(snapshot)}"
    fix = f"{save}  # {then}; and once a manager runs: kubectl create -f kueue.yaml"
    for crd, _ in installed:
        problem = being_deleted(crd)
        if problem:
            yield Finding(Severity.ERROR, _subject(crd), problem, fix)


def _lacks_kinds(snapshot: ClusterSnapshot) -> bool:
    """Whether some of our kinds are gone, so that no manager can run."""
    return len(list(_installed(snapshot))) < len(_ours())


def _waits_for_a_manager(snapshot: ClusterSnapshot) -> bool:
    """Whether kinds that are being deleted have objects that only a manager releases: with our
    finalizer and, as nothing uses them, without a command of `crd-held`.
    """
    kinds = [
        crd["spec"]["names"]["kind"]
        for crd, _ in _installed(snapshot)
        if crd["metadata"].get("deletionTimestamp")
    ]
    return any(
        {*OURS} & {*(obj["metadata"].get("finalizers") or ())}
        and not users_of(snapshot, kind, obj["metadata"]["name"])
        for kind in kinds
        for obj in snapshot.all(kind)
    )


@check("crd-held", KIND, momentary=True)
def held(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """What keeps a kind that is being deleted, although a manager runs."""
    saved = f"save it first, see {TERMINATING}"
    for crd, _ in _installed(snapshot):
        if not crd["metadata"].get("deletionTimestamp"):
            continue
        own = crd["spec"]["names"]["kind"]
        waits = "its CRD is being deleted and waits for it"
        for kind, obj in ((KIND, crd), *((own, one) for one in snapshot.all(own))):
            what = "crd" if kind == KIND else kind.lower()
            others, reasons, notes = foreign_finalizers(obj), [], [saved]
            users = users_of(snapshot, kind, obj["metadata"]["name"])
            if IN_USE_FINALIZER not in (obj["metadata"].get("finalizers") or ()):
                users = ()
            if others:
                reasons.append(f"has finalizer {some(others)} of another program")
                notes.append("or let that program remove its finalizer")
            if users:
                reasons.append(f"is in use by {some(users)}")
                notes.append("running jobs continue")
                if kind == CLUSTER_QUEUES.kind:
                    notes.append("or end them: set spec.active: false in these Workloads")
            if reasons:
                why = " and ".join(reasons)
                problem = f"it is being deleted and {why}"
                problem = problem if kind == KIND else f"{waits}: it {why}"
                # One command: the places of finalizers change with each that is removed.
                fix = removal_of(what, obj, [*others, *(OURS if users else ())])
                fix += f"  # {'; '.join(notes)}"
                alone = others or _lacks_kinds(snapshot)  # no manager releases it
                follows = () if alone else no_manager(snapshot)
                yield Finding(Severity.ERROR, subject_of(kind, obj), problem, fix, follows)


@check("crd-established", KIND)
def established(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Kinds that are defined but not served."""
    for crd, _ in _installed(snapshot):
        conditions = (crd.get("status") or {}).get("conditions")
        for type_ in ("Established", "NamesAccepted"):
            condition = find_condition(conditions, type_)
            if condition.get("status") != "True":
                why = condition.get("message") or "the API server has not said so"
                problem = f"it is not {type_}: {why}"
                name = crd["metadata"]["name"]
                fix = f"kubectl get crd {name} -o jsonpath='{{.status.conditions}}'"
                yield Finding(Severity.ERROR, _subject(crd), problem, fix)
                break


@check("crd-versions", KIND)
def versions(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Versions that are not served, or not the stored one, as they should be."""
    for crd, _ in _installed(snapshot):
        by_name = {one["name"]: one for one in crd["spec"]["versions"]}
        for version, severity in ((V1BETA2, Severity.ERROR), (V1BETA1, Severity.HINT)):
            if not by_name.get(version, {}).get("served"):
                yield Finding(
                    severity, _subject(crd), f"{version} is not served", install(snapshot)
                )
        stored = next((name for name, one in by_name.items() if one.get("storage")), "")
        if stored != V1BETA2 and V1BETA2 in by_name:
            problem = f"objects are stored in {stored}, not in {V1BETA2}"
            yield Finding(Severity.WARNING, _subject(crd), problem, install(snapshot))


@check(CONVERSION, KIND, MUTATING_WEBHOOKS.kind, VALIDATING_WEBHOOKS.kind)
def conversion(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Kinds with several served versions and no conversion webhook, and those with one that is not
    where the other webhooks are.
    """
    ours = {
        address_of(config): None
        for subject, config in client_configs(snapshot)
        if subject.kind != KIND
    }
    for crd, _ in _installed(snapshot):
        served = [one["name"] for one in crd["spec"]["versions"] if one.get("served")]
        said = crd["spec"].get("conversion") or {}
        address = address_of((said.get("webhook") or {}).get("clientConfig") or {})
        if said.get("strategy") != "Webhook":
            if crd["metadata"]["name"] not in converted_crds() or len(served) < 2:
                continue
            problem = (
                f"{' and '.join(served)} are served, and no webhook converts them "
                "(spec.conversion.strategy is None): fields with other names are silently dropped"
            )
        elif ours and address not in ours:
            problem = f"its conversion webhook is at {address}, the others at {next(iter(ours))}"
        else:
            continue
        yield Finding(
            Severity.ERROR, _subject(crd), problem, install(snapshot), (MISDIRECTED, TERMINATING)
        )


@check("crd-stored-versions", KIND)
def stored_versions(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Versions in which objects may still be stored."""
    for crd, _ in _installed(snapshot):
        known = {one["name"] for one in crd["spec"]["versions"]}
        stored = next((one["name"] for one in crd["spec"]["versions"] if one.get("storage")), "")
        old = [
            name for name in (crd.get("status") or {}).get("storedVersions") or () if name != stored
        ]
        if not old:
            continue
        gone = [name for name in old if name not in known]
        resource = crd["metadata"]["name"]
        body = f'{{"status":{{"storedVersions":["{stored}"]}}}}'
        fix = (
            f"kubectl get {resource} -A -o json | kubectl replace -f - && kubectl patch crd "
            f"{resource} --subresource=status --type=merge -p '{body}'"
        )
        problem = f"objects may still be stored in {', '.join(old)}"
        severity = Severity.HINT
        if gone:
            problem += f", and {', '.join(gone)} is no longer defined"
            severity = Severity.ERROR
        yield Finding(severity, _subject(crd), problem, fix)


@check("crd-fields", KIND)
def fields(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Fields of this version that the cluster's definition lacks and therefore drops."""
    for crd, ours in _installed(snapshot):
        by_name = {one["name"]: one for one in crd["spec"]["versions"]}
        for version in ours["spec"]["versions"]:
            there = by_name.get(version["name"])
            if there is None:
                continue
            lost = list(_lost(_schema(version), _schema(there), ""))
            if lost:
                more = f" and {len(lost) - _MOST} more" if len(lost) > _MOST else ""
                problem = f"{version['name']} drops {', '.join(lost[:_MOST])}{more}"
                yield Finding(Severity.WARNING, _subject(crd), problem, install(snapshot))


@check(STATUS_LOST, KIND)
def status(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Definitions whose statuses cannot be written, as they lack the subresource."""
    for crd, ours in _installed(snapshot):
        wanted = {one["name"]: one.get("subresources") or {} for one in ours["spec"]["versions"]}
        lacking = [
            one["name"]
            for one in crd["spec"]["versions"]
            if one.get("served") and wanted.get(one["name"], {}).keys() - _subresources(one)
        ]
        if lacking:
            problem = (
                f"{', '.join(lacking)} without subresources.status: every write of a status fails, "
                "and so every admission and every end"
            )
            yield Finding(Severity.ERROR, _subject(crd), problem, install(snapshot))


def _subresources(version: Obj) -> set[str]:
    return {*(version.get("subresources") or {})}


def _schema(version: Obj) -> Obj:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def _lost(ours: Obj, there: Obj, path: str) -> Iterator[str]:
    """The paths of properties that a schema has and another one lacks."""
    if there.get("x-kubernetes-preserve-unknown-fields"):
        return
    known = there.get("properties") or {}
    for name, schema in (ours.get("properties") or {}).items():
        where = f"{path}.{name}" if path else name
        if name in known:
            yield from _lost(schema, known[name], where)
        elif not isinstance(there.get("additionalProperties"), dict):
            yield where
    if "items" in ours and "items" in there:
        yield from _lost(ours["items"], there["items"], f"{path}[]")
