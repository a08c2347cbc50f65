from __future__ import annotations

import copy

import pytest

from kueuelib.api.conversion import convert
from kueuelib.api.validation import (
    RULES,
    fields,
    validate_admission_check,
    validate_cluster_queue,
    validate_cohort,
    validate_local_queue,
    validate_resource_flavor,
)


def obj(kind, version="v1beta1", **spec):
    head = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": {"name": "n"}}
    return {**head, "spec": spec}


def group(resources, *flavors, **limits):
    rows = [{"name": name, "nominalQuota": "1", **limits} for name in resources]
    return {
        "coveredResources": list(resources),
        "flavors": [{"name": name, "resources": copy.deepcopy(rows)} for name in flavors],
    }


def queue(*groups, **spec):
    return obj("ClusterQueue", resourceGroups=list(groups), **spec)


def paths(errors):
    return [error.path for error in errors]


def flavors(first, last):
    return [f"f{index}" for index in range(first, last)]


GOOD_QUEUE = queue(
    group(["cpu", "memory"], "a", "b", borrowingLimit="1", lendingLimit="1"),
    group(["example.com/gpu"], "c"),
    cohort="team.example",
    namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
    preemption={"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}},
)

ROW = "spec.resourceGroups[0].flavors[0].resources[0]"
BROKEN_QUEUES = {
    "cohort": (queue(cohort="_bad"), ["spec.cohort"]),
    "cohort too long": (queue(cohort="a" * 254), ["spec.cohort"]),
    "covered resource": (
        queue(group(["@cpu"], "a")),
        ["spec.resourceGroups[0].coveredResources[0]"],
    ),
    "resource twice": (
        queue(group(["cpu", "cpu"], "a")),
        ["spec.resourceGroups[0].coveredResources[1]"],
    ),
    "resource in two groups": (
        queue(group(["cpu"], "a"), group(["cpu"], "b")),
        ["spec.resourceGroups[1].coveredResources[0]"],
    ),
    "flavor in two groups": (
        queue(group(["cpu"], "a"), group(["memory"], "a")),
        ["spec.resourceGroups[1].flavors[0].name"],
    ),
    "flavor name": (queue(group(["cpu"], "_a")), ["spec.resourceGroups[0].flavors[0].name"]),
    "too few resources": (
        queue({**group(["cpu"], "a"), "coveredResources": ["cpu", "memory"]}),
        ["spec.resourceGroups[0].flavors[0].resources"],
    ),
    "resources in another order": (
        queue({**group(["cpu", "memory"], "a"), "coveredResources": ["memory", "cpu"]}),
        [f"{ROW}.name", "spec.resourceGroups[0].flavors[0].resources[1].name"],
    ),
    "negative quota": (queue(group(["cpu"], "a", nominalQuota="-1")), [f"{ROW}.nominalQuota"]),
    "no quantity": (queue(group(["cpu"], "a", nominalQuota="one")), [f"{ROW}.nominalQuota"]),
    "negative limits": (
        queue(group(["cpu"], "a", borrowingLimit=-1, lendingLimit="-1m"), cohort="c"),
        [f"{ROW}.borrowingLimit", f"{ROW}.lendingLimit"],
    ),
    "limits without a cohort": (
        queue(group(["cpu"], "a", borrowingLimit="1", lendingLimit="1")),
        [f"{ROW}.borrowingLimit", f"{ROW}.lendingLimit"],
    ),
    "lends more than it has": (
        queue(group(["cpu"], "a", lendingLimit="1001m"), cohort="c"),
        [f"{ROW}.lendingLimit"],
    ),
    "more flavors than the status can list": (
        queue(group(["cpu"], *flavors(0, 40)), group(["memory"], *flavors(40, 65))),
        ["spec.resourceGroups"],
    ),
    "selector operator": (
        queue(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "Near"}]}),
        ["spec.namespaceSelector.matchExpressions[0].operator"],
    ),
    "selector without values": (
        queue(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
        ["spec.namespaceSelector.matchExpressions[0].values"],
    ),
    "selector with needless values": (
        queue(
            namespaceSelector={
                "matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]
            }
        ),
        ["spec.namespaceSelector.matchExpressions[0].values"],
    ),
    "selector key and value": (
        queue(namespaceSelector={"matchLabels": {"@a": "@b"}}),
        ["spec.namespaceSelector.matchLabels"] * 2,
    ),
    "borrowing preemption without reclaim": (
        queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
        ["spec.preemption"],
    ),
    "checks named in two ways": (
        queue(admissionChecks=["a"], admissionChecksStrategy={"admissionChecks": [{"name": "b"}]}),
        ["spec.admissionChecksStrategy"],
    ),
}


@pytest.mark.parametrize(("found", "wanted"), BROKEN_QUEUES.values(), ids=BROKEN_QUEUES)
def test_a_broken_cluster_queue_is_refused_at_the_field(found, wanted):
    assert paths(validate_cluster_queue(found)) == wanted
    assert paths(validate_cluster_queue(found, GOOD_QUEUE)) == wanted


def test_paths_are_those_of_the_given_version():
    new = convert(queue(cohort="_bad"), "v1beta2")
    assert paths(validate_cluster_queue(new)) == ["spec.cohortName"]


def test_a_good_cluster_queue_passes_in_both_versions_and_may_change_everything():
    assert validate_cluster_queue(GOOD_QUEUE) == []
    assert validate_cluster_queue(convert(GOOD_QUEUE, "v1beta2")) == []
    assert validate_cluster_queue(queue(queueingStrategy="StrictFIFO"), GOOD_QUEUE) == []


def test_what_came_in_broken_may_change_its_metadata_and_what_is_not_broken():
    """Else it could never give up its finalizer."""
    broken = queue(cohort="_bad")
    leaving = {**broken, "metadata": {"name": "n", "deletionTimestamp": "2026-01-02T03:04:05Z"}}
    assert validate_cluster_queue(leaving, broken) == []
    assert validate_cluster_queue({**broken, "metadata": {"name": "n"}}, leaving) == []
    assert paths(validate_cluster_queue(leaving, queue())) == ["spec.cohort"]
    other = queue(cohort="_bad", queueingStrategy="StrictFIFO")
    assert validate_cluster_queue(other, broken) == []
    worse = queue(cohort="_worse")
    assert paths(validate_cluster_queue(worse, broken)) == ["spec.cohort"]


def test_messages_are_in_the_stock_form():
    (error,) = validate_cluster_queue(queue(group(["cpu"], "a", nominalQuota="-1")))
    assert str(error) == (
        f'{ROW}.nominalQuota: Invalid value: "-1": must be greater than or equal to 0'
    )
    (error,) = validate_cluster_queue(queue(group(["cpu"], "a"), group(["cpu"], "b")))
    assert error.message == 'Duplicate value: "cpu"'
    assert error.reason == "FieldValueDuplicate"


# ---- Cohort


def cohort(*groups, **spec):
    return obj("Cohort", "v1beta2", resourceGroups=list(groups), **spec)


BROKEN_COHORTS = {
    "parent": (cohort(parentName="_bad"), ["spec.parentName"]),
    "parent too long": (cohort(parentName="a" * 254), ["spec.parentName"]),
    "limits without a parent": (
        cohort(group(["cpu"], "a", borrowingLimit="1", lendingLimit="1")),
        [f"{ROW}.borrowingLimit", f"{ROW}.lendingLimit"],
    ),
    "negative": (
        cohort(group(["cpu"], "a", nominalQuota="-1", lendingLimit="-1"), parentName="p"),
        [f"{ROW}.nominalQuota", f"{ROW}.lendingLimit"],
    ),
    "resource in two groups": (
        cohort(group(["cpu"], "a"), group(["cpu"], "b")),
        ["spec.resourceGroups[1].coveredResources[0]"],
    ),
    "flavor in two groups": (
        cohort(group(["cpu"], "a"), group(["memory"], "a")),
        ["spec.resourceGroups[1].flavors[0].name"],
    ),
    "resources in another order": (
        cohort({**group(["cpu", "memory"], "a"), "coveredResources": ["memory", "cpu"]}),
        [f"{ROW}.name", "spec.resourceGroups[0].flavors[0].resources[1].name"],
    ),
    "weight": (cohort(fairSharing={"weight": -1}), ["spec.fairSharing.weight"]),
}


@pytest.mark.parametrize(("found", "wanted"), BROKEN_COHORTS.values(), ids=BROKEN_COHORTS)
def test_a_broken_cohort_is_refused_at_the_field(found, wanted):
    assert paths(validate_cohort(found)) == wanted
    assert paths(validate_cohort(convert(found, "v1beta1"))) == wanted


def test_a_cohort_may_lend_more_than_its_own_quota_and_nobody_looks_for_cycles():
    row = {"nominalQuota": "0", "borrowingLimit": "1", "lendingLimit": "5"}
    assert validate_cohort(cohort(group(["cpu", "memory"], "a", "b", **row), parentName="p")) == []
    assert validate_cohort(cohort(parentName="n")) == []
    assert validate_cohort(cohort(), cohort(parentName="p")) == []


def test_a_cohort_without_a_parent_is_told_which_field_is_missing():
    (error,) = validate_cohort(cohort(group(["cpu"], "a", borrowingLimit="1")))
    assert str(error) == (
        f'{ROW}.borrowingLimit: Invalid value: "1": must be absent when the Cohort has no '
        "parentName"
    )


# ---- weights


@pytest.mark.parametrize(
    ("kind", "validate"),
    [
        ("ClusterQueue", validate_cluster_queue),
        ("Cohort", validate_cohort),
        ("LocalQueue", validate_local_queue),
    ],
)
@pytest.mark.parametrize(
    ("weight", "problem"),
    [
        ("0", ""),
        (2, ""),
        ("0.333", ""),
        ("2n", ""),
        ("-1m", "must be greater than or equal to 0"),
        ("1n", "must be 0 or greater than 1n"),
        ("0.1n", "must be 0 or greater than 1n"),
    ],
)
def test_a_weight_is_zero_or_large_enough_to_divide_by(kind, validate, weight, problem):
    given = obj(kind, "v1beta2", clusterQueue="q", fairSharing={"weight": weight})
    texts = [str(error) for error in validate(given)]
    path = "spec.fairSharing.weight"
    assert texts == ([f'{path}: Invalid value: "{weight}": {problem}'] if problem else [])


# ---- LocalQueue


def test_a_local_queue_needs_a_valid_cluster_queue():
    assert validate_local_queue(obj("LocalQueue", clusterQueue="q.example")) == []
    for name in ("", "_bad"):
        errors = validate_local_queue(obj("LocalQueue", clusterQueue=name))
        assert paths(errors) == ["spec.clusterQueue"]
    assert paths(validate_local_queue(obj("LocalQueue"))) == ["spec.clusterQueue"]


def test_the_cluster_queue_of_a_local_queue_cannot_change():
    old = obj("LocalQueue", clusterQueue="a")
    (error,) = validate_local_queue(obj("LocalQueue", clusterQueue="b"), old)
    assert str(error) == 'spec.clusterQueue: Invalid value: "b": field is immutable'
    assert validate_local_queue(old, old) == []


# ---- ResourceFlavor


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, []),
        ({"nodeLabels": {"a.example/b": "c"}}, []),
        ({"nodeLabels": {"@a": "b"}}, ["spec.nodeLabels"]),
        ({"nodeLabels": {"a": "@b"}}, ["spec.nodeLabels"]),
        ({"nodeLabels": {"/a": "b"}}, ["spec.nodeLabels"]),
        ({"nodeLabels": {"A/a": "b"}}, ["spec.nodeLabels"]),
        ({"nodeLabels": {"a" * 64: "b" * 64}}, ["spec.nodeLabels"] * 2),
        ({"nodeTaints": [{"key": "a", "effect": "NoSchedule", "value": "b"}]}, []),
        ({"nodeTaints": [{"key": "@a", "effect": "NoSchedule"}]}, ["spec.nodeTaints[0].key"]),
        ({"nodeTaints": [{"key": "a", "effect": "Never"}]}, ["spec.nodeTaints[0].effect"]),
        ({"nodeTaints": [{"key": "a"}]}, ["spec.nodeTaints[0].effect"]),
        (
            {"nodeTaints": [{"key": "a", "effect": "NoSchedule", "value": "@"}]},
            ["spec.nodeTaints[0].value"],
        ),
        ({"nodeTaints": [{"key": "a", "effect": "NoExecute"}] * 2}, ["spec.nodeTaints[1]"]),
        (
            {"nodeTaints": [{"key": "a", "effect": one} for one in ("NoExecute", "NoSchedule")]},
            [],
        ),
        ({"tolerations": [{"operator": "Exists"}]}, []),
        ({"tolerations": [{"key": "a", "effect": "NoExecute", "tolerationSeconds": 5}]}, []),
        ({"tolerations": [{"operator": "Equal"}]}, ["spec.tolerations[0].operator"]),
        ({"tolerations": [{"key": "@a"}]}, ["spec.tolerations[0].key"]),
        ({"tolerations": [{"key": "a", "operator": "Like"}]}, ["spec.tolerations[0].operator"]),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            ["spec.tolerations[0].operator"],
        ),
        ({"tolerations": [{"key": "a", "value": "@"}]}, ["spec.tolerations[0].operator"]),
        (
            {"tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}]},
            ["spec.tolerations[0].effect"],
        ),
        ({"tolerations": [{"key": "a", "effect": "Never"}]}, ["spec.tolerations[0].effect"]),
    ],
)
def test_flavors_need_valid_labels_taints_and_tolerations(spec, wanted):
    assert paths(validate_resource_flavor(obj("ResourceFlavor", **spec))) == wanted


# ---- AdmissionCheck


PARAMETERS = {"apiGroup": "example.com", "kind": "Budget", "name": "main"}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"controllerName": "example.com/c", "parameters": PARAMETERS}, []),
        ({}, ["spec.controllerName"]),
        ({"controllerName": ""}, ["spec.controllerName"]),
        (
            {"controllerName": "c", "parameters": {**PARAMETERS, "apiGroup": "@a"}},
            ["spec.parameters.apiGroup"],
        ),
        (
            {"controllerName": "c", "parameters": {**PARAMETERS, "kind": "_Bad"}},
            ["spec.parameters.kind"],
        ),
        (
            {"controllerName": "c", "parameters": {**PARAMETERS, "name": "a.b"}},
            ["spec.parameters.name"],
        ),
    ],
)
def test_a_check_needs_a_controller_and_a_proper_reference(spec, wanted):
    assert paths(validate_admission_check(obj("AdmissionCheck", **spec))) == wanted


def test_the_controller_of_a_check_cannot_change():
    old = obj("AdmissionCheck", controllerName="a", parameters=PARAMETERS)
    new = obj("AdmissionCheck", controllerName="b")
    assert paths(validate_admission_check(new, old)) == ["spec.controllerName"]
    assert validate_admission_check(obj("AdmissionCheck", controllerName="a"), old) == []


@pytest.mark.parametrize("kind", sorted(RULES))
@pytest.mark.parametrize("spec", ["text", [], 3])
def test_wrong_types_are_reported_and_never_crash(kind, spec):
    given = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "spec": spec}
    assert paths(RULES[kind].validate(given, None)) == ["spec"]


@pytest.mark.parametrize("kind", sorted(RULES))
def test_a_null_means_absent(kind):
    given = obj(kind, controllerName="c", clusterQueue="q", podSets=None, cohort=None)
    assert RULES[kind].validate(given, None) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (10**20, "100000000000000000000"),
        ("\ud800", '"\\ud800"'),
        ({"a": [10**20]}, '{"a":[100000000000000000000]}'),
    ],
)
def test_a_value_that_json_cannot_hold_is_shown_all_the_same(value: object, text: str) -> None:
    assert text in str(fields.invalid("spec.x", value, "is too much"))
