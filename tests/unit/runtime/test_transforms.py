"""What informers drop from objects, and what objects share."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kueuelib.machinery.store import RECENT, strip


def workload(name: str, cpu: str = "1") -> dict[str, Any]:
    """As a decoder makes it: no part is shared with another one."""
    found: dict[str, Any] = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "labels": {"cpu": cpu},
            "finalizers": [f"example.com/{cpu}"],
        },
        "spec": {"podSets": [{"name": "main", "count": 1, "cpu": cpu}]},
        "status": {
            "admission": {"clusterQueue": "cq", "cpu": cpu},
            "conditions": [{"type": "Admitted", "message": "it is admitted", "time": cpu}],
        },
    }
    decoded: dict[str, Any] = orjson.loads(orjson.dumps(found))
    return decoded


def test_what_nobody_reads_is_dropped() -> None:
    kept = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    obj = {"metadata": {"name": "n", "managedFields": [{}], "annotations": kept}}
    assert strip(obj) == {"metadata": {"name": "n"}}


def test_workloads_that_are_alike_share_their_parts() -> None:
    one, other = strip(workload("a")), strip(workload("b"))
    assert one == workload("a")
    assert other == workload("b")
    assert one["spec"]["podSets"] is other["spec"]["podSets"]
    assert one["status"]["admission"] is other["status"]["admission"]
    for name in ("labels", "finalizers"):
        assert one["metadata"][name] is other["metadata"][name]


def test_labels_of_their_own_do_not_keep_workloads_from_sharing() -> None:
    first = [strip(workload(str(shape), cpu=str(shape))) for shape in range(RECENT // 2)]
    for number in range(4 * RECENT):
        other = workload("x", cpu=str(number % len(first)))
        other["metadata"]["labels"] = {"job-uid": str(number)}
        stored = strip(other)
        assert stored["spec"]["podSets"] is first[number % len(first)]["spec"]["podSets"]


def test_long_annotations_are_not_kept_for_others() -> None:
    one, other = workload("a"), workload("b")
    one["metadata"]["annotations"] = {"note": "x" * 2000}
    other["metadata"]["annotations"] = {"note": "x" * 2000}
    assert strip(one)["metadata"]["annotations"] is not strip(other)["metadata"]["annotations"]


def test_workloads_that_differ_share_words() -> None:
    one, other = strip(workload("a")), strip(workload("b", cpu="2"))
    assert other == workload("b", cpu="2")
    assert one["spec"]["podSets"] is not other["spec"]["podSets"]
    assert one["status"]["admission"] is not other["status"]["admission"]
    assert one["metadata"]["labels"] is not other["metadata"]["labels"]
    (mine,), (its,) = one["status"]["conditions"], other["status"]["conditions"]
    assert mine is not its
    assert mine["message"] is its["message"]
    assert one["apiVersion"] is other["apiVersion"]
    assert one["metadata"]["namespace"] is other["metadata"]["namespace"]


@pytest.mark.parametrize(
    "odd", [{"status": []}, {"status": {"conditions": {"a": "b"}}}, {"spec": 1}]
)
def test_objects_of_any_form_are_kept(odd: dict[str, Any]) -> None:
    assert strip({"metadata": {}, **odd}) == {"metadata": {}, **odd}
