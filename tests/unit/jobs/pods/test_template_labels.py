"""The labels of pods in the templates of their Workload, on which other parties select."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.jobs.contract.commands import Change, Create
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.pods.marks import template_of
from kueuelib.jobs.pods.shapes import CONTROLLERS
from kueuelib.jobs.pods.single import PodJob

Obj = dict[str, Any]
KUEUE = "kueue.x-k8s.io"


def pair(pods: Any, first: Obj, second: Obj, **fields: Any) -> list[Obj]:
    labels = {"a": first, "b": second}
    return [
        pods.waiting(name, group="group", total=2, labels=labels[name], **fields)
        for name in ("a", "b")
    ]


def labels_in(workload: Obj) -> list[Obj]:
    sets = workload["spec"]["podSets"]
    return [each["template"].get("metadata", {}).get("labels", {}) for each in sets]


def test_a_template_has_the_labels_that_all_pods_of_its_role_share(pods: Any) -> None:
    found = pair(pods, {"app": "train", "rank": "0", "x": "1"}, {"app": "train", "rank": "1"})
    assert labels_in(pods.composed(*found)) == [{"app": "train"}]


def test_each_role_has_labels_of_its_own(pods: Any) -> None:
    found = [
        pods.waiting(name, group="group", total=2, cpu=cpu, labels={"part": name})
        for name, cpu in (("driver", "1"), ("worker", "2"))
    ]
    workload = pods.composed(*found)
    by_cpu = {
        each["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]: labels
        for each, labels in zip(workload["spec"]["podSets"], labels_in(workload), strict=True)
    }
    assert by_cpu == {"1": {"part": "driver"}, "2": {"part": "worker"}}


@pytest.mark.parametrize(
    "label",
    [
        *sorted(CONTROLLERS),
        f"{KUEUE}/pod-group-name",
        f"{KUEUE}/priority-class",
        "leaderworkerset.sigs.k8s.io/group-index",
    ],
)
def test_labels_of_queueing_and_of_controllers_are_left_out(pods: Any, label: str) -> None:
    pod = pods.waiting(labels={label: "x", "app": "train"})
    assert template_of(pod)["metadata"]["labels"] == {"app": "train"}


def test_a_pod_without_other_labels_makes_a_template_without_metadata(pods: Any) -> None:
    assert template_of(pods.waiting()).keys() == {"spec"}


def test_a_single_pod_and_a_driver_bring_their_labels_too(pods: Any) -> None:
    (pod_set,) = PodJob(pods.waiting(labels={"app": "train"})).pod_sets()
    assert pod_set.template["metadata"]["labels"] == {"app": "train"}
    template = "{spec: {containers: [{name: w}]}}"
    sets = f"[{{name: driver, count: 1}}, {{name: worker, count: 1, template: {template}}}]"
    driver = pods.waiting(
        group="group", labels={"app": "spark"}, annotations={f"{KUEUE}/pod-group-sets": sets}
    )
    assert labels_in(pods.composed(driver)) == [{"app": "spark"}, {}]


# ---- Workloads of another manager, whose templates have no labels


def without_labels(workload: Obj) -> Obj:
    for entry in workload["spec"]["podSets"]:
        entry["template"].pop("metadata")
    return workload


@pytest.mark.parametrize("holds_quota", [False, True])
def test_a_workload_without_labels_stands_for_its_group(pods: Any, holds_quota: bool) -> None:
    found = pair(pods, {"app": "train"}, {"app": "train"})
    workload = without_labels(pods.composed(*found))
    if not holds_quota:
        assert pods.plan(*found, workload=workload) == ()
        return
    commands = pods.plan(*found, workload=pods.admitted(workload))
    started = [each.new["metadata"]["name"] for each in commands if isinstance(each, Change)]
    assert started == ["a", "b"]


def test_a_workload_without_labels_stands_for_its_pod(pods: Any) -> None:
    job = PodJob(pods.waiting(labels={"app": "train"}))
    template = {"spec": job.pod_sets()[0].template["spec"]}
    workload = {"spec": {"podSets": [{"name": "main", "count": 1, "template": template}]}}
    assert job.is_equivalent(workload)


def test_labels_do_not_conflict_with_what_an_admission_adds(pods: Any) -> None:
    job = PodJob(pods.waiting(labels={"app": "train"}))
    job.run_with_podsets_info([PodSetInfo("main", labels={"zone": "a"})])
    assert job.object["metadata"]["labels"].items() >= {"app": "train", "zone": "a"}.items()


def test_a_pod_that_joins_with_another_label_changes_no_workload(pods: Any) -> None:
    found = pair(pods, {"app": "train"}, {"app": "train"})
    workload = pods.admitted(pods.composed(*found))
    running = [pods.running("a", group="group", total=2, labels={"app": "train"})]
    late = pods.waiting("c", group="group", total=2, labels={"app": "other"})
    commands = pods.plan(*running, late, workload=workload)
    assert not [each for each in commands if isinstance(each, Create)]
    assert [
        each.new["spec"]
        for each in commands
        if isinstance(each, Change) and each.resource.kind == "Workload"
    ] == [workload["spec"]]
