"""Every rule of the CRDs refuses what it is about, with the path and the fix, in both versions."""

from __future__ import annotations

import copy
import re
from functools import cache
from typing import Any

import pytest

from kueuelib.api.cel_rules import RULES, Rule, rules_of
from kueuelib.api.conversion import convert
from kueuelib.api.crd import crd
from kueuelib.embedded.schema.structural import StructuralSchema
from kueuelib.errors import FieldError

from .queue_objects import KINDS, group, queue_object

VERSIONS = ("v1beta1", "v1beta2")
Obj = dict[str, Any]
GONE = object()
RESERVED = "status.conditions.0"
ASSIGNED = "status.admission.podSetAssignments"
PLACEMENT = f"{ASSIGNED}[0].topologyAssignment"
UPDATES = "status.admissionChecks.0.podSetUpdates"
TOLERATED = f"{UPDATES}.0.tolerations.0"
REF = "spec.priorityClassRef"
OTHER_REF = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}
SECONDS = "spec.maximumExecutionTimeSeconds"


@cache
def schema(kind: str, version: str) -> StructuralSchema:
    (found,) = (one for one in crd(kind)["spec"]["versions"] if one["name"] == version)
    return StructuralSchema.of(found["schema"]["openAPIV3Schema"])


def broken(obj: Obj, old: Obj | None = None) -> list[FieldError]:
    """What the CRD says of an object after defaulting, as the API server asks it."""
    found = schema(obj["kind"], obj["apiVersion"].partition("/")[2])
    obj, old = copy.deepcopy((obj, old))
    for one in (obj, old):
        if one is not None:
            found.prune(one)
            found.default(one)
    return found.validate(obj, old)


def changed(obj: Obj, changes: dict[str, Any]) -> Obj:
    """A copy with other values at some paths; `GONE` removes."""
    obj = copy.deepcopy(obj)
    for path, value in changes.items():
        *steps, last = path.split(".")
        place: Any = obj
        for step in steps:
            place = place[int(step) if isinstance(place, list) else step]
        key = int(last) if isinstance(place, list) else last
        if value is GONE:
            del place[key]
        else:
            place[key] = value
    return obj


def in_version(obj: Obj, version: str) -> Obj:
    return obj if obj["apiVersion"].endswith(version) else convert(obj, version)


NEW: list[tuple[str, dict[str, Any], str, str]] = [
    ("ClusterQueue", {"spec.cohortName": GONE}, "spec.resourceGroups", "set cohort"),
    (
        "ClusterQueue",
        {"spec.resourceGroups.0.coveredResources": ["cpu"]},
        "spec.resourceGroups[0].flavors",
        "in the same order",
    ),
    (
        "ClusterQueue",
        {
            "spec.resourceGroups": [
                group(f"r{n}", flavors=tuple(f"f{n}-{m}" for m in range(33))) for n in range(2)
            ]
        },
        "spec.resourceGroups",
        "at most 64 flavors",
    ),
    ("ClusterQueue", {"spec.fairSharing.weight": "1n"}, "spec.fairSharing.weight", "greater"),
    (
        "ClusterQueue",
        {"spec.preemption.reclaimWithinCohort": "Never"},
        "spec.preemption",
        "set it to LowerPriority or Any",
    ),
    (
        "ClusterQueue",
        {"spec.flavorFungibility.whenCanPreempt": "MayStopSearch"},
        "spec.flavorFungibility.preference",
        "set whenCanBorrow and whenCanPreempt to TryNextFlavor",
    ),
    (
        "ClusterQueue",
        {"spec.namespaceSelector.matchExpressions.0.operator": "Exists"},
        "spec.namespaceSelector.matchExpressions",
        "take none",
    ),
    (
        "ClusterQueue",
        {"spec.namespaceSelector.matchLabels": {"-a": "b"}},
        "spec.namespaceSelector.matchLabels",
        "label keys",
    ),
    ("Cohort", {"spec.parentName": ""}, "spec.resourceGroups", "set parentName"),
    (
        "Cohort",
        {"spec.resourceGroups.0.coveredResources": ["cpu", "memory"]},
        "spec.resourceGroups[0].flavors",
        "in the same order",
    ),
    ("Cohort", {"spec.fairSharing.weight": "1n"}, "spec.fairSharing.weight", "greater than 1n"),
    ("LocalQueue", {"spec.fairSharing.weight": "1n"}, "spec.fairSharing.weight", "greater than"),
    ("ResourceFlavor", {"spec.nodeLabels": {"a b": "c"}}, "spec.nodeLabels", "label keys"),
    ("ResourceFlavor", {"spec.tolerations.0.key": GONE}, "spec.tolerations", "set operator to"),
    (
        "ResourceFlavor",
        {"spec.tolerations.1.tolerationSeconds": 5},
        "spec.tolerations",
        "needs the effect NoExecute",
    ),
    (
        "ResourceFlavor",
        {"spec.tolerations.0.operator": "Exists"},
        "spec.tolerations",
        "takes no value",
    ),
    ("ResourceFlavor", {"spec.nodeLabels": {}}, "spec.nodeLabels", "or remove topologyName"),
    (
        "Topology",
        {"spec.levels.0.nodeLabel": "kubernetes.io/hostname"},
        "spec.levels",
        "remove the level that occurs twice",
    ),
    (
        "Topology",
        {"spec.levels": [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "example.com/a"}]},
        "spec.levels",
        "move it to the end",
    ),
    ("ResourceFlavor", {"spec.nodeLabels": GONE}, "spec.nodeLabels", "or remove topologyName"),
    ("Workload", {"spec.podSets.0.minCount": 1}, "spec.podSets", "at most one pod set"),
    (
        "Workload",
        {"spec.podSets.1.minCount": 3},
        "spec.podSets[1].minCount",
        "less than or equal to count",
    ),
    *(
        (
            "Workload",
            {f"spec.podSets.0.template.spec.{field}.0.resources.requests.pods": "1"},
            f"spec.podSets[0].template.spec.{field}[0].resources.requests[pods]",
            "counts the pods",
        )
        for field in ("containers", "initContainers")
    ),
    ("Workload", {"spec.priority": GONE}, "spec.priorityClass", "set priority"),
    ("Workload", {"status.admission": GONE}, "status.admission", "set QuotaReserved to False"),
    ("Workload", {f"{ASSIGNED}.1": GONE}, ASSIGNED, "one entry for each pod set"),
    ("Workload", {f"{ASSIGNED}.1.name": "other"}, ASSIGNED, "must name pod sets"),
    (
        "Workload",
        {"status.reclaimablePods.0.count": 3},
        "status.reclaimablePods",
        "a count up to that of the pod set",
    ),
    (
        "Workload",
        {"status.reclaimablePods.0.name": "other"},
        "status.reclaimablePods",
        "must name pod sets",
    ),
    (
        "Workload",
        {f"{TOLERATED}.key": ""},
        "status.admissionChecks[0].podSetUpdates[0].tolerations",
        "set operator to Exists",
    ),
    (
        "Workload",
        {f"{TOLERATED}.effect": "NoSchedule", f"{TOLERATED}.tolerationSeconds": 1},
        "status.admissionChecks[0].podSetUpdates[0].tolerations",
        "needs the effect NoExecute",
    ),
    (
        "Workload",
        {f"{TOLERATED}.operator": "Exists"},
        "status.admissionChecks[0].podSetUpdates[0].tolerations",
        "takes no value",
    ),
]
"""What one change makes of a valid object: the kind, the change, and the path and fix it gets."""

ONE_VERSION: list[tuple[str, str, dict[str, Any], str, str]] = [
    (
        "ClusterQueue",
        "v1beta1",
        {"spec.admissionChecks": ["budget"]},
        "spec.admissionChecksStrategy",
        "not both",
    ),
    (
        "Workload",
        "v1beta2",
        {f"{REF}.kind": "PriorityClass"},
        f"{REF}.kind",
        "must be WorkloadPriorityClass",
    ),
    (
        "Workload",
        "v1beta2",
        {f"{REF}.group": "scheduling.k8s.io"},
        f"{REF}.kind",
        "must be PriorityClass",
    ),
    ("Workload", "v1beta2", {f"{REF}.group": ""}, f"{REF}.kind", "must be empty"),
    (
        "Workload",
        "v1beta1",
        {f"{ASSIGNED}.0.topologyAssignment.domains.0.values": ["r1"]},
        f"{PLACEMENT}.domains",
        "one value for each of the levels",
    ),
    *(
        ("Workload", "v1beta2", {f"{ASSIGNED}.0.topologyAssignment.{field}": value}, path, fix)
        for field, value, path, fix in (
            ("levels", ["a"], f"{PLACEMENT}.slices", "one entry of valuesPerLevel for each"),
            (
                "slices.1.podCounts.individual",
                [1, 1],
                f"{PLACEMENT}.slices[1].podCounts.individual",
                "as many counts as domainCount",
            ),
            (
                "slices.0.valuesPerLevel.1.individual.roots",
                ["1"],
                f"{PLACEMENT}.slices[0].valuesPerLevel",
                "as many roots as domainCount",
            ),
            (
                "slices.0.podCounts",
                {},
                f"{PLACEMENT}.slices[0].podCounts",
                "either universal or individual",
            ),
            (
                "slices.0.valuesPerLevel.1.universal",
                "a",
                f"{PLACEMENT}.slices[0].valuesPerLevel[1]",
                "either universal or individual",
            ),
        )
    ),
]

CHANGES: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    ("LocalQueue", {}, {"spec.clusterQueue": "other"}, "spec.clusterQueue", "create another"),
    ("AdmissionCheck", {}, {"spec.controllerName": "b"}, "spec.controllerName", "create another"),
    ("ResourceFlavor", {}, {"spec.topologyName": GONE}, "spec.topologyName", "create another"),
    ("ResourceFlavor", {}, {"spec.topologyName": "b"}, "spec.topologyName", "create another"),
    (
        "Topology",
        {},
        {"spec.levels": [{"nodeLabel": "example.com/block"}]},
        "spec.levels",
        "create another Topology",
    ),
    ("Workload", {}, {"spec.queueName": "b"}, "spec.queueName", "deactivate the Workload"),
    ("Workload", {}, {SECONDS: GONE}, SECONDS, "immutable while quota is reserved"),
    (
        "Workload",
        {},
        {"spec.podSets.1.minCount": GONE},
        "spec.podSets",
        "the minCounts of pod sets are immutable",
    ),
    ("Workload", {}, {"spec.podSets.0.count": 3}, "spec.podSets", "counts of pod sets"),
    (
        "Workload",
        {},
        {
            "spec.podSets.1.name": "b",
            f"{ASSIGNED}.1.name": "b",
            f"{UPDATES}.1.name": "b",
        },
        "spec.podSets",
        "names of pod sets",
    ),
    ("Workload", {}, {REF: OTHER_REF}, "spec", "immutable while quota is reserved"),
    (
        "Workload",
        {REF: OTHER_REF},
        {f"{REF}.name": "low"},
        "spec",
        "but for that of a WorkloadPriorityClass",
    ),
    (
        "Workload",
        {},
        {"status.admission.clusterQueue": "b"},
        "status.admission.clusterQueue",
        "removing admission",
    ),
    ("Workload", {}, {"status.reclaimablePods": GONE}, "status.reclaimablePods", "must stay"),
    (
        "Workload",
        {},
        {"status.reclaimablePods.0.count": 0},
        "status.reclaimablePods",
        "must not shrink",
    ),
]
"""What may not change: the kind, what the old object has, the change, and the path and fix."""

ALLOWED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("Workload", {}, {f"{REF}.name": "low", "spec.priority": 9}),
    ("Workload", {}, {"spec.active": False, "spec.priority": -1}),
    ("Workload", {f"{RESERVED}.status": "False"}, {"spec.queueName": "b", SECONDS: GONE}),
    ("Workload", {}, {"status.admission": GONE, f"{RESERVED}.status": "False"}),
    ("Workload", {}, {"status.reclaimablePods.0.count": 2}),
    ("LocalQueue", {}, {"spec.stopPolicy": "Hold"}),
    ("AdmissionCheck", {}, {"spec.parameters": GONE}),
    ("ClusterQueue", {}, {"spec.cohortName": "b", "spec.queueingStrategy": "StrictFIFO"}),
    ("ClusterQueue", {}, {"spec.flavorFungibility": GONE, "spec.preemption": GONE}),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_valid_object_is_admitted_in_both_versions(kind: str, version: str) -> None:
    obj = in_version(queue_object(kind), version)
    assert broken(obj) == []
    assert broken(obj, obj) == []
    pruned = copy.deepcopy(obj)
    assert schema(kind, version).prune(pruned) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("kind", "changes", "path", "fix"), NEW)
def test_a_new_object_is_refused_with_path_and_fix(
    kind: str, changes: dict[str, Any], path: str, fix: str, version: str
) -> None:
    errors = broken(in_version(changed(queue_object(kind), changes), version))
    assert errors
    assert all(error.path.startswith(path) for error in errors), errors
    assert any(fix in error.message for error in errors), errors


@pytest.mark.parametrize(("kind", "version", "changes", "path", "fix"), ONE_VERSION)
def test_a_rule_of_one_version(
    kind: str, version: str, changes: dict[str, Any], path: str, fix: str
) -> None:
    (error,) = broken(changed(in_version(queue_object(kind), version), changes))
    assert error.path == path
    assert fix in error.message


def test_every_rule_has_an_example() -> None:
    said = set()
    for version in VERSIONS:
        for kind, changes, _, _ in NEW:
            said |= _messages(in_version(changed(queue_object(kind), changes), version))
        for kind, before, changes, _, _ in CHANGES:
            first = changed(queue_object(kind), before)
            new = in_version(changed(first, changes), version)
            said |= _messages(new, in_version(first, version))
    for kind, version, changes, _, _ in ONE_VERSION:
        said |= _messages(changed(in_version(queue_object(kind), version), changes))
    for kind in RULES:
        for version in VERSIONS:
            for rule in rules_of(kind, version):
                here = (kind, version, _place(rule))
                assert any(one[:3] == here and one[3].endswith(rule.message) for one in said), rule


def _messages(obj: Obj, old: Obj | None = None) -> set[tuple[str, str, str, str]]:
    head = obj["kind"], obj["apiVersion"].partition("/")[2]
    return {
        (*head, re.sub(r"\[\d+\]", "[]", error.path).replace("[pods]", "['pods']"), error.message)
        for error in broken(obj, old)
    }


def _place(rule: Rule) -> str:
    return (rule.at + rule.field).lstrip(".")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("kind", "before", "changes", "path", "fix"), CHANGES)
def test_a_change_is_refused_with_path_and_fix(
    kind: str,
    before: dict[str, Any],
    changes: dict[str, Any],
    path: str,
    fix: str,
    version: str,
) -> None:
    first = changed(queue_object(kind), before)
    old, new = in_version(first, version), in_version(changed(first, changes), version)
    assert broken(old) == []
    assert broken(new) == []
    errors = broken(new, old)
    assert {error.path for error in errors} == {path}
    assert all(fix in error.message for error in errors) or fix in str(errors), errors


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("kind", "before", "changes"), ALLOWED)
def test_other_changes_are_admitted(
    kind: str, before: dict[str, Any], changes: dict[str, Any], version: str
) -> None:
    first = changed(queue_object(kind), before)
    old, new = in_version(first, version), in_version(changed(first, changes), version)
    assert broken(new, old) == []
