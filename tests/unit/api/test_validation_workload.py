from __future__ import annotations

import copy

import pytest

from kueuelib.api.conversion import convert
from kueuelib.api.validation import validate_workload

TIME = "2026-01-02T03:04:05Z"
WORKLOAD_CLASS = "kueue.x-k8s.io/workloadpriorityclass"
POD_CLASS = "scheduling.k8s.io/priorityclass"


def pod_set(name="main", count=3, **fields):
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "name": name,
        "count": count,
        "template": {"spec": {"containers": containers}},
        **fields,
    }


def workload(*pod_sets, status=None, **spec):
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"podSets": list(pod_sets) or [pod_set()], "queueName": "main", **spec},
        "status": status or {},
    }


def condition(type, status="True", **fields):
    return {
        "type": type,
        "status": status,
        "reason": "Reason",
        "message": "",
        "lastTransitionTime": TIME,
        **fields,
    }


def assignment(name="main", **fields):
    return {"name": name, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}, **fields}


def reserved(*assignments, **status):
    admission = {"clusterQueue": "q", "podSetAssignments": list(assignments) or [assignment()]}
    return {"conditions": [condition("QuotaReserved")], "admission": admission, **status}


def check(state="Pending", **fields):
    return {"name": "ac", "state": state, "message": "", "lastTransitionTime": TIME, **fields}


def change(obj, path, value):
    changed = copy.deepcopy(obj)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    target = changed
    for part in parents:
        target = target[part]
    target[last] = value
    return changed


def paths(errors):
    return [error.path for error in errors]


REQUESTS = "template.spec.containers.0.resources.requests"
TWO = (pod_set("a"), pod_set("b"))

BROKEN = {
    "pod set name": (workload(pod_set("Bad_name")), ["spec.podSets[0].name"]),
    "pods requested": (
        change(workload(), f"spec.podSets.0.{REQUESTS}", {"pods": "1"}),
        ["spec.podSets[0].template.spec.containers[0].resources.requests[pods]"],
    ),
    "pods requested by an init container": (
        change(
            workload(),
            "spec.podSets.0.template.spec.initContainers",
            [{"name": "i", "resources": {"requests": {"pods": "1"}}}],
        ),
        ["spec.podSets[0].template.spec.initContainers[0].resources.requests[pods]"],
    ),
    "minCount above count": (workload(pod_set(minCount=4)), ["spec.podSets[0].minCount"]),
    "minCount below zero": (workload(pod_set(minCount=-1)), ["spec.podSets[0].minCount"]),
    "two variable pod sets": (
        workload(pod_set("a", minCount=1), pod_set("b", minCount=1)),
        ["spec.podSets"],
    ),
    "queue name": (workload(queueName="@bad"), ["spec.queueName"]),
    "class without priority": (workload(priorityClassName="low"), ["spec.priority"]),
    "class name": (workload(priorityClassName="_low", priority=1), ["spec.priorityClassName"]),
    "reserved without admission": (
        workload(status={"conditions": [condition("QuotaReserved")]}),
        ["status.admission"],
    ),
    "admission's queue": (
        change(workload(status=reserved()), "status.admission.clusterQueue", "_q"),
        ["status.admission.clusterQueue"],
    ),
    "too few assignments": (
        workload(*TWO, status=reserved(assignment("a"))),
        ["status.admission.podSetAssignments"],
    ),
    "unknown assignment": (
        workload(status=reserved(assignment("other"))),
        ["status.admission.podSetAssignments[0].name"],
    ),
    "usage that cannot be divided": (
        workload(status=reserved(assignment(resourceUsage={"cpu": "1", "memory": "3Gi"}, count=3))),
        ["status.admission.podSetAssignments[0].resourceUsage[cpu]"],
    ),
    "condition": (
        workload(status={"conditions": [condition("Bad Type", "Maybe", reason="?")]}),
        [f"status.conditions[0].{field}" for field in ("type", "status", "reason")],
    ),
    "empty condition": (
        workload(status={"conditions": [condition("", reason="", lastTransitionTime=None)]}),
        [f"status.conditions[0].{field}" for field in ("type", "lastTransitionTime", "reason")],
    ),
    "condition twice": (
        workload(status={"conditions": [condition("A"), condition("A", observedGeneration=-1)]}),
        ["status.conditions[1].type", "status.conditions[1].observedGeneration"],
    ),
    "condition with too much to say": (
        workload(status={"conditions": [condition("A", message="x" * 32769, reason="R" * 1025)]}),
        ["status.conditions[0].reason", "status.conditions[0].message"],
    ),
    "reclaimable pods of an unknown set": (
        workload(status={"reclaimablePods": [{"name": "other", "count": 1}]}),
        ["status.reclaimablePods[other].name"],
    ),
    "more reclaimable pods than pods": (
        workload(status={"reclaimablePods": [{"name": "main", "count": 4}]}),
        ["status.reclaimablePods[main].count"],
    ),
    "updates for some pod sets only": (
        workload(*TWO, status={"admissionChecks": [check(podSetUpdates=[{"name": "a"}])]}),
        ["status.admissionChecks[0].podSetUpdates"],
    ),
    "updates of an unknown pod set": (
        workload(status={"admissionChecks": [check(podSetUpdates=[{"name": "other"}])]}),
        ["status.admissionChecks[0].podSetUpdates[0].name"],
    ),
    "updates with bad content": (
        workload(
            status={
                "admissionChecks": [
                    check(
                        podSetUpdates=[
                            {
                                "name": "main",
                                "labels": {"a": "@"},
                                "annotations": {"@": "a", "b": "x" * 2**18},
                                "nodeSelector": {"@": "a"},
                                "tolerations": [{"operator": "Like"}],
                            }
                        ]
                    )
                ]
            }
        ),
        [
            f"status.admissionChecks[0].podSetUpdates[0].{field}"
            for field in (
                "tolerations[0].operator",
                "tolerations[0].operator",
                "annotations",
                "annotations",
                "nodeSelector",
                "labels",
            )
        ],
    ),
}


@pytest.mark.parametrize(("found", "wanted"), BROKEN.values(), ids=BROKEN)
def test_a_broken_workload_is_refused_at_the_field(found, wanted):
    assert paths(validate_workload(found)) == wanted
    assert paths(validate_workload(found, workload())) == wanted


@pytest.mark.parametrize(
    "good",
    [
        workload(),
        workload(pod_set(count=0)),
        workload(pod_set("a", minCount=0), pod_set("b")),
        workload(priorityClassName="low", priority=0),
        workload(status=reserved()),
        workload(status=reserved(assignment(resourceUsage={"cpu": "7"}, count=0))),
        workload(status=reserved(assignment(resourceUsage={"cpu": "1500m"}))),
        workload(status={"admissionChecks": [check(podSetUpdates=[{"name": "main"}])]}),
    ],
)
def test_a_good_workload_passes_in_both_versions(good):
    assert validate_workload(good) == []
    assert validate_workload(convert(good, "v1beta2")) == []


def test_paths_are_those_of_the_given_version():
    broken = convert(workload(priorityClassName="_low"), "v1beta2")
    assert paths(validate_workload(broken)) == ["spec.priorityClassRef.name", "spec.priority"]


RESERVED = workload(
    priorityClassName="low",
    priorityClassSource=POD_CLASS,
    priority=1,
    status=reserved(
        reclaimablePods=[{"name": "main", "count": 2}],
        admissionChecks=[check("Ready", podSetUpdates=[{"name": "main", "labels": {"a": "1"}}])],
    ),
)

FORBIDDEN_CHANGES = {
    "image": ("spec.podSets.0.template.spec.containers.0.image", "other", "spec.podSets"),
    "count": ("spec.podSets.0.count", 2, "spec.podSets"),
    "unknown field of a template": (
        "spec.podSets.0.template.spec.volumes",
        [{"name": "v", "emptyDir": {}}],
        "spec.podSets",
    ),
    "queue": ("spec.queueName", "other", "spec.queueName"),
    "pod priority class": ("spec.priorityClassName", "high", "spec.priorityClassName"),
    "kind of class": ("spec.priorityClassSource", WORKLOAD_CLASS, "spec.priorityClassSource"),
    "admission": ("status.admission.clusterQueue", "other", "status.admission"),
    "fewer reclaimable pods": (
        "status.reclaimablePods.0.count",
        1,
        "status.reclaimablePods[main].count",
    ),
    "no reclaimable pods": ("status.reclaimablePods", [], "status.reclaimablePods[main]"),
    "updates of a ready check": (
        "status.admissionChecks.0.podSetUpdates",
        [{"name": "main", "labels": {"a": "2"}}],
        "status.admissionChecks[0].podSetUpdates",
    ),
}


@pytest.mark.parametrize(
    ("path", "value", "wanted"), FORBIDDEN_CHANGES.values(), ids=FORBIDDEN_CHANGES
)
def test_what_holds_quota_may_not_change(path, value, wanted):
    assert paths(validate_workload(change(RESERVED, path, value), RESERVED)) == [wanted]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.priority", 7),
        ("spec.active", False),
        ("status.reclaimablePods.0.count", 3),
        ("status.admissionChecks.0.state", "Retry"),
        ("status.conditions", [condition("QuotaReserved"), condition("Admitted")]),
        (f"spec.podSets.0.{REQUESTS}", {"cpu": "1000m"}),
        (f"spec.podSets.0.{REQUESTS}", {"cpu": 1}),
        ("spec.podSets.0.template.spec.nodeSelector", {}),
        ("spec.podSets.0.template.spec.volumes", []),
        ("spec.podSets.0.template.spec.volumes", None),
        ("status.admission.podSetAssignments.0.resourceUsage", {"cpu": "3000m"}),
        (
            "status.admission.podSetAssignments.0.topologyAssignment",
            {"levels": ["rack"], "domains": [{"values": ["a"], "count": 3}]},
        ),
        ("status.admission.podSetAssignments.0.delayedTopologyRequest", "Pending"),
    ],
)
def test_what_means_the_same_or_is_free_may_change(path, value):
    assert validate_workload(change(RESERVED, path, value), RESERVED) == []


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}, []),
        ({"podSetSliceRequiredTopology": "rack"}, ["must be set when"]),
        ({"podSetSliceSize": 2}, ["may not be set when"]),
    ],
)
def test_a_level_for_slices_and_their_size_need_each_other(asked, wanted):
    new = workload(pod_set(topologyRequest=asked))
    errors = validate_workload(new)
    assert paths(errors) == ["spec.podSets[0].topologyRequest.podSetSliceSize"] * len(wanted)
    assert all(text in error.message for text, error in zip(wanted, errors, strict=True))
    assert validate_workload(new, new) == []


def test_the_name_of_a_workload_priority_class_follows_the_label_of_the_job():
    old = change(RESERVED, "spec.priorityClassSource", WORKLOAD_CLASS)
    assert validate_workload(change(old, "spec.priorityClassName", "high"), old) == []


@pytest.mark.parametrize(
    ("path", "value", "wanted"),
    [
        ("spec.priorityClassRef.name", "high", "spec.priorityClassRef.name"),
        ("spec.priorityClassRef.kind", "WorkloadPriorityClass", "spec.priorityClassRef"),
    ],
)
def test_the_new_version_names_its_own_fields(path, value, wanted):
    old = convert(RESERVED, "v1beta2")
    assert paths(validate_workload(change(old, path, value), old)) == [wanted]


def test_quota_may_be_given_up_and_taken_again():
    status = {"conditions": [condition("QuotaReserved", "False")]}
    released = {**RESERVED, "status": status}
    assert validate_workload(released, RESERVED) == []
    moved = change(RESERVED, "status.admission.clusterQueue", "other")
    assert validate_workload(moved, released) == []


def test_what_waits_may_change_as_it_likes():
    new = workload(pod_set("other", 7), queueName="elsewhere")
    assert validate_workload(new, workload()) == []


def test_a_long_value_is_cut_in_the_message():
    big = change(RESERVED, "spec.podSets.0.template.spec.containers.0.image", "i" * 5000)
    (error,) = validate_workload(big, RESERVED)
    assert len(str(error)) < 700
    assert error.message.endswith(": field is immutable")
